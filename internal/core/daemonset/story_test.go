package daemonset

import (
	"fmt"
	"path/filepath"
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
	stories, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(stories) == 0 {
		t.Fatal("no stories", err)
	}
	for _, path := range stories {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txt"), func(t *testing.T) {
			c := newCluster()
			datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string { return c.run(t, d) })
		})
	}
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
			if key, values, ok := strings.Cut(word("affinity"), ":"); ok {
				t.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
					NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{
						{Key: key, Operator: corev1.NodeSelectorOpIn, Values: strings.Split(values, "+")}}}}}}}
			}
		})
	case "pod":
		for _, p := range c.pods {
			if target(p) == word("node") || p.Name == word("name") {
				c.change(p.UID, func(p *corev1.Pod) {
					changePod(p, word("phase"), word("label"), word("orphan"))
					c.changeReady(p, word("ready"), word("waits"), word("unscheduled"))
				})
			}
		}
	case "pod-add": // a pod of the current template that somebody else made
		c.addPod(word("name"), word("node"), d.HasArg("orphan"), d.HasArg("bound"))
	case "revision-orphan": // as after kubectl delete --cascade=orphan
		for i, r := range c.revisions {
			r = r.DeepCopy()
			r.OwnerReferences = nil
			c.revisions[i] = r
		}
	case "revision-foreign": // a revision of another template with the name that is wanted
		c.revisions = append(c.revisions, &appsv1.ControllerRevision{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", UID: c.uid(),
			Name: "agent-" + templateHash(&c.ds.Spec.Template, c.ds.Status.CollisionCount)}})
	case "revision-copy": // a second revision of the current template, with a hash label of its own
		r := c.revisions[len(c.revisions)-1].DeepCopy()
		r.Name, r.UID = word("name"), c.uid()
		r.Revision++
		delete(r.Labels, hashLabel)
		c.revisions = append(c.revisions, r)
	case "refused": // the API did not take a node's pod
		c.places = append(slices.DeleteFunc(c.places, func(p Place) bool { return p.Node == word("node") }), Place{Node: word("node"), Refused: word("why")})
	case "annotate": // a setting of the DaemonSet, or of its namespace
		if d.HasArg("namespace") {
			c.defaults = map[string]string{word("name"): word("value")}
		} else {
			c.ds = c.ds.DeepCopy()
			c.ds.Annotations[word("name")] = word("value")
			if word("value") == "" {
				delete(c.ds.Annotations, word("name"))
			}
		}
	case "daemonset":
		c.changeDaemonSet(word("deleting"), word("selector"))
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

func (c *cluster) changeReady(p *corev1.Pod, ready, waits, unscheduled string) {
	at := metav1.NewTime(c.now)
	if ready != "" {
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionStatus(ready), LastTransitionTime: at}}
	}
	if waits != "" {
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "agent", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: waits}}}}
	}
	if unscheduled != "" {
		p.Spec.NodeName = ""
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse,
			Reason: corev1.PodReasonUnschedulable, Message: unscheduled, LastTransitionTime: at}}
	}
}

func (c *cluster) addPod(name, node string, orphan, bound bool) {
	d := &decision{in: c.input(), hash: templateHash(&c.ds.Spec.Template, c.ds.Status.CollisionCount)}
	p := d.newPod(&spot{name: node, node: &corev1.Node{}})
	p.Name, p.UID, p.CreationTimestamp = name, c.uid(), metav1.NewTime(c.now)
	if orphan {
		p.OwnerReferences = nil
	}
	if bound {
		p.Spec.NodeName = node
	}
	c.pods = append(c.pods, p)
}

func (c *cluster) changeDaemonSet(deleting, selector string) {
	c.ds = c.ds.DeepCopy()
	if deleting != "" {
		at := metav1.NewTime(c.now)
		c.ds.DeletionTimestamp = &at
	}
	if selector == "none" {
		c.ds.Spec.Selector = &metav1.LabelSelector{}
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
