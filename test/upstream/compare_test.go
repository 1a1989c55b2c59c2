package upstream

import (
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
)

// goOn compares the worlds and, after a difference that is accepted, makes one the
// copy of the other: what came next would be its consequences. It says whether
// they are the same in the end.
func (p *pair) goOn(after string) (bool, error) {
	for _, align := range []func(*pair) error{func(*pair) error { return nil }, alignToUpstream, alignToRollcall} {
		if err := align(p); err != nil {
			return false, err
		}
		met, err := p.compare(after)
		if err != nil {
			return false, err
		}
		if len(met) == 0 {
			p.before = p.upstream.state()
			return true, nil
		}
	}
	return false, nil
}

// compare lets both worlds settle and returns the accepted differences; any other
// is an error. What goes away when upstream's DaemonSet is touched it only had not
// seen yet; Rollcall must not need that.
func (p *pair) compare(after string) ([]string, error) {
	if err := p.settle(); err != nil {
		return nil, p.report(after, err)
	}
	met, left := p.ends().explain()
	if len(left) > 0 {
		untouched := p.rollcall.state()
		p.each((*world).nudge)
		if err := p.settle(); err != nil {
			return nil, p.report(after, err)
		}
		if d := differences(untouched, p.rollcall.state()); len(d) > 0 {
			return nil, p.report(after, fmt.Errorf("Rollcall has not seen by itself:\n%s", strings.Join(d, "\n")))
		}
		if met, left = p.ends().explain(); len(left) == 0 {
			p.met["unseen-change"]++
		}
	}
	if len(left) > 0 {
		return nil, p.report(after, fmt.Errorf("besides %s:\n%s", met, strings.Join(left, "\n")))
	}
	met = slices.DeleteFunc(met, func(id string) bool { return id == "conditions" }) // both can go on as they are
	for _, id := range met {
		p.met[id]++
	}
	return met, nil
}

func (p *pair) report(after string, err error) error {
	return fmt.Errorf("after %s: %w\nupstream is\n%supstream wrote\n%srollcall is\n%srollcall wrote\n%s", after, err,
		p.upstream.state(), p.upstream.journal(), p.rollcall.state(), p.rollcall.journal())
}

// nudge changes what concerns no controller, but wakes it.
func (w *world) nudge() {
	if ds := w.daemonSet(); ds != nil {
		w.api.change(daemonSets, ds, func(o object) { o.SetLabels(map[string]string{"nudge": o.GetLabels()["nudge"] + "."}) })
	}
}

func alignToUpstream(p *pair) error { return p.align(p.upstream, p.rollcall) }

func alignToRollcall(p *pair) error {
	return p.align(p.rollcall, p.upstream)
}

func (p *pair) align(from, to *world) error {
	p.each(func(w *world) { w.stop() })
	to.api = from.api.copy()
	if ds := to.daemonSet(); ds != nil && to == p.upstream {
		to.api.change(daemonSets, ds, func(o object) { o.(*appsv1.DaemonSet).Status.Conditions = nil })
	}
	return p.start()
}

// swap lets each controller go on with the other's world.
func (p *pair) swap() error {
	worlds := []*world{p.upstream, p.rollcall}
	held := [][]string{p.upstream.holds(), p.rollcall.holds()}
	p.each((*world).forget)
	if err := p.upstream.start(rollcalls); err != nil {
		return err
	}
	if err := p.rollcall.start(upstreams); err != nil {
		return err
	}
	if err := p.settle(); err != nil {
		return p.report("a change of controllers", err)
	}
	for i, w := range worlds {
		if made := w.made(); len(made) > 0 {
			return p.report("a change of controllers", fmt.Errorf("it made or ended\n%s", strings.Join(made, "\n")))
		}
		if now := w.holds(); !slices.Equal(held[i], now) {
			return p.report("a change of controllers", fmt.Errorf("it made of\n%s\nthis:\n%s", strings.Join(held[i], "\n"), strings.Join(now, "\n")))
		}
	}
	return nil
}

// forget clears the journal.
func (w *world) forget() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.writes = nil
}

// made lists the pods and revisions that the controllers made or ended.
func (w *world) made() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var out []string
	for _, l := range w.writes {
		if l.err == nil && (l.verb == "create" || l.verb == "delete") {
			out = append(out, l.String())
		}
	}
	return out
}
