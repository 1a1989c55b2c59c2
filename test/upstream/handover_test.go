package upstream

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// TestAHandoverReplacesNothing lets upstream's controller bring up a DaemonSet, the
// engine take over, and upstream's take it back: at rest, in the midst of an update,
// and where one stands still. Nobody makes again what the other has made.
func TestAHandoverReplacesNothing(t *testing.T) {
	for _, kind := range []string{"unavailable 1", "unavailable 50%", "surge 1", "surge 100%", "OnDelete"} {
		t.Run(kind, func(t *testing.T) {
			err := bubble(t, func() error {
				w := newWorld(5)
				defer func() { w.stop() }()
				w.changeDaemonSet(func(ds *appsv1.DaemonSet) {
					ds.Spec.UpdateStrategy, ds.Spec.MinReadySeconds = strategy(kind), 12
				})
				if err := w.reign(upstreams); err != nil {
					return err
				}
				for _, stage := range []func(*world) error{atRest, ailing, inTheMidst, stalled, undone} {
					if err := stage(w); err != nil {
						return fmt.Errorf("%w\n%s%s", err, w.state(), w.journal())
					}
				}
				return nil
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
}

// reign starts a controller and lets the world settle.
func (w *world) reign(k keeper) error {
	if err := w.start(k); err != nil {
		return err
	}
	return settle(w)
}

// handOver lets each controller take over once from the other.
func (w *world) handOver(during string) error {
	for _, k := range []keeper{rollcalls, upstreams} {
		before := w.holds()
		w.forget()
		if err := w.reign(k); err != nil {
			return err
		}
		if after := w.holds(); !slices.Equal(before, after) {
			return fmt.Errorf("a handover %s made of\n%s\nthis:\n%s", during, strings.Join(before, "\n"), strings.Join(after, "\n"))
		}
		if made := w.made(); len(made) > 0 {
			return fmt.Errorf("a handover %s made or ended\n%s", during, strings.Join(made, "\n"))
		}
	}
	return nil
}

// holds lists the pods and revisions, each as one and no other.
func (w *world) holds() []string {
	var out []string
	for _, p := range w.pods() {
		out = append(out, fmt.Sprintf("%s %s %s", p.Name, p.UID, stateOf(p)))
	}
	return append(out, w.history()...)
}

// history lists the revisions, each as one and no other. What Rollcall notes on one
// for itself is not part of it.
func (w *world) history() []string {
	var out []string
	for _, r := range w.revisions() {
		out = append(out, fmt.Sprintf("%s %s %d %s %s %s", r.Name, r.UID, r.Revision, digest(r.Data.Raw), digest(r.Labels), digest(others(r.Annotations))))
	}
	return out
}

func atRest(w *world) error {
	if err := w.handOver("before any update"); err != nil {
		return err
	}
	for _, k := range []keeper{upstreams, rollcalls} {
		if err := w.reign(k); err != nil {
			return err
		}
		w.setImage(fmt.Sprintf("v%d", w.newest().Revision+1))
		if err := settle(w); err != nil {
			return err
		}
		if err := w.handOver("after an update"); err != nil {
			return err
		}
	}
	return nil
}

// ailing hands over while one pod is not ready, and while a node is silent.
func ailing(w *world) error {
	for _, trouble := range []func(*world){sicken("n2"), silent("n3")} {
		trouble(w)
		if err := settle(w); err != nil {
			return err
		}
		if err := w.handOver("while a pod is not ready"); err != nil {
			return err
		}
	}
	reporting("n3", corev1.ConditionTrue)(w)
	return settle(w) // n2 is ill still when the update comes
}

// sicken keeps the pod of a node from being ready, whatever its image.
func sicken(node string) func(*world) {
	return func(w *world) {
		for _, p := range w.on(node) {
			w.changePod(p, func(p *corev1.Pod) { metav1.SetMetaDataAnnotation(&p.ObjectMeta, ill, "x") })
		}
	}
}

// inTheMidst changes the controller thrice during one update, begun by each in turn.
func inTheMidst(w *world) error {
	for _, first := range []keeper{upstreams, rollcalls} {
		if err := w.reign(first); err != nil {
			return err
		}
		if err := w.changing(fmt.Sprintf("v%d", w.newest().Revision+1)); err != nil {
			return err
		}
	}
	return nil
}

// changing changes the controller thrice during the update to an image, which goes
// on and replaces every pod once. The last is the engine: upstream's, just started,
// does not look again when a surging pod becomes available.
func (w *world) changing(image string) error {
	before := map[types.UID]bool{}
	for _, p := range w.pods() {
		before[p.UID] = true
	}
	w.forget()
	w.setImage(image)
	tick(3*time.Second, w)
	for i, k := range []keeper{rollcalls, upstreams, rollcalls} {
		if !slices.ContainsFunc(w.pods(), func(p *corev1.Pod) bool { return before[p.UID] }) {
			return errors.New("the update was over before the handover")
		}
		err := w.takeOver(k, func() error {
			if i == 2 {
				return settle(w)
			}
			tick(3*time.Second, w)
			return nil
		})
		if err != nil {
			return err
		}
	}
	made := count(w.state().pods, func(p podState) bool { return p.image == image && p.ready })
	kept := slices.ContainsFunc(w.pods(), func(p *corev1.Pod) bool { return before[p.UID] })
	if w.rolls() && (kept || made != 5 || len(w.deleted()) != 5) {
		return fmt.Errorf("after three handovers in the midst of an update %d pods were deleted and %d are new, of 5", len(w.deleted()), made)
	}
	return nil
}

// rolls says that the DaemonSet's pods are replaced when its template changes.
func (w *world) rolls() bool {
	return w.daemonSet().Spec.UpdateStrategy.Type == appsv1.RollingUpdateDaemonSetStrategyType
}

// takeOver lets a controller go on with an update that is under way: the revisions
// stay as they are, pods that are new already are not touched, and no pod of another
// revision is made.
func (w *world) takeOver(k keeper, meanwhile func() error) error {
	synctest.Wait()
	if err := w.stop(); err != nil {
		return err
	}
	ds, history, from := w.daemonSet(), w.history(), len(w.writes)
	hash := w.hash(ds)
	known, old := map[types.UID]bool{}, map[string]bool{}
	for _, p := range w.pods() {
		known[p.UID] = true
		old[p.Name] = metav1.IsControlledBy(p, ds) && p.Labels[appsv1.ControllerRevisionHashLabelKey] != hash && w.rolls()
	}
	if err := w.start(k); err != nil {
		return err
	}
	if err := meanwhile(); err != nil {
		return err
	}
	if after := w.history(); !slices.Equal(history, after) {
		return fmt.Errorf("whoever took over made of the revisions\n%s\nthese:\n%s", strings.Join(history, "\n"), strings.Join(after, "\n"))
	}
	for _, p := range w.pods() {
		if !known[p.UID] && p.Labels[appsv1.ControllerRevisionHashLabelKey] != hash {
			return fmt.Errorf("whoever took over made %s, which is not of %s", p.Name, hash)
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, l := range w.writes[from:] {
		if l.err == nil && !goesOn(l, old) {
			return fmt.Errorf("whoever took over did this: %s", l)
		}
	}
	return nil
}

// goesOn says that a write belongs to an update that has its revision already and is
// to replace these pods. What is written to revisions is compared as a whole.
func goesOn(l write, old map[string]bool) bool {
	switch l.resource {
	case pods:
		return l.verb == "create" || l.verb == "delete" && old[l.name]
	case revisions:
		return l.verb != "create" && l.verb != "delete"
	}
	return true
}

// stalled hands over while an update stands still at a bad image.
func stalled(w *world) error {
	w.setImage("bad1")
	if err := settle(w); err != nil {
		return err
	}
	return w.handOver("while an update stands still")
}

// undone goes back, and hands over again.
func undone(w *world) error {
	w.setImage("v5")
	if err := settle(w); err != nil {
		return err
	}
	return w.handOver("after an undo")
}
