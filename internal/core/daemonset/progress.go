package daemonset

import (
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rollcall-dev/rollcall/internal/core/fit"
)

// Rollout is how far the wanted revision has come. It is about the template alone:
// nodes that join, leave, or are tainted or drained later do not begin one anew.
// It is carried from plan to plan in the message of the Progressing condition.
type Rollout struct {
	Revision     string    // hash of the wanted revision
	Began        time.Time // when the revision became the wanted one
	Done         int       // the most nodes that ever had an available pod of it
	LastProgress time.Time // when Done last grew, or the rollout began or went on
	Complete     bool      // once every node had one; it stays so
	Waits        []string  // the nodes it waits for, and why: `n4 (CrashLoop)`
}

// RolloutComplete is the reason of the Progressing condition once every node had an
// available pod of the wanted revision.
const RolloutComplete = "RolloutComplete"

// The other reasons of the Progressing condition.
const (
	rolloutInProgress = "RolloutInProgress"
	rolloutOnDelete   = "OnDelete" // old pods stay until somebody deletes them
	rolloutHeld       = string(fit.SettingInvalid)
	deadlineExceeded  = string(fit.ProgressDeadlineExceeded)
)

// carried is how the message of the Progressing condition ends.
const carried = "[revision %s since %s, %d done, last progress %s]"

func (r Rollout) carry() string {
	return fmt.Sprintf(carried, r.Revision, r.Began.UTC().Format(time.RFC3339), r.Done, r.LastProgress.UTC().Format(time.RFC3339))
}

// readRollout is what the last plan has left in the conditions, and its reason. A
// message that cannot be read begins a rollout, which costs no more than time.
func readRollout(conditions []appsv1.DaemonSetCondition) (r Rollout, reason string) {
	i := slices.IndexFunc(conditions, func(c appsv1.DaemonSetCondition) bool { return c.Type == Progressing })
	if i < 0 {
		return Rollout{}, ""
	}
	c := conditions[i]
	at := strings.LastIndex(c.Message, "[")
	if at < 0 {
		return Rollout{}, ""
	}
	var began, last string
	fields := strings.NewReplacer(",", " ,", "]", " ]").Replace(c.Message[at:])
	if _, err := fmt.Sscanf(fields, strings.NewReplacer(",", " ,", "]", " ]").Replace(carried), &r.Revision, &began, &r.Done, &last); err != nil {
		return Rollout{}, ""
	}
	var err1, err2 error
	r.Began, err1 = time.Parse(time.RFC3339, began)
	r.LastProgress, err2 = time.Parse(time.RFC3339, last)
	if err1 != nil || err2 != nil {
		return Rollout{}, ""
	}
	r.Complete = c.Reason == RolloutComplete
	return r, c.Reason
}

// progress carries the rollout on by what stands now.
func (d *decision) progress() {
	now := d.in.Now.Truncate(time.Second)
	r, reason := readRollout(d.in.DaemonSet.Status.Conditions)
	if r.Revision != d.hash || r.LastProgress.After(now) { // a clock was set back
		r = Rollout{Revision: d.hash, Began: now, LastProgress: now}
		reason = ""
	}
	if reason == rolloutOnDelete || reason == rolloutHeld {
		r.LastProgress = now // what held it is over, or the next lines hold it again
	}
	done, outdated := 0, 0
	for i, p := range d.plan.Roll {
		s := d.rolled[i]
		if !d.concerned(s, r.Began) {
			continue
		}
		switch {
		case d.turned(s):
			done++
		case d.onDelete() && p.State == Present:
			outdated++
		default:
			r.Waits = append(r.Waits, p.Node+" ("+string(p.cause())+")")
		}
	}
	if done > r.Done {
		r.Done, r.LastProgress = done, now
	}
	d.rollout = r
	d.conclude(reason, outdated)
}

// concerned says whether the rollout waits for a node: it is eligible, was there
// when the rollout began, and was not down before its pod changed.
func (d *decision) concerned(s *spot, began time.Time) bool {
	return s.verdict.ShouldRun && !s.node.CreationTimestamp.After(began) && (d.nodeIsReady(s) || d.brokeNode(s))
}

// turned says that the node has an available pod of the wanted revision alone.
func (d *decision) turned(s *spot) bool {
	running := d.running(s)
	return len(running) == 1 && d.updated(running[0]) && d.available(running[0])
}

// everywhere says that the wanted revision runs on every node, and on one at least.
func (d *decision) everywhere() bool {
	n := 0
	for _, s := range d.rolled {
		if !s.verdict.ShouldRun || !d.nodeIsReady(s) {
			continue
		}
		if n++; !d.turned(s) {
			return false
		}
	}
	return n > 0
}

func (d *decision) onDelete() bool {
	return d.in.DaemonSet.Spec.UpdateStrategy.Type == appsv1.OnDeleteDaemonSetStrategyType
}

