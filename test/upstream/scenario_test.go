package upstream

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// scenario brings both worlds, of three nodes, to where one difference shows.
type scenario struct {
	does               func(*pair) error
	sees               func(*world) string
	upstream, rollcall string       // what is seen
	heals              func(*world) // ends what keeps the worlds apart
}

// TestEachDifferenceShows runs the scenario of each row: both controllers do what
// the row says of them, and once all is settled the worlds differ by that row alone,
// or not at all.
func TestEachDifferenceShows(t *testing.T) {
	for _, a := range table {
		if a.scenario == nil {
			continue
		}
		t.Run(a.id, func(t *testing.T) {
			if err := together(t, 3, func(p *pair) error { return a.show(p) }); err != nil {
				t.Fatal(err)
			}
		})
	}
}

func (a accepted) show(p *pair) error {
	s := a.scenario
	if err := s.does(p); err != nil {
		return p.report(a.id, err)
	}
	if u, r := s.sees(p.upstream), s.sees(p.rollcall); u != s.upstream || r != s.rollcall {
		return p.report(a.id, fmt.Errorf("upstream shows %q, Rollcall %q; the table says %q and %q", u, r, s.upstream, s.rollcall))
	}
	if s.heals != nil {
		p.each(s.heals)
	}
	met, err := p.compare(a.id)
	if err != nil {
		return err
	}
	var want []string
	if a.explain != nil && a.id != "conditions" {
		want = []string{a.id}
	}
	if !slices.Equal(met, want) {
		return p.report(a.id, fmt.Errorf("it is explained by %s", met))
	}
	return nil
}

// then is one thing that happens to both worlds, and all that follows from it.
func then(dos ...func(*world)) func(*pair) error {
	return func(p *pair) error {
		for _, do := range dos {
			p.before = p.upstream.state()
			p.each(do)
			if err := p.settle(); err != nil {
				return err
			}
		}
		return nil
	}
}

// at says what follows at once, before anything moves on.
func at(dos ...func(*world)) func(*pair) error {
	return func(p *pair) error {
		for _, do := range dos {
			p.each(do)
			synctest.Wait()
		}
		return nil
	}
}

// both runs one after the other.
func both(first, second func(*pair) error) func(*pair) error {
	return func(p *pair) error {
		if err := first(p); err != nil {
			return err
		}
		return second(p)
	}
}

func image(v string) func(*world) { return func(w *world) { w.setImage(v) } }

func update(kind string) func(*world) {
	return func(w *world) {
		w.changeDaemonSet(func(ds *appsv1.DaemonSet) { ds.Spec.UpdateStrategy = strategy(kind) })
	}
}

func annotate(key, value string) func(*world) {
	return func(w *world) {
		w.changeDaemonSet(func(ds *appsv1.DaemonSet) { metav1.SetMetaDataAnnotation(&ds.ObjectMeta, key, value) })
	}
}

func taint(node string) func(*world) {
	return func(w *world) { w.taint(node, corev1.TaintEffectNoSchedule) }
}

// on lists the pods of a node.
func (w *world) on(node string) []*corev1.Pod {
	return slices.DeleteFunc(w.pods(), func(p *corev1.Pod) bool { return target(p) != node })
}

// deletePod ends the pod of a node, which OnDelete replaces by the newest template.
func deletePod(node string) func(*world) {
	return func(w *world) {
		for _, p := range w.on(node) {
			if err := w.api.delete(pods, p.Namespace, p.Name, nil); err != nil {
				panic(err)
			}
		}
	}
}

func unready(w *world) {
	for _, p := range w.pods() {
		w.changePod(p, func(p *corev1.Pod) { setReady(p, false) })
	}
}

func silent(node string) func(*world) { return reporting(node, corev1.ConditionUnknown) }

func reporting(node string, status corev1.ConditionStatus) func(*world) {
	return func(w *world) {
		w.changeNode(node, func(n *corev1.Node) {
			n.Status.Conditions[0].Status, n.Status.Conditions[0].LastTransitionTime = status, now()
		})
		for _, p := range w.on(node) {
			w.changePod(p, func(p *corev1.Pod) { setReady(p, status == corev1.ConditionTrue) })
		}
	}
}

// images are those of the pods of a node.
func images(node string) func(*world) string {
	return func(w *world) string {
		var out []string
		for _, p := range w.on(node) {
			out = append(out, p.Spec.Containers[0].Image)
		}
		return strings.Join(out, " ")
	}
}

func removeNode(node string) func(*world) {
	return func(w *world) { w.api.remove(nodes, newNode(node)) }
}

func desired(w *world) string {
	return fmt.Sprint(w.daemonSet().Status.DesiredNumberScheduled, " desired")
}
