package upstream

import (
	"fmt"

	"k8s.io/apimachinery/pkg/api/equality"
)

// ends are two settled worlds. Each accepted difference that is met is taken out
// of the states; what is left afterwards nobody has accepted.
type ends struct {
	before             state // what both were
	upstream, rollcall state
	untrue             []string // what a status says that the pods do not bear out
	pair               *pair
}

func (p *pair) ends() *ends {
	e := &ends{before: p.before, upstream: p.upstream.state(), rollcall: p.rollcall.state(), pair: p}
	e.checkCounters("upstream", p.upstream, e.upstream)
	e.checkCounters("rollcall", p.rollcall, e.rollcall)
	return e
}

func (e *ends) checkCounters(name string, w *world, s state) {
	if want := w.recount(); !equality.Semantic.DeepEqual(want, s.status) {
		e.untrue = append(e.untrue, fmt.Sprintf("%s counts %s, the pods are %s", name, counters(s.status), counters(want)))
	}
}

func (e *ends) left() []string { return append(differences(e.upstream, e.rollcall), e.untrue...) }

// accepted is one row of docs/differences.md.
type accepted struct {
	id string
	// explain takes the difference out of both states if it is there, and says
	// whether it did. It is nil for what leaves no trace once all is settled.
	explain func(*ends) bool
	// scenario shows the difference; it is nil for what the fleet of this test
	// cannot show. The row names the tests that do.
	scenario *scenario
}

// table is explained from top to bottom: what comes first makes pods alike that
// would look out of order to what comes later.
var table = []accepted{
	{"conditions", explainConditions, &scenarioConditions},
	{"history-limit", explainHistory, &scenarioHistory},
	{"doubled-revision", explainDoubled, &scenarioDoubled},
	{"kept-pod", explainKept, &scenarioKept},
	{"surge-hash", explainHash, &scenarioHash},
	{"excluded-node", explainExcluded, &scenarioExcluded},
	{"node-being-deleted", explainDeleting, &scenarioDeleting},
	{"order", explainOrder, &scenarioOrder},
	{"surge-budget", explainSurge, &scenarioSurge},
	{"budget", nil, &scenarioBudget},
	{"node-deleted", nil, &scenarioDeleted},
	{"node-down", nil, &scenarioDown},
	{"ended-pod", nil, &scenarioEnded},
	{"foreground-deletion", nil, &scenarioForeground},
	{"events", nil, &scenarioEvents},
	{"settings", nil, &scenarioSettings},
	{"unseen-change", nil, &scenarioUnseen},
	{"pod-names", nil, &scenarioNames},
	{"own-annotations", nil, &scenarioAnnotations},
	{"placement", nil, nil},
}

// explain returns the accepted differences that the ends show, and what is left.
func (e *ends) explain() (met, left []string) {
	for _, a := range table {
		if a.explain != nil && a.explain(e) {
			met = append(met, a.id)
		}
	}
	return met, e.left()
}
