package manifests

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/rollcall-dev/rollcall/test/program"
)

// startCluster starts the program with these nodes.
func startCluster(t *testing.T, nodes []nodeSpec) *rest.Config {
	t.Helper()
	tmp := t.TempDir()
	spec, err := yaml.Marshal(nodes)
	if err != nil {
		t.Fatal(err)
	}
	specFile := filepath.Join(tmp, "nodes.yaml")
	if err := os.WriteFile(specFile, spec, 0o600); err != nil {
		t.Fatal(err)
	}
	return program.Start(t, filepath.Join(tmp, "data"), "--sim-spec", specFile).Config()
}

// settle cordons what is to be cordoned and waits until every node carries the
// taints of its spec and no others: a new node is not ready for a moment.
func settle(ctx context.Context, t *testing.T, client kubernetes.Interface, specs []nodeSpec) []corev1.Node {
	t.Helper()
	for _, s := range specs {
		if !s.cordoned {
			continue
		}
		patch := []byte(`{"spec":{"unschedulable":true}}`)
		if _, err := client.CoreV1().Nodes().Patch(ctx, s.Name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
			t.Fatalf("cordon %s: %v", s.Name, err)
		}
	}
	var nodes []corev1.Node
	err := poll(ctx, time.Minute, func(ctx context.Context) error {
		list, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		nodes = list.Items
		if len(nodes) != len(specs) {
			return fmt.Errorf("%d nodes, want %d", len(nodes), len(specs))
		}
		for i := range nodes {
			n := &nodes[i]
			at := slices.IndexFunc(specs, func(s nodeSpec) bool { return s.Name == n.Name })
			if at < 0 {
				return fmt.Errorf("the node %s is nobody's", n.Name)
			}
			if have, want := taintTexts(n.Spec.Taints), specs[at].taintTexts(); !slices.Equal(have, want) {
				return fmt.Errorf("node %s has the taints %v, want %v", n.Name, have, want)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatalf("wait for the fleet: %v", err)
	}
	return nodes
}

func (s nodeSpec) taintTexts() []string {
	taints := slices.Clone(s.Taints)
	if s.cordoned {
		taints = append(taints, taint(corev1.TaintNodeUnschedulable, "", corev1.TaintEffectNoSchedule))
	}
	return taintTexts(taints)
}

func taintTexts(taints []corev1.Taint) []string {
	var out []string
	for _, t := range taints {
		out = append(out, t.ToString())
	}
	slices.Sort(out)
	return out
}

// poll asks until there is no error; its last error says what was still wrong.
func poll(ctx context.Context, limit time.Duration, ask func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	var last error
	for {
		err := ask(ctx)
		if err == nil {
			return nil
		}
		if ctx.Err() == nil || last == nil {
			last = err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("after %v: %w", limit, last)
		case <-time.After(100 * time.Millisecond):
		}
	}
}
