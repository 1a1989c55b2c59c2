package daemonset

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// TestStories runs the stories in testdata: each is a file named after what
// happens in it. `go test -rewrite` writes the answers anew, to be reviewed.
func TestStories(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		c := newCluster()
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string { return c.run(t, d) })
	})
}

func (c *cluster) run(t *testing.T, d *datadriven.TestData) string {
	word := func(key string) string {
		v := ""
		if d.HasArg(key) {
			d.ScanArgs(t, key, &v)
		}
		return v
	}
	switch d.Cmd {
	case "node":
		for _, name := range strings.Split(word("name"), "+") {
			c.addNode(name, pairs(word("labels")))
		}
	case "node-delete":
		c.nodes = slices.DeleteFunc(c.nodes, func(n *corev1.Node) bool { return n.Name == word("name") })
	case "node-change":
		c.changeNode(word("name"), word("labels"), word("taint"), word("ready"))
		if word("deleting") != "" {
			i := slices.IndexFunc(c.nodes, func(n *corev1.Node) bool { return n.Name == word("name") })
			c.nodes[i] = c.nodes[i].DeepCopy()
			at := metav1.NewTime(c.now)
			c.nodes[i].DeletionTimestamp = &at
		}
	case "strategy":
		c.strategy(word("type"), word("maxUnavailable"), word("maxSurge"), word("minReady"), word("history"))
	case "template":
		c.template(func(t *corev1.PodTemplateSpec) {
			if v := word("image"); v != "" {
				t.Spec.Containers[0].Image = v
			}
			if v := word("selector"); v != "" {
				t.Spec.NodeSelector = pairs(v)
			}
			if v := word("tolerate"); v != "" {
				t.Spec.Tolerations = []corev1.Toleration{{Key: v, Operator: corev1.TolerationOpExists}}
			}
		})
	case "pod":
		for _, p := range c.pods {
			if target(p) == word("node") {
				c.change(p.UID, func(p *corev1.Pod) { changePod(p, word("phase"), word("label"), word("orphan")) })
			}
		}
	case "tick":
		dur, err := time.ParseDuration(word("for"))
		if err != nil {
			t.Fatal(err)
		}
		c.now = c.now.Add(dur)
	case "kubelets":
		c.kubelets()
	case "decide":
		p := c.decide()
		c.apply(p)
		return p.String()
	case "settle":
		_, worst := c.settle(400)
		return fmt.Sprintf("worst unavailable %d\n%simages %s\nrevisions %s\n", worst, c.decide(), c.images(), c.numbers())
	default:
		t.Fatalf("unknown command %q", d.Cmd)
	}
	return ""
}

func pairs(s string) map[string]string {
	out := map[string]string{}
	for _, p := range strings.Split(s, "+") {
		if k, v, ok := strings.Cut(p, ":"); ok {
			out[k] = v
		}
	}
	return out
}

func (c *cluster) changeNode(name, labels, taint, ready string) {
	for i, n := range c.nodes {
		if n.Name != name {
			continue
		}
		n = n.DeepCopy()
		if labels != "" {
			n.Labels = pairs(labels)
		}
		if key, effect, ok := strings.Cut(taint, ":"); ok {
			n.Spec.Taints = []corev1.Taint{{Key: key, Effect: corev1.TaintEffect(effect)}}
		} else if taint == "none" {
			n.Spec.Taints = nil
		}
		if ready != "" {
			n.Status.Conditions[0].Status = corev1.ConditionStatus(ready)
			n.Status.Conditions[0].LastTransitionTime = metav1.NewTime(c.now)
		}
		c.nodes[i] = n
	}
}

func (c *cluster) strategy(kind, unavailable, surge, minReady, history string) {
	s := &c.ds.Spec
	if kind != "" {
		s.UpdateStrategy = appsv1.DaemonSetUpdateStrategy{Type: appsv1.DaemonSetUpdateStrategyType(kind)}
	}
	if unavailable != "" || surge != "" {
		u, g := intstr.Parse(unavailable), intstr.Parse(surge)
		s.UpdateStrategy.RollingUpdate = &appsv1.RollingUpdateDaemonSet{MaxUnavailable: &u, MaxSurge: &g}
	}
	if minReady != "" {
		fmt.Sscan(minReady, &s.MinReadySeconds)
	}
	if history != "" {
		var n int32
		fmt.Sscan(history, &n)
		s.RevisionHistoryLimit = &n
	}
}

func changePod(p *corev1.Pod, phase, label, orphan string) {
	if phase != "" {
		p.Status.Phase, p.Status.Conditions = corev1.PodPhase(phase), nil
	}
	if label != "" {
		p.Labels = map[string]string{"app": label}
	}
	if orphan != "" {
		p.OwnerReferences = nil
	}
}

// images counts the pods of each image.
func (c *cluster) images() string {
	var all []string
	for _, p := range c.pods {
		all = append(all, p.Spec.Containers[0].Image)
	}
	slices.Sort(all)
	return strings.Join(all, " ")
}

func (c *cluster) numbers() string {
	var all []string
	for _, r := range c.revisions {
		all = append(all, fmt.Sprint(r.Revision))
	}
	slices.Sort(all)
	return strings.Join(all, " ")
}
