package main

import (
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
)

// apiMetrics is the registry that the API server serves under /metrics.
type apiMetrics struct{}

func (apiMetrics) MustRegister(m ...metrics.Registerable) { legacyregistry.MustRegister(m...) }

func (apiMetrics) CustomMustRegister(c ...metrics.StableCollector) {
	legacyregistry.CustomMustRegister(c...)
}
