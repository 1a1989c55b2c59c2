package daemonset

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// cluster is a world of API objects with a clock, to which plans are applied.
// Pods that are sick, or whose image holds "bad", never become ready.
type cluster struct {
	now       time.Time
	ds        *appsv1.DaemonSet
	nodes     []*corev1.Node
	pods      []*corev1.Pod
	revisions []*appsv1.ControllerRevision
	places    []Place
	defaults  map[string]string // the namespace's annotations
	uids      int
	versions  int
	wake      time.Time // when the last plan of a story wants to look again

	waits   map[string]string // by node: why the scheduler binds no pod there
	rejects map[string]string // by node: why its kubelet lets every new pod fail
	refused map[string]string // nodes whose pods the API server does not take
	quota   int               // how many pods it takes altogether; 0 for any
}

// sick is the annotation of a pod that never becomes ready.
const sick = "sick"

func newCluster() *cluster {
	c := &cluster{now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
	l := map[string]string{"app": "agent"}
	one := intstr.FromInt32(1)
	c.ds = &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "agent", UID: "ds-uid", Generation: 1,
		Annotations: map[string]string{appsv1.DeprecatedTemplateGeneration: "1"}},
		Spec: appsv1.DaemonSetSpec{Selector: &metav1.LabelSelector{MatchLabels: l},
			UpdateStrategy: appsv1.DaemonSetUpdateStrategy{Type: appsv1.RollingUpdateDaemonSetStrategyType,
				RollingUpdate: &appsv1.RollingUpdateDaemonSet{MaxUnavailable: &one}},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: l},
				Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "agent", Image: "v1"}}}}}}
	return c
}

func (c *cluster) uid() types.UID {
	c.uids++
	return types.UID(fmt.Sprintf("uid-%d", c.uids))
}

func (c *cluster) addNode(name string, labels map[string]string) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: c.uid(), Labels: labels, CreationTimestamp: metav1.NewTime(c.now)},
		Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue,
			LastTransitionTime: metav1.NewTime(c.now)}}}}
	c.nodes = append(c.nodes, n)
	return n
}

// template changes the template as the API server would.
func (c *cluster) template(change func(*corev1.PodTemplateSpec)) {
	c.ds = c.ds.DeepCopy()
	change(&c.ds.Spec.Template)
	c.ds.Generation++
	c.ds.Annotations[appsv1.DeprecatedTemplateGeneration] = fmt.Sprint(c.ds.Generation)
}

func (c *cluster) input() Input {
	return Input{Now: c.now, DaemonSet: c.ds, Revisions: c.revisions, Nodes: c.nodes, Pods: c.pods, Places: c.places, Defaults: c.defaults}
}

func (c *cluster) decide() Plan { return Decide(c.input()) }

// What the API server answers when it does not take a write.
var (
	errExists   = errors.New("already exists")
	errConflict = errors.New("conflict: the object has changed or is another")
	errRefused  = errors.New("refused")
)

// apply carries out a plan, as an API server without fault would, and returns the
// nodes whose pods it was told to refuse.
func (c *cluster) apply(p Plan) (refused []string) {
	for _, a := range p.Actions {
		if err := c.carry(a); errors.Is(err, errRefused) {
			refused = append(refused, a.Node)
		} else if err != nil {
			panic(fmt.Sprintf("%s: %v", a, err))
		}
	}
	c.writeStatus(p)
	for _, node := range refused { // as the engine remembers it
		if i := slices.IndexFunc(c.places, func(p Place) bool { return p.Node == node }); i >= 0 {
			c.places[i].Refused = c.refused[node]
		} else {
			c.places = append(c.places, Place{Node: node, Refused: c.refused[node]})
		}
	}
	return refused
}

func (c *cluster) writeStatus(p Plan) {
	c.ds = c.ds.DeepCopy()
	c.ds.Status, c.places = p.Status, p.Places
}

// carry does one write, with the preconditions that the engine gives it.
func (c *cluster) carry(a Action) error {
	switch a.Verb {
	case CreatePod:
		return c.create(a)
	case DeletePod:
		return c.change(a.Pod.UID, func(p *corev1.Pod) {
			if at := metav1.NewTime(c.now); p.DeletionTimestamp == nil {
				p.DeletionTimestamp = &at
			}
		})
	case AdoptPod:
		return c.change(a.Pod.UID, func(p *corev1.Pod) { p.OwnerReferences = owner(c.ds) })
	case ReleasePod:
		return c.change(a.Pod.UID, func(p *corev1.Pod) { p.OwnerReferences = nil })
	case LabelPod:
		return c.change(a.Pod.UID, func(p *corev1.Pod) { p.Labels = a.Pod.Labels })
	case UnblockPod:
		return c.change(a.Pod.UID, func(p *corev1.Pod) { p.OwnerReferences[0].BlockOwnerDeletion = new(bool) })
	case BumpCollision:
		return nil // the status has the count
	default:
		return c.revise(a)
	}
}

