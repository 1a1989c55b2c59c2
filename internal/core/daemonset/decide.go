package daemonset

import (
	"cmp"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rollcall-dev/rollcall/internal/core/fit"
	"github.com/rollcall-dev/rollcall/internal/core/rollout"
)

// Decide makes the plan for one DaemonSet.
func Decide(in Input) Plan {
	ds := in.DaemonSet
	plan := Plan{Status: *ds.Status.DeepCopy(), Places: slices.Clone(in.Places)}
	if ds.DeletionTimestamp != nil {
		leave(in, &plan)
		return plan
	}
	selector, warning := readSelector(ds)
	if plan.Warning = warning; warning != nil {
		plan.Status.Conditions = stalled(plan.Status.Conditions, *warning, in.Now)
		return plan
	}
	d := &decision{in: in, plan: &plan, selector: selector, removed: map[types.UID]bool{}, taken: map[string]bool{}}
	d.settings, plan.Wrong = readSettings(ds.Annotations, in.Defaults)
	d.claimPods()
	if refusal := d.history(); refusal != nil {
		status := *ds.Status.DeepCopy()
		status.Conditions = stalled(status.Conditions, *refusal, in.Now)
		return Plan{Status: status, Places: slices.Clone(in.Places), Warning: refusal}
	}
	d.survey()
	d.maxUnavailable, d.maxSurge = rollout.Budget(ds.Spec.UpdateStrategy, d.desired)
	d.surges = rollout.Surges(ds.Spec.UpdateStrategy)
	d.manage()
	d.update()
	d.down = d.unavailable()
	d.roll()
	d.progress()
	d.cleanHistory()
	d.status()
	d.keepPlaces()
	plan.Hash = d.hash
	slices.SortStableFunc(plan.Actions, func(a, b Action) int { return cmp.Compare(slices.Index(verbs, a.Verb), slices.Index(verbs, b.Verb)) })
	return plan
}

// readSelector refuses a selector that would take in every pod, or never the ones
// that are made for it.
func readSelector(ds *appsv1.DaemonSet) (labels.Selector, *fit.Reason) {
	selector, err := metav1.LabelSelectorAsSelector(ds.Spec.Selector)
	switch {
	case err != nil:
		return nil, &fit.Reason{Code: fit.SelectorInvalid, Message: "the selector cannot be read: " + err.Error()}
	case selector.Empty():
		return nil, &fit.Reason{Code: fit.SelectingAll, Message: "This daemon set is selecting all pods. A non-empty selector is required."}
	case !selector.Matches(labels.Set(ds.Spec.Template.Labels)):
		return nil, &fit.Reason{Code: fit.SelectorInvalid, Message: "the selector does not match the template's labels"}
	default:
		return selector, nil
	}
}

// decision is the work on one plan. Its parts run in the order of Decide.
type decision struct {
	in       Input
	plan     *Plan
	selector labels.Selector

	hash    string                     // of the wanted revision
	current *appsv1.ControllerRevision // the wanted one; nil while only the plan has it
	old     []*appsv1.ControllerRevision
	pods    []*corev1.Pod // owned, adopted ones included

	spots                    []*spot // by node name
	desired                  int
	newestOld                time.Time // when the newest pod of another revision was created
	maxUnavailable, maxSurge int
	surges                   bool
	settings                 settings
	removed                  map[types.UID]bool // pods that this plan deletes
	taken                    map[string]bool    // names of pods that exist
	down, beside             int                // unavailable and surging nodes after this plan
	rolled                   []*spot            // those of the roll, in its order
	rollout                  Rollout
	rolloutConditions        []appsv1.DaemonSetCondition
	marked                   bool // the wanted revision is marked as stable by this plan
}

// spot is one node, or a name that pods are bound to, with the pods there.
type spot struct {
	name    string
	node    *corev1.Node // nil where pods point to a node that is not there
	verdict fit.Verdict
	pods    []*corev1.Pod // bound first, then oldest, then by name
	place   Place
	waits   time.Time // end of the backoff of a pod that ended
	created bool      // this plan makes a pod there
}

func (d *decision) act(verb Verb, s *spot, pod *corev1.Pod, code fit.Code, message string) {
	node := ""
	if s != nil {
		node = s.name
	}
	d.plan.Actions = append(d.plan.Actions, Action{Verb: verb, Node: node, Pod: pod, Reason: fit.Reason{Code: code, Object: "pod/" + pod.Name, Message: message}})
}

// claimPods keeps what the DaemonSet owns and selects, releases what it owns and
// no longer selects, adopts what it selects and nobody owns.
func (d *decision) claimPods() {
	pods := slices.Clone(d.in.Pods)
	slices.SortFunc(pods, comparePods)
	for _, p := range pods {
		d.taken[p.Name] = true
		matches := d.selector.Matches(labels.Set(p.Labels))
		switch ref := metav1.GetControllerOf(p); {
		case ref != nil && ref.UID != d.in.DaemonSet.UID:
		case ref != nil && matches:
			d.pods = append(d.pods, p)
		case ref != nil:
			d.act(ReleasePod, nil, p, fit.SelectorLeft, "its labels no longer match the selector")
		case matches && p.DeletionTimestamp == nil:
			d.act(AdoptPod, nil, p, fit.SelectorMatch, "its labels match the selector and nobody owns it")
			d.pods = append(d.pods, p)
		}
	}
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
		s.node, s.verdict = n, fit.Eligible(&d.in.DaemonSet.Spec.Template, n)
		if s.verdict.ShouldRun {
			d.desired++
		}
	}
	for _, p := range d.pods {
		if p.Labels[hashLabel] != "" && !d.updated(p) && p.CreationTimestamp.After(d.newestOld) { // an orphan of no revision tells nothing
			d.newestOld = p.CreationTimestamp.Time
		}
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
		s.seePods(d.in.Now)
	}
}

// seePods notes the youngest pod of the place and drops those that are both
// ending and ended: only their object is left. A younger one that was there before
// counts on, so that the next pod keeps its name when only an object goes. A
// failure that lies in the future comes from a clock that was set back.
func (s *spot) seePods(now time.Time) {
	for _, p := range s.pods {
		if last := &s.place; cmp.Or(last.LastCreated.Compare(p.CreationTimestamp.Time), cmp.Compare(last.LastPod, p.UID)) < 0 {
			last.LastPod, last.LastCreated, last.Salt, last.Refused = p.UID, p.CreationTimestamp.Time, 0, ""
		}
	}
	if s.place.LastFailure.After(now) {
		s.place.LastFailure = now
	}
	s.pods = slices.DeleteFunc(s.pods, func(p *corev1.Pod) bool { return p.DeletionTimestamp != nil && ended(p) })
}

// keepPlaces hands back what is worth remembering.
func (d *decision) keepPlaces() {
	places := make([]Place, 0, len(d.spots))
	for _, s := range d.spots {
		if p := s.place; p != (Place{Node: p.Node}) {
			places = append(places, p)
		}
	}
	d.plan.Places = places
}
