package upstream

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// TestRandomHistoriesEndAlike gives the same histories to upstream's controller
// and to Rollcall, and compares what they come to after each event. Where they do
// the same in the end, each goes on from the other's work and changes nothing.
func TestRandomHistoriesEndAlike(t *testing.T) {
	var sum tally
	t.Run("part", func(t *testing.T) {
		for part := range 4 {
			t.Run(fmt.Sprint(part), func(t *testing.T) {
				t.Parallel()
				rapid.Check(t, func(rt *rapid.T) {
					h := drawHistory(rt)
					if err := together(t, h.nodes, func(p *pair) error { return h.run(p, &sum) }); err != nil {
						rt.Fatalf("%v", err)
					}
				})
			})
		}
	})
	t.Log(&sum)
}

// history is drawn as a whole before anything happens: a bubble is no place for
// the panics with which rapid ends a draw.
type history struct {
	nodes int
	steps []event
}

func drawHistory(t *rapid.T) history {
	h := history{nodes: rapid.IntRange(1, 5).Draw(t, "nodes")}
	for range rapid.IntRange(1, 12).Draw(t, "steps") {
		h.steps = append(h.steps, drawEvent(t))
	}
	return h
}

func (h history) String() string {
	var all []string
	for _, e := range h.steps {
		all = append(all, e.text)
	}
	return strings.Join(all, "; ")
}

func (h history) run(p *pair, sum *tally) error {
	defer func() { sum.add(p.met) }()
	for i, e := range h.steps {
		same, err := p.happen(e)
		if err != nil {
			return fmt.Errorf("step %d of %s: %w", i+1, h, err)
		}
		if !same {
			return nil
		}
	}
	if err := p.swap(); err != nil {
		return fmt.Errorf("after %s: %w", h, err)
	}
	p.met["handovers"]++
	return nil
}

func (p *pair) happen(e event) (bool, error) {
	p.met["steps"]++
	for i, do := range e.do {
		if i > 0 {
			p.tick(time.Second)
			p.tick(time.Second)
		}
		p.each(do)
	}
	p.doubled = strings.HasPrefix(e.text, "duplicate") || strings.HasPrefix(e.text, "deleted and made again")
	return p.goOn(e.text)
}

// tally counts what the histories have met.
type tally struct {
	mu        sync.Mutex
	histories int
	met       map[string]int
}

func (s *tally) add(met map[string]int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.histories++; s.met == nil {
		s.met = map[string]int{}
	}
	for what, n := range met {
		s.met[what] += n
	}
}

func (s *tally) String() string {
	met := map[string]int{}
	for _, a := range table {
		if a.explain != nil && a.id != "conditions" {
			met[a.id] = 0 // what is never met is said, too
		}
	}
	maps.Copy(met, s.met)
	out := fmt.Sprintf("%d histories", s.histories)
	for _, what := range slices.Sorted(maps.Keys(met)) {
		out += fmt.Sprintf(", %s %d", what, met[what])
	}
	return out
}
