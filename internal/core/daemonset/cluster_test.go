package daemonset

import (
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
// Pods whose image holds "bad" never become ready.
type cluster struct {
	now       time.Time
	ds        *appsv1.DaemonSet
	nodes     []*corev1.Node
	pods      []*corev1.Pod
	revisions []*appsv1.ControllerRevision
	places    []Place
	defaults  map[string]string // the namespace's annotations
	uids      int
}

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
	change(&c.ds.Spec.Template)
	c.ds.Generation++
	c.ds.Annotations[appsv1.DeprecatedTemplateGeneration] = fmt.Sprint(c.ds.Generation)
}

func (c *cluster) input() Input {
	return Input{Now: c.now, DaemonSet: c.ds, Revisions: c.revisions, Nodes: c.nodes, Pods: c.pods, Places: c.places, Defaults: c.defaults}
}

func (c *cluster) decide() Plan { return Decide(c.input()) }

// apply carries out a plan, as an API server without fault would.
func (c *cluster) apply(p Plan) {
	for _, a := range p.Actions {
		switch a.Verb {
		case CreatePod:
			pod := a.Pod.DeepCopy()
			pod.UID, pod.CreationTimestamp, pod.Status.Phase = c.uid(), metav1.NewTime(c.now), corev1.PodPending
			if slices.ContainsFunc(c.pods, func(o *corev1.Pod) bool { return o.Name == pod.Name }) {
				panic("pod name used twice: " + pod.Name)
			}
			c.pods = append(c.pods, pod)
		case DeletePod:
			c.change(a.Pod.UID, func(p *corev1.Pod) { at := metav1.NewTime(c.now); p.DeletionTimestamp = &at })
		case AdoptPod:
			c.change(a.Pod.UID, func(p *corev1.Pod) { p.OwnerReferences = owner(c.ds) })
		case ReleasePod:
			c.change(a.Pod.UID, func(p *corev1.Pod) { p.OwnerReferences = nil })
		case LabelPod:
			c.change(a.Pod.UID, func(p *corev1.Pod) { p.Labels = a.Pod.Labels })
		case CreateRevision, UpdateRevision:
			c.revisions = slices.DeleteFunc(c.revisions, func(r *appsv1.ControllerRevision) bool { return r.Name == a.Revision.Name })
			c.revisions = append(c.revisions, a.Revision.DeepCopy())
		case AdoptRevision:
			for i, r := range c.revisions {
				if r.Name == a.Revision.Name {
					r = r.DeepCopy()
					r.OwnerReferences = owner(c.ds)
					c.revisions[i] = r
				}
			}
		case ReleaseRevision:
			for i, r := range c.revisions {
				if r.Name == a.Revision.Name {
					r = r.DeepCopy()
					r.OwnerReferences = nil
					c.revisions[i] = r
				}
			}
		case DeleteRevision:
			c.revisions = slices.DeleteFunc(c.revisions, func(r *appsv1.ControllerRevision) bool { return r.Name == a.Revision.Name })
		}
	}
	c.ds = c.ds.DeepCopy()
	c.ds.Status, c.places = p.Status, p.Places
}

// change replaces a pod by a changed copy, so that plans hold no shared state.
func (c *cluster) change(uid types.UID, f func(*corev1.Pod)) {
	for i, p := range c.pods {
		if p.UID == uid {
			p = p.DeepCopy()
			f(p)
			c.pods[i] = p
		}
	}
}

// kubelets end what terminates, bind what waits and make good images ready. A
// pod on a node that is down moves no further.
func (c *cluster) kubelets() {
	c.pods = slices.DeleteFunc(c.pods, func(p *corev1.Pod) bool { return p.DeletionTimestamp != nil && !c.down(target(p)) })
	for _, p := range c.pods {
		if c.down(target(p)) || ended(p) || noRoom(p) {
			continue
		}
		c.change(p.UID, func(p *corev1.Pod) {
			p.Spec.NodeName, p.Status.Phase = target(p), corev1.PodRunning
			ok := corev1.ConditionTrue
			if strings.Contains(p.Spec.Containers[0].Image, "bad") {
				ok = corev1.ConditionFalse
			}
			if r := condition(p, corev1.PodReady); r == nil || r.Status != ok {
				p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: ok, LastTransitionTime: metav1.NewTime(c.now)}}
			}
		})
	}
}

// noRoom says that the scheduler has said no; here it does not ask itself again.
func noRoom(p *corev1.Pod) bool {
	c := condition(p, corev1.PodScheduled)
	return p.Spec.NodeName == "" && c != nil && c.Status == corev1.ConditionFalse
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
// nothing moves, and returns the largest number of unavailable nodes on the way.
func (c *cluster) settle(limit int) (steps int, worst int32) {
	quiet := 0
	for steps = 0; steps < limit && quiet < 40; steps++ {
		p := c.decide()
		c.apply(p)
		worst = max(worst, p.Status.NumberUnavailable)
		quiet++
		if len(p.Actions) > 0 {
			quiet = 0
		}
		c.kubelets()
		c.now = c.now.Add(time.Second)
	}
	return steps, worst
}
