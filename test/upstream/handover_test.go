package upstream

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
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
				for _, stage := range []func(*world) error{atRest, inTheMidst, stalled, undone} {
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
		if err := w.reign(k); err != nil {
			return err
		}
		if after := w.holds(); !slices.Equal(before, after) {
			return fmt.Errorf("a handover %s made of\n%s\nthis:\n%s", during, strings.Join(before, "\n"), strings.Join(after, "\n"))
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
	for _, r := range w.revisions() {
		out = append(out, fmt.Sprintf("%s %s %d", r.Name, r.UID, r.Revision))
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

// inTheMidst changes the controller thrice during one update, which goes on and
// replaces every pod once. The last is the engine: upstream's, just started, does not
// look again when a surging pod becomes available.
func inTheMidst(w *world) error {
	before := map[types.UID]bool{}
	for _, p := range w.pods() {
		before[p.UID] = true
	}
	onDelete := w.daemonSet().Spec.UpdateStrategy.Type == appsv1.OnDeleteDaemonSetStrategyType
	w.forget()
	w.setImage("v9")
	for _, k := range []keeper{rollcalls, upstreams, rollcalls} {
		tick(2*time.Second, w)
		tick(time.Second, w)
		if !slices.ContainsFunc(w.pods(), func(p *corev1.Pod) bool { return before[p.UID] }) {
			return errors.New("the update was over before the handover")
		}
		if err := w.start(k); err != nil {
			return err
		}
	}
	if err := settle(w); err != nil {
		return err
	}
	made := count(w.state().pods, func(p podState) bool { return p.image == "v9" && p.ready })
	kept := slices.ContainsFunc(w.pods(), func(p *corev1.Pod) bool { return before[p.UID] })
	switch {
	case onDelete && len(w.deleted()) > 0:
		return errors.New("OnDelete has deleted pods")
	case !onDelete && (kept || made != 5 || len(w.deleted()) != 5):
		return fmt.Errorf("after three handovers in the midst of an update %d pods were deleted and %d are new, of 5", len(w.deleted()), made)
	}
	return nil
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
	w.setImage("v9")
	if err := settle(w); err != nil {
		return err
	}
	return w.handOver("after an undo")
}
