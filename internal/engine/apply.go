package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/util/workqueue"

	"github.com/rollcall-dev/rollcall/internal/core/daemonset"
)

const (
	// parallel is how many writes of one pass are under way at once.
	parallel = 16
	// refusals is how many creates in a row may be refused before the pass leaves
	// the rest to the next one, which begins elsewhere: a quota is not asked a
	// thousand times, and one node's refusal holds back no other.
	refusals = 16
)

// apply carries out the plan in its order, the writes of one verb at a time, and the
// status last, also when something before it was refused.
func (e *Engine) apply(ctx context.Context, ds *appsv1.DaemonSet, plan daemonset.Plan, mem *memory) error {
	if plan.Warning != nil {
		e.recorder.Event(ds, corev1.EventTypeWarning, string(plan.Warning.Code), plan.Warning.Message)
	}
	var errs []error
	for rest := plan.Actions; len(rest) > 0; {
		verb := rest[0].Verb
		n := slices.IndexFunc(rest, func(a daemonset.Action) bool { return a.Verb != verb })
		if n < 0 {
			n = len(rest)
		}
		failed := e.applyAll(ctx, ds, verb, rest[:n], mem)
		errs, rest = append(errs, failed...), rest[n:]
		if len(failed) > 0 && reliedOn(verb) {
			return errors.Join(errs...)
		}
	}
	return errors.Join(append(errs, e.writeStatus(ctx, ds, plan.Status, mem))...)
}

// reliedOn says that what comes later in a plan cannot do without the verb's writes.
// What fails for one pod stays with it.
func reliedOn(v daemonset.Verb) bool {
	switch v {
	case daemonset.AdoptRevision, daemonset.ReleaseRevision, daemonset.CreateRevision, daemonset.UpdateRevision:
		return true
	default:
		return false
	}
}

// applyAll makes the writes of one verb and returns what failed.
func (e *Engine) applyAll(ctx context.Context, ds *appsv1.DaemonSet, v daemonset.Verb, actions []daemonset.Action, mem *memory) []error {
	switch v {
	case daemonset.BumpCollision:
		return nil // the status carries the new count
	case daemonset.CreatePod:
		return e.createPods(ctx, ds, actions, mem)
	case daemonset.DeletePod:
		return e.eachAction(ctx, actions, parallel, func(a daemonset.Action) error { return e.deletePod(ctx, ds, a, mem) })
	case daemonset.AdoptPod, daemonset.ReleasePod, daemonset.LabelPod, daemonset.UnblockPod:
		return e.eachAction(ctx, actions, 1, func(a daemonset.Action) error { return e.patchPod(ctx, ds, a, mem) })
	default:
		return e.eachAction(ctx, actions, 1, func(a daemonset.Action) error { return e.applyRevision(ctx, ds, a, mem) })
	}
}

// eachAction makes the writes, so many at once, and returns what failed.
func (e *Engine) eachAction(ctx context.Context, actions []daemonset.Action, atOnce int, do func(daemonset.Action) error) []error {
	errs := make([]error, len(actions))
	workqueue.ParallelizeUntil(ctx, atOnce, len(actions), func(i int) {
		errs[i] = do(actions[i])
		e.meters.wrote(string(actions[i].Verb), errs[i])
	})
	return slices.DeleteFunc(errs, func(err error) bool { return err == nil })
}

func (e *Engine) applyRevision(ctx context.Context, ds *appsv1.DaemonSet, a daemonset.Action, mem *memory) error {
	revs := e.client.AppsV1().ControllerRevisions(ds.Namespace)
	switch a.Verb {
	case daemonset.CreateRevision:
		r, err := revs.Create(ctx, a.Revision, metav1.CreateOptions{})
		if err != nil {
			return fmt.Errorf("create revision %s: %w", a.Revision.Name, err)
		}
		mem.wrote(revisions, r)
	case daemonset.UpdateRevision:
		r, err := revs.Update(ctx, a.Revision, metav1.UpdateOptions{})
		if err != nil {
			return fmt.Errorf("update revision %s: %w", a.Revision.Name, err)
		}
		mem.wrote(revisions, r)
	case daemonset.DeleteRevision:
		err := revs.Delete(ctx, a.Revision.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &a.Revision.UID}})
		if err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("delete revision %s: %w", a.Revision.Name, err)
		}
		mem.deleted(revisions, a.Revision)
	case daemonset.AdoptRevision, daemonset.ReleaseRevision:
		patch, err := e.ownerPatch(ctx, ds, a.Revision, a.Verb == daemonset.AdoptRevision)
		if err != nil {
			return err
		}
		r, err := revs.Patch(ctx, a.Revision.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("change the owner of revision %s: %w", a.Revision.Name, err)
		}
		mem.wrote(revisions, r)
	default:
		return fmt.Errorf("unknown action %q", a.Verb)
	}
	return nil
}