func (c *cluster) create(a Action) error {
	if c.refused[a.Node] != "" || c.quota > 0 && len(c.pods) >= c.quota {
		return errRefused
	}
	if slices.ContainsFunc(c.pods, func(o *corev1.Pod) bool { return o.Name == a.Pod.Name }) {
		return errExists
	}
	pod := a.Pod.DeepCopy()
	pod.UID, pod.CreationTimestamp, pod.Status.Phase = c.uid(), metav1.NewTime(c.now), corev1.PodPending
	c.pods = append(c.pods, pod)
	return nil
}

// revise writes a revision; an update must be of the version that is there.
func (c *cluster) revise(a Action) error {
	i := slices.IndexFunc(c.revisions, func(r *appsv1.ControllerRevision) bool { return r.Name == a.Revision.Name })
	if a.Verb == CreateRevision {
		if i >= 0 {
			return errExists
		}
		r := a.Revision.DeepCopy()
		r.UID, r.CreationTimestamp = types.UID("of "+r.Name+fmt.Sprint(c.versions)), metav1.NewTime(c.now)
		c.revisions, i = append(slices.Clone(c.revisions), r), len(c.revisions)
	}
	if i < 0 || c.revisions[i].UID != a.Revision.UID && a.Verb != CreateRevision {
		return errConflict
	}
	if a.Verb == DeleteRevision {
		c.revisions = slices.Delete(slices.Clone(c.revisions), i, i+1)
		return nil
	}
	r := c.revisions[i].DeepCopy()
	switch a.Verb {
	case AdoptRevision:
		r.OwnerReferences = owner(c.ds)
	case ReleaseRevision:
		r.OwnerReferences = nil
	case UpdateRevision:
		if v := a.Revision.ResourceVersion; v != "" && v != r.ResourceVersion {
			return errConflict
		}
		r = a.Revision.DeepCopy()
	}
	c.versions++
	r.ResourceVersion = fmt.Sprint(c.versions)
	c.revisions = slices.Clone(c.revisions)
	c.revisions[i] = r
	return nil
}

// change replaces a pod by a changed copy, so that plans hold no shared state. A
// pod of another UID is not meant.
func (c *cluster) change(uid types.UID, f func(*corev1.Pod)) error {
	i := slices.IndexFunc(c.pods, func(p *corev1.Pod) bool { return p.UID == uid })
	if i < 0 {
		return errConflict
	}
	p := c.pods[i].DeepCopy()
	f(p)
	c.pods = slices.Clone(c.pods)
	c.pods[i] = p
	return nil
}

// kubelets end what terminates, bind what waits and make good images ready. A
// pod on a node that is down moves no further.
func (c *cluster) kubelets() {
	c.pods = slices.DeleteFunc(c.pods, func(p *corev1.Pod) bool {
		return p.DeletionTimestamp != nil && !c.down(target(p)) && len(p.Finalizers) == 0
	})
	for _, p := range c.pods {
		if !c.down(target(p)) && !ended(p) && p.DeletionTimestamp == nil {
			c.change(p.UID, c.kubelet)
		}
	}
}

// kubelet is what the scheduler and the kubelet do about one pod.
func (c *cluster) kubelet(p *corev1.Pod) {
	node := target(p)
	if why := c.waits[node]; why != "" && p.Spec.NodeName == "" {
		if old := condition(p, corev1.PodScheduled); old == nil || old.Message != why {
			p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse,
				Reason: corev1.PodReasonUnschedulable, Message: why, LastTransitionTime: metav1.NewTime(c.now)}}
		}
		return
	}
	if why := c.rejects[node]; why != "" && p.Status.Phase != corev1.PodRunning {
		p.Spec.NodeName, p.Status = node, corev1.PodStatus{Phase: corev1.PodFailed, Reason: why}
		return
	}
	p.Spec.NodeName, p.Status.Phase = node, corev1.PodRunning
	ok := corev1.ConditionTrue
	if strings.Contains(p.Spec.Containers[0].Image, "bad") || p.Annotations[sick] == "yes" {
		ok = corev1.ConditionFalse
	}
	if r := condition(p, corev1.PodReady); r == nil || r.Status != ok {
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: ok, LastTransitionTime: metav1.NewTime(c.now)}}
	}
}

func target(p *corev1.Pod) string {
	return p.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms[0].MatchFields[0].Values[0]
}

func (c *cluster) down(name string) bool {
	i := slices.IndexFunc(c.nodes, func(n *corev1.Node) bool { return n.Name == name })
	if i < 0 {
		return true
	}
	status, _ := nodeReady(c.nodes[i])
	return status != corev1.ConditionTrue
}

// settle decides, applies and lets the kubelets work, a second at a time, until
// nothing has been done for a while, and returns the largest number of
// unavailable nodes on the way.
func (c *cluster) settle(quiet time.Duration) (worst int32) {
	for still, steps := time.Duration(0), 0; still < quiet && steps < 2000; steps++ {
		p := c.decide()
		c.apply(p)
		worst = max(worst, p.Status.NumberUnavailable)
		still += time.Second
		if len(p.Actions) > 0 {
			still = 0
		}
		c.kubelets()
		c.now = c.now.Add(time.Second)
	}
	return worst
}