// conclude gives the rollout its reason, and the two conditions that follow from it.
func (d *decision) conclude(before string, outdated int) {
	r := &d.rollout
	c := appsv1.DaemonSetCondition{Type: Progressing, Status: corev1.ConditionTrue, Reason: rolloutInProgress}
	var stall fit.Reason
	switch blocked := d.blocked(); {
	case r.Complete:
		c.Reason, c.Message = RolloutComplete, "every node had an available pod of the wanted revision"
	case len(d.plan.Wrong) > 0:
		c.Reason, stall = rolloutHeld, d.plan.Wrong[0]
		c.Message = "the rollout is held: " + stall.Message
	case len(r.Waits) == 0 && outdated > 0:
		c.Reason = rolloutOnDelete
		c.Message = fmt.Sprintf("%d nodes keep pods of older revisions until these are deleted: updateStrategy is OnDelete", outdated)
	case len(r.Waits) == 0:
		r.Complete, r.LastProgress = true, d.in.Now.Truncate(time.Second)
		c.Reason, c.Message = RolloutComplete, "every node had an available pod of the wanted revision"
	case len(blocked) > 0 && len(blocked) >= d.maxSurge:
		stall = fit.Reason{Code: fit.SurgeBlocked, Message: fmt.Sprintf("the new pod finds no room beside the old one on %s: set maxSurge to 0 and maxUnavailable to 1, or make room", some(blocked))}
		c.Message = stall.Message
	case d.settings.progressDeadline > 0 && d.reached(r.LastProgress.Add(d.settings.progressDeadline)):
		c.Status, c.Reason = corev1.ConditionFalse, deadlineExceeded
		c.Message = fmt.Sprintf("no progress for %s; waiting for %s", d.settings.progressDeadline, some(r.Waits))
		stall = fit.Reason{Code: fit.ProgressDeadlineExceeded, Message: c.Message}
	default:
		c.Message = "waiting for " + some(r.Waits)
	}
	if c.Reason == rolloutOnDelete || c.Reason == rolloutHeld {
		if c.Reason == before { // its clock stands; a message that changes with it would be written for ever
			old, _ := readRollout(d.in.DaemonSet.Status.Conditions)
			r.LastProgress = old.LastProgress
		}
	}
	if r.Complete && d.everywhere() {
		d.markStable()
	}
	c.Message += " " + r.carry()
	if d.settings.hash != "" {
		c.Message = "settings " + d.settings.hash + ": " + c.Message
	}
	d.plan.Rollout = *r
	d.rolloutConditions = []appsv1.DaemonSetCondition{c, reconciling(c, stall), stalledBy(stall)}
}

// blocked are the nodes where a new pod cannot be scheduled beside the old one.
func (d *decision) blocked() []string {
	var out []string
	if !d.surges {
		return nil
	}
	for _, s := range d.spots {
		if p := d.freshBeside(s); p != nil && d.unschedulable(p) {
			out = append(out, s.name)
		}
	}
	return out
}

// freshBeside is the new pod on a node that has an old one too.
func (d *decision) freshBeside(s *spot) *corev1.Pod {
	if !slices.ContainsFunc(d.running(s), func(p *corev1.Pod) bool { return !d.updated(p) }) {
		return nil
	}
	return d.fresh(s)
}

// unschedulable says that the scheduler has found no room for a while: a pod that
// is just going may still hold it at first.
func (d *decision) unschedulable(p *corev1.Pod) bool {
	c := condition(p, corev1.PodScheduled)
	return p.Spec.NodeName == "" && c != nil && c.Status == corev1.ConditionFalse && c.Reason == corev1.PodReasonUnschedulable &&
		d.reached(c.LastTransitionTime.Add(minBroken))
}

// named is how many nodes a message names.
const named = 3

// some is a list for people: its first members, and how many there are beside them.
func some(list []string) string {
	if len(list) <= named {
		return strings.Join(list, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(list[:named], ", "), len(list)-named)
}

// reconciling and stalled are what kstatus reads, and with it Flux and Helm: work
// on the template is under way, or cannot go on without somebody's help.
func reconciling(progressing appsv1.DaemonSetCondition, stall fit.Reason) appsv1.DaemonSetCondition {
	c := appsv1.DaemonSetCondition{Type: Reconciling, Status: corev1.ConditionFalse, Reason: progressing.Reason}
	if progressing.Reason == rolloutInProgress && stall.Code == "" {
		c.Status = corev1.ConditionTrue
	}
	return c
}

func stalledBy(why fit.Reason) appsv1.DaemonSetCondition {
	if why.Code == "" {
		return appsv1.DaemonSetCondition{Type: Stalled, Status: corev1.ConditionFalse, Reason: "NotStalled"}
	}
	message := why.Message
	if why.Remedy != "" {
		message += ": " + why.Remedy
	}
	return appsv1.DaemonSetCondition{Type: Stalled, Status: corev1.ConditionTrue, Reason: string(why.Code), Message: message}
}

// stalled sets the condition alone, for a DaemonSet on which no work is possible.
func stalled(conditions []appsv1.DaemonSetCondition, why fit.Reason, now time.Time) []appsv1.DaemonSetCondition {
	return setCondition(slices.Clone(conditions), stalledBy(why), metav1.NewTime(now.Truncate(time.Second)))
}

// telling leaves out of a plan's text what says that all is well.
func telling(c appsv1.DaemonSetCondition) bool {
	switch c.Type {
	case Available:
		return c.Status != corev1.ConditionTrue
	case Progressing:
		return c.Reason != RolloutComplete
	case Stalled:
		return c.Status == corev1.ConditionTrue
	case Reconciling:
		return c.Reason == string(fit.DaemonSetDeleted)
	default:
		return false
	}
}