func (e *Engine) patchPod(ctx context.Context, ds *appsv1.DaemonSet, a daemonset.Action, mem *memory) error {
	var patch []byte
	var err error
	switch a.Verb {
	case daemonset.UnblockPod:
		patch, err = json.Marshal(map[string]any{"metadata": map[string]any{"uid": a.Pod.UID,
			"ownerReferences": []map[string]any{{"uid": ds.UID, "blockOwnerDeletion": false}}}})
	case daemonset.LabelPod:
		patch, err = json.Marshal(map[string]any{"metadata": map[string]any{"uid": a.Pod.UID,
			"labels": map[string]string{appsv1.ControllerRevisionHashLabelKey: a.Pod.Labels[appsv1.ControllerRevisionHashLabelKey]}}})
	default:
		patch, err = e.ownerPatch(ctx, ds, a.Pod, a.Verb == daemonset.AdoptPod)
	}
	if err != nil {
		return err
	}
	p, err := e.client.CoreV1().Pods(a.Pod.Namespace).Patch(ctx, a.Pod.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("%s %s: %w", a.Verb, a.Pod.Name, err)
	}
	mem.wrote(pods, p)
	return nil
}

// ownerPatch adopts or releases an object. Before adopting, the DaemonSet is
// looked at live: one that is gone or going must not take in pods.
func (e *Engine) ownerPatch(ctx context.Context, ds *appsv1.DaemonSet, o metav1.Object, adopt bool) ([]byte, error) {
	if !adopt {
		return json.Marshal(map[string]any{"metadata": map[string]any{"uid": o.GetUID(),
			"ownerReferences": []map[string]any{{"$patch": "delete", "uid": ds.UID}}}})
	}
	live, err := e.client.AppsV1().DaemonSets(ds.Namespace).Get(ctx, ds.Name, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("look at %s/%s before adopting %s: %w", ds.Namespace, ds.Name, o.GetName(), err)
	}
	if live.UID != ds.UID || live.DeletionTimestamp != nil {
		return nil, fmt.Errorf("adopt %s: DaemonSet %s/%s is gone or being deleted", o.GetName(), ds.Namespace, ds.Name)
	}
	return json.Marshal(map[string]any{"metadata": map[string]any{"uid": o.GetUID(),
		"ownerReferences": []metav1.OwnerReference{*metav1.NewControllerRef(ds, appsv1.SchemeGroupVersion.WithKind("DaemonSet"))}}})
}

func (e *Engine) deletePod(ctx context.Context, ds *appsv1.DaemonSet, a daemonset.Action, mem *memory) error {
	if event := podEvent(a); event != nil {
		e.recorder.Event(ds, event.kind, event.reason, event.message)
	}
	err := e.client.CoreV1().Pods(a.Pod.Namespace).Delete(ctx, a.Pod.Name,
		metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &a.Pod.UID}})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		if mayHaveBeenDone(err) { // the next pass must not take down another in its stead
			mem.deleted(pods, a.Pod)
		}
		e.recorder.Eventf(ds, corev1.EventTypeWarning, "FailedDelete", "Error deleting: %v", err)
		return fmt.Errorf("delete pod %s: %w", a.Pod.Name, err)
	}
	mem.deleted(pods, a.Pod)
	if err == nil {
		e.recorder.Eventf(ds, corev1.EventTypeNormal, "SuccessfulDelete", "Deleted pod: %s", a.Pod.Name)
	}
	return nil
}

type event struct{ kind, reason, message string }

// podEvent is the event that goes before the deletion of a pod that has ended.
func podEvent(a daemonset.Action) *event {
	where := fmt.Sprintf("%s/%s on node %s", a.Pod.Namespace, a.Pod.Name, a.Node)
	switch a.Pod.Status.Phase {
	case corev1.PodFailed:
		return &event{corev1.EventTypeWarning, "FailedDaemonPod", "Found failed daemon pod " + where + ", will try to kill it"}
	case corev1.PodSucceeded:
		return &event{corev1.EventTypeNormal, "SucceededDaemonPod", "Found succeeded daemon pod " + where + ", will try to delete it"}
	default:
		return nil
	}
}

// createPods creates in growing batches, beginning at another node each time.
func (e *Engine) createPods(ctx context.Context, ds *appsv1.DaemonSet, actions []daemonset.Action, mem *memory) []error {
	if len(actions) == 0 {
		return nil
	}
	first := mem.nextTurn() % len(actions)
	actions = append(actions[first:len(actions):len(actions)], actions[:first]...)
	var all []error
	refused := 0
	for size := 1; len(actions) > 0; size = min(2*size, 250) {
		n := min(size, len(actions))
		failed := e.eachAction(ctx, actions[:n], parallel, func(a daemonset.Action) error { return e.createPod(ctx, ds, a, mem) })
		if all = append(all, failed...); len(failed) == n {
			refused += n
		} else {
			refused = 0
		}
		if actions = actions[n:]; len(actions) > 0 && refused >= refusals {
			return append(all, fmt.Errorf("%d further creates were left to the next pass after %d refusals in a row", len(actions), refused))
		}
	}
	return all
}

