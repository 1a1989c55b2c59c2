package simnode

import (
	"fmt"
	"os"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

// Label marks every simulated node.
const Label = "rollcall.dev/simulated"

// Spec describes one simulated node.
type Spec struct {
	Name        string              `json:"name"`
	Labels      map[string]string   `json:"labels,omitempty"`
	Taints      []corev1.Taint      `json:"taints,omitempty"`
	OS          string              `json:"os,omitempty"`          // linux
	Arch        string              `json:"arch,omitempty"`        // amd64
	Capacity    corev1.ResourceList `json:"capacity,omitempty"`    // as Allocatable; what neither names: 8 CPU, 32Gi, 110 pods, 100Gi of disk
	Allocatable corev1.ResourceList `json:"allocatable,omitempty"` // as Capacity
}

// Specs names n like nodes: sim-1, sim-2, …
func Specs(n int) []Spec {
	out := make([]Spec, max(n, 0))
	for i := range out {
		out[i].Name = fmt.Sprintf("sim-%d", i+1)
	}
	return out
}

// ReadSpecs reads a YAML list of nodes.
func ReadSpecs(file string) ([]Spec, error) {
	raw, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var out []Spec
	if err := yaml.UnmarshalStrict(raw, &out); err != nil {
		return nil, fmt.Errorf("read the simulated nodes in %s: %w", file, err)
	}
	for i, s := range out {
		if s.Name == "" {
			return nil, fmt.Errorf("%s: node %d has no name", file, i+1)
		}
	}
	return out, nil
}
