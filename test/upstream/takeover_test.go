package upstream

import (
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"
)

// TestRandomUpdatesOutliveAHandover stops one controller somewhere in an update
// after a random history, and lets the other one end it.
func TestRandomUpdatesOutliveAHandover(t *testing.T) {
	var all, under atomic.Int64
	rapid.Check(t, func(rt *rapid.T) {
		o := drawTakeover(rt)
		err := bubble(t, func() error {
			w := newWorld(o.nodes)
			defer func() { w.stop() }()
			midst, err := o.run(w)
			if all.Add(1); midst {
				under.Add(1)
			}
			if err != nil {
				return fmt.Errorf("%s: %w\n%s%s", o, err, w.state(), w.journal())
			}
			return nil
		})
		if err != nil {
			rt.Fatalf("%v", err)
		}
	})
	t.Logf("%d handovers, %d with an update under way", all.Load(), under.Load())
}

// takeover is drawn as a whole, as a history is.
type takeover struct {
	history
	back     bool // from the engine to upstream's controller
	strategy string
	ready    int32
	ailing   bool
	image    string
	after    int // seconds
}

func drawTakeover(t *rapid.T) takeover {
	o := takeover{
		back:     rapid.Bool().Draw(t, "back"),
		strategy: rapid.SampledFrom([]string{"unavailable 1", "unavailable 2", "unavailable 50%", "surge 1", "surge 2", "surge 100%", "OnDelete"}).Draw(t, "strategy"),
		ready:    rapid.SampledFrom([]int32{0, 1, 12}).Draw(t, "ready"),
		ailing:   rapid.Bool().Draw(t, "ailing"),
		image:    rapid.SampledFrom([]string{"v1", "v2", "v7", "bad1", "bad7"}).Draw(t, "image"),
		after:    rapid.IntRange(0, 30).Draw(t, "after"),
	}
	o.nodes = rapid.IntRange(2, 5).Draw(t, "nodes")
	for range rapid.IntRange(0, 5).Draw(t, "steps") {
		o.steps = append(o.steps, drawEvent(t))
	}
	return o
}

func (o takeover) String() string {
	return fmt.Sprintf("%s; back: %v, strategy %s, ready %d, ailing: %v, image %s, handed over after %d s", o.history, o.back, o.strategy, o.ready, o.ailing, o.image, o.after)
}

// run says whether the update was under way when the other controller came.
func (o takeover) run(w *world) (midst bool, err error) {
	first, second := upstreams, rollcalls
	if o.back {
		first, second = second, first
	}
	w.drains = o.back
	if err := w.reign(first); err != nil {
		return false, err
	}
	if err := o.prepare(w); err != nil {
		return false, err
	}
	w.setImage(o.image)
	for range o.after {
		tick(time.Second, w)
	}
	midst = slices.ContainsFunc(w.state().pods, func(p podState) bool { return !w.state().updated(p) })
	err = w.takeOver(second, func() error {
		if o.back {
			w.urge()
		}
		return settle(w)
	})
	if err == nil && w.rolls() {
		err = o.over(w)
	}
	return midst, err
}

// prepare ends with a fleet at rest, whose history is short of its limit and whose
// keeper has seen all of it: upstream's is woken for that.
func (o takeover) prepare(w *world) error {
	for _, e := range o.steps {
		for _, do := range e.do {
			do(w)
			tick(time.Second, w)
			tick(time.Second, w)
		}
		if err := settle(w); err != nil {
			return err
		}
	}
	w.changeDaemonSet(func(ds *appsv1.DaemonSet) {
		ds.Spec.UpdateStrategy, ds.Spec.MinReadySeconds, ds.Spec.RevisionHistoryLimit = strategy(o.strategy), o.ready, ptr.To[int32](10)
	})
	if o.ailing {
		sicken("n1")(w)
	}
	w.nudge()
	return settle(w)
}

// urge wakes upstream's controller again and again: just started, it does not look
// again when a surging pod becomes available.
func (w *world) urge() {
	for range 120 {
		w.nudge()
		tick(time.Second, w)
	}
}

// over says what an update to a good image has left undone. A DaemonSet that was made
// again may call an orphan new by its generation; both leave such a pod, and a bad
// one holds the update.
func (o takeover) over(w *world) error {
	s := w.state()
	holds := func(p podState) bool { return s.updated(p) && p.hash != s.hash && !p.ready }
	if strings.HasPrefix(o.image, "bad") || slices.ContainsFunc(s.pods, holds) {
		return nil
	}
	for _, n := range w.nodes() {
		here := filter(s.pods, func(p podState) bool { return p.node == n.Name })
		if should, _ := w.wants(n); should && (len(here) != 1 || !s.updated(here[0])) {
			return fmt.Errorf("the update has not reached %s", n.Name)
		}
	}
	return nil
}
