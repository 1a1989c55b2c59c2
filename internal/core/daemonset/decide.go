package daemonset

import (
	"cmp"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/rollcall-dev/rollcall/internal/core/fit"
	"github.com/rollcall-dev/rollcall/internal/core/rollout"
)

// Decide makes the plan for one DaemonSet.
func Decide(in Input) Plan {
	ds := in.DaemonSet
	plan := Plan{Status: *ds.Status.DeepCopy(), Places: in.Places}
	if ds.DeletionTimestamp != nil {
		return plan
	}
	selector, err := metav1.LabelSelectorAsSelector(ds.Spec.Selector)
	if err != nil || selector.Empty() {
		plan.Warning = &fit.Reason{Code: fit.SelectingAll, Message: "This daemon set is selecting all pods. A non-empty selector is required."}
		return plan
	}
	d := &decision{in: in, plan: &plan, selector: selector, desired: 0}
	d.claimPods()
	if !d.history() {
		d.roll()
		d.status()
		return plan
	}
	d.survey()
	d.budget = rollout.BudgetOf(ds.Spec.UpdateStrategy, d.desired)
	d.manage()
	d.update()
	d.cleanHistory()
	d.roll()
	d.status()
	d.keepPlaces()
	return plan
}

// decision is the work on one plan. Its parts run in the order of Decide.
type decision struct {
	in       Input
	plan     *Plan
	selector labels.Selector
	hash     string // of the wanted revision
	current  *appsv1.ControllerRevision
	old      []*appsv1.ControllerRevision
	pods     []*corev1.Pod // owned, adopted ones included
	spots    []*spot       // by node name
	desired  int
	budget   rollout.Budget
}

// spot is one node, or a name that pods are bound to, with the pods there.
type spot struct {
	name    string
	node    *corev1.Node // nil where pods point to a node that is not there
	verdict fit.Verdict
	pods    []*corev1.Pod // bound first, then oldest, then by name
	place   Place
	waits   time.Time // end of the backoff after a failed pod
	acted   bool      // something is done here in this plan
}

func (d *decision) act(verb Verb, s *spot, pod *corev1.Pod, code fit.Code, message string) {
	node := ""
	if s != nil {
		node, s.acted = s.name, true
	}
	d.plan.Actions = append(d.plan.Actions, Action{Verb: verb, Node: node, Pod: pod, Reason: fit.Reason{Code: code, Message: message}})
}

func (d *decision) wake(t time.Time) {
	if d.plan.Wake.IsZero() || t.Before(d.plan.Wake) {
		d.plan.Wake = t
	}
}

// claimPods keeps what the DaemonSet owns and selects, releases what it owns and
// no longer selects, adopts what it selects and nobody owns.
func (d *decision) claimPods() {
	pods := slices.Clone(d.in.Pods)
	slices.SortFunc(pods, comparePods)
	for _, p := range pods {
		matches := d.selector.Matches(labels.Set(p.Labels))
		switch ref := metav1.GetControllerOf(p); {
		case ref != nil && ref.UID != d.in.DaemonSet.UID:
		case ref != nil && matches:
			d.pods = append(d.pods, p)
		case ref != nil && p.DeletionTimestamp == nil:
			d.act(ReleasePod, nil, p, fit.SelectorLeft, "its labels no longer match the selector")
		case ref == nil && matches && p.DeletionTimestamp == nil:
			d.act(AdoptPod, nil, p, fit.SelectorMatch, "its labels match the selector and nobody owns it")
			d.pods = append(d.pods, p)
		}
	}
}

// comparePods orders bound before unbound, then by age, then by name.
func comparePods(a, b *corev1.Pod) int {
	if (a.Spec.NodeName == "") != (b.Spec.NodeName == "") {
		if a.Spec.NodeName == "" {
			return 1
		}
		return -1
	}
	return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
}

// survey lays the pods onto the nodes and counts the desired ones.
func (d *decision) survey() {
	byName := map[string]*spot{}
	at := func(name string) *spot {
		s := byName[name]
		if s == nil {
			s = &spot{name: name, place: Place{Node: name}}
			byName[name] = s
			d.spots = append(d.spots, s)
		}
		return s
	}
	for _, n := range d.in.Nodes {
		s := at(n.Name)
		s.node, s.verdict = n, fit.Check(&d.in.DaemonSet.Spec.Template, n)
		if s.verdict.ShouldRun {
			d.desired++
		}
	}
	for _, p := range d.pods {
		if name := fit.TargetNode(p); name != "" {
			at(name).pods = append(at(name).pods, p)
		}
	}
	for _, p := range d.in.Places {
		if s := byName[p.Node]; s != nil {
			s.place = p
		}
	}
	slices.SortFunc(d.spots, func(a, b *spot) int { return cmp.Compare(a.name, b.name) })
	for _, s := range d.spots {
		s.seePods()
	}
}

// seePods notes the youngest pod of the place and drops those that are both
// ending and ended: only their object is left.
func (s *spot) seePods() {
	var youngest *corev1.Pod
	for _, p := range s.pods {
		if youngest == nil || youngest.CreationTimestamp.Before(&p.CreationTimestamp) {
			youngest = p
		}
	}
	if youngest != nil && youngest.UID != s.place.LastPod {
		s.place.LastPod, s.place.Salt = youngest.UID, 0
	}
	s.pods = slices.DeleteFunc(s.pods, func(p *corev1.Pod) bool { return p.DeletionTimestamp != nil && ended(p) })
}

func (d *decision) keepPlaces() {
	places := make([]Place, 0, len(d.spots))
	for _, s := range d.spots {
		if p := s.place; p != (Place{Node: p.Node}) {
			places = append(places, p)
		}
	}
	d.plan.Places = places
}
