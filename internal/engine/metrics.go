package engine

import (
	"time"

	"k8s.io/component-base/metrics"
	_ "k8s.io/component-base/metrics/prometheus/workqueue" // how long DaemonSets and nodes wait for their turn

	"github.com/rollcall-dev/rollcall/internal/core/daemonset"
)

// Registry takes the engine's metrics; component-base's are.
type Registry interface {
	MustRegister(...metrics.Registerable)
	CustomMustRegister(...metrics.StableCollector)
}

// RegisterMetrics puts the engine's metrics where they are scraped.
func (e *Engine) RegisterMetrics(r Registry) {
	r.MustRegister(e.meters.decide, e.meters.finished, e.meters.writes)
	r.CustomMustRegister(&sets{engine: e})
}

// meters count what the engine does.
type meters struct {
	decide, finished *metrics.Histogram
	writes           *metrics.CounterVec
}

func newMeters() meters {
	return meters{
		decide: metrics.NewHistogram(&metrics.HistogramOpts{Name: "rollcall_decide_duration_seconds",
			Help: "Time to decide about one DaemonSet.", Buckets: metrics.ExponentialBuckets(0.0001, 2, 16), StabilityLevel: metrics.ALPHA}),
		finished: metrics.NewHistogram(&metrics.HistogramOpts{Name: "rollcall_rollout_duration_seconds",
			Help: "Time from a new template to an available pod of it on every node, of rollouts that finished.", Buckets: metrics.ExponentialBuckets(1, 2, 18), StabilityLevel: metrics.ALPHA}),
		writes: metrics.NewCounterVec(&metrics.CounterOpts{Name: "rollcall_writes_total",
			Help: "Writes to the API by what they do and whether the API took them.", StabilityLevel: metrics.ALPHA}, []string{"action", "result"}),
	}
}

// wrote counts one write.
func (m meters) wrote(action string, err error) {
	result := "taken"
	if err != nil {
		result = "refused"
	}
	m.writes.WithLabelValues(action, result).Inc()
}

// finishes notes a rollout that has come to its end with this plan.
func (m meters) finishes(before, now daemonset.Plan) {
	if b, n := before.Rollout, now.Rollout; b.Revision == n.Revision && b.Revision != "" && !b.Complete && n.Complete {
		m.finished.Observe(n.LastProgress.Sub(n.Began).Seconds())
	}
}

// sets reports what stands of each DaemonSet: the counters under the names that
// kube-state-metrics gives them, and what only the plan knows.
type sets struct {
	metrics.BaseStableCollector
	engine *Engine
}

func gauge(name, help string, labels ...string) *metrics.Desc {
	return metrics.NewDesc(name, help, append([]string{"namespace", "daemonset"}, labels...), nil, metrics.ALPHA, "")
}

var (
	counters = []struct {
		desc  *metrics.Desc
		value func(daemonset.Plan) int32
	}{
		{gauge("kube_daemonset_status_desired_number_scheduled", "Nodes that should run the pod."), func(p daemonset.Plan) int32 { return p.Status.DesiredNumberScheduled }},
		{gauge("kube_daemonset_status_current_number_scheduled", "Nodes that should run the pod and have one."), func(p daemonset.Plan) int32 { return p.Status.CurrentNumberScheduled }},
		{gauge("kube_daemonset_status_number_ready", "Nodes that should run the pod and have a ready one."), func(p daemonset.Plan) int32 { return p.Status.NumberReady }},
		{gauge("kube_daemonset_status_number_available", "Nodes that should run the pod and have an available one."), func(p daemonset.Plan) int32 { return p.Status.NumberAvailable }},
		{gauge("kube_daemonset_status_number_unavailable", "Nodes that should run the pod and have no available one."), func(p daemonset.Plan) int32 { return p.Status.NumberUnavailable }},
		{gauge("kube_daemonset_status_number_misscheduled", "Nodes that have the pod and should not."), func(p daemonset.Plan) int32 { return p.Status.NumberMisscheduled }},
		{gauge("kube_daemonset_status_updated_number_scheduled", "Nodes that should run the pod and have one of the wanted revision."), func(p daemonset.Plan) int32 { return p.Status.UpdatedNumberScheduled }},
	}
	runningSeconds  = gauge("rollcall_rollout_running_seconds", "Time since the wanted template came, of rollouts that are not finished.")
	progressSeconds = gauge("rollcall_rollout_since_progress_seconds", "Time since another node had an available pod of the wanted template, of rollouts that are not finished.")
	missingNodes    = gauge("rollcall_missing_nodes", "Nodes that should run the pod and have no available one, by cause.", "cause")
)

// DescribeWithStability names what is collected.
func (s *sets) DescribeWithStability(ch chan<- *metrics.Desc) {
	for _, c := range counters {
		ch <- c.desc
	}
	ch <- runningSeconds
	ch <- progressSeconds
	ch <- missingNodes
}

// CollectWithStability reports what the last plans say.
func (s *sets) CollectWithStability(ch chan<- metrics.Metric) {
	s.engine.mu.Lock()
	defer s.engine.mu.Unlock()
	for key, plan := range s.engine.plans {
		emit := func(d *metrics.Desc, v float64, more ...string) {
			ch <- metrics.NewLazyConstMetric(d, metrics.GaugeValue, v, append([]string{key.Namespace, key.Name}, more...)...)
		}
		for _, c := range counters {
			emit(c.desc, float64(c.value(plan)))
		}
		if r := plan.Rollout; r.Revision != "" && !r.Complete {
			emit(runningSeconds, time.Since(r.Began).Seconds())
			emit(progressSeconds, time.Since(r.LastProgress).Seconds())
		}
		causes := map[string]int{}
		for _, p := range plan.Roll {
			if p.State == daemonset.Missing && len(p.Reasons) > 0 {
				causes[string(p.Reasons[0].Code)]++
			}
		}
		for cause, n := range causes {
			emit(missingNodes, float64(n), cause)
		}
	}
}