func (e *Engine) createPod(ctx context.Context, ds *appsv1.DaemonSet, a daemonset.Action, mem *memory) error {
	p, err := e.client.CoreV1().Pods(ds.Namespace).Create(ctx, a.Pod, metav1.CreateOptions{})
	switch {
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return nil
	case apierrors.IsAlreadyExists(err):
		return e.nameTaken(ctx, ds, a, mem)
	case err != nil:
		if mayHaveBeenDone(err) {
			mem.mayExist(pods, a.Pod)
		}
		e.recorder.Eventf(ds, corev1.EventTypeWarning, "FailedCreate", "Error creating: %v", err)
		mem.refused(a.Node, refusal(err))
		return fmt.Errorf("create a pod for node %s: %w", a.Node, err)
	}
	mem.wrote(pods, p)
	e.recorder.Eventf(ds, corev1.EventTypeNormal, "SuccessfulCreate", "Created pod: %s", p.Name)
	return nil
}

// nameTaken looks at the pod that has the name already. It is the wanted one where an
// earlier create's answer was lost, and one to adopt where nobody controls it: then
// the caches only have to show it. Any other makes the next pass take another name.
func (e *Engine) nameTaken(ctx context.Context, ds *appsv1.DaemonSet, a daemonset.Action, mem *memory) error {
	p, err := e.client.CoreV1().Pods(ds.Namespace).Get(ctx, a.Pod.Name, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("look at pod %s, whose name is taken: %w", a.Pod.Name, err)
	}
	ours := metav1.IsControlledBy(p, ds) || metav1.GetControllerOf(p) == nil && selects(ds, p.Labels)
	if !ours || p.DeletionTimestamp != nil {
		mem.salt(a.Node)
		return fmt.Errorf("create pod %s: the name belongs to another; trying the next one", a.Pod.Name)
	}
	mem.wrote(pods, p)
	return nil
}

// mayHaveBeenDone says that the write may have happened although it failed: its
// answer was lost, or the server ran out of time.
func mayHaveBeenDone(err error) bool {
	if status := apierrors.APIStatus(nil); errors.As(err, &status) {
		return apierrors.IsTimeout(err) || apierrors.IsServerTimeout(err) || apierrors.IsUnexpectedServerError(err)
	}
	return !utilnet.IsConnectionRefused(err)
}

// refusal is an API error without the pod's name, so that one cause reads alike on
// every node.
func refusal(err error) string {
	_, why, named := strings.Cut(err.Error(), " is forbidden: ")
	if !named {
		return err.Error()
	}
	return why
}

func (e *Engine) writeStatus(ctx context.Context, ds *appsv1.DaemonSet, status appsv1.DaemonSetStatus, mem *memory) error {
	if equality.Semantic.DeepEqual(ds.Status, status) {
		return nil
	}
	next := ds.DeepCopy()
	next.Status = status
	written, err := e.client.AppsV1().DaemonSets(ds.Namespace).UpdateStatus(ctx, next, metav1.UpdateOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	e.meters.wrote("UpdateStatus", err)
	if err != nil {
		return fmt.Errorf("write the status: %w", err)
	}
	mem.wrote(daemonSets, written)
	for _, n := range news(ds.Status.Conditions, status.Conditions) {
		e.recorder.Event(ds, n.kind, n.reason, n.message)
	}
	return nil
}

// news are the events about the DaemonSet as a whole: one when a rollout stalls, and
// one when it is complete.
func news(before, now []appsv1.DaemonSetCondition) []event {
	var out []event
	if c, was := find(now, daemonset.Stalled), find(before, daemonset.Stalled); c.Status == corev1.ConditionTrue && (was.Status != c.Status || was.Reason != c.Reason) {
		out = append(out, event{corev1.EventTypeWarning, c.Reason, c.Message})
	}
	if c, was := find(now, daemonset.Progressing), find(before, daemonset.Progressing); c.Reason == daemonset.RolloutComplete && was.Reason != "" && was.Reason != c.Reason {
		out = append(out, event{corev1.EventTypeNormal, c.Reason, c.Message})
	}
	return out
}

func find(list []appsv1.DaemonSetCondition, t appsv1.DaemonSetConditionType) appsv1.DaemonSetCondition {
	for _, c := range list {
		if c.Type == t {
			return c
		}
	}
	return appsv1.DaemonSetCondition{}
}
