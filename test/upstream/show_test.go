package upstream

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

var scenarioConditions = scenario{
	does:     then(image("v2")),
	sees:     func(w *world) string { return strings.Join(w.state().conditions, " ") },
	upstream: "", rollcall: "Available Progressing Reconciling Stalled",
}

var scenarioHistory = scenario{
	does: both(then(update("unavailable 100%"), func(w *world) {
		w.changeDaemonSet(func(ds *appsv1.DaemonSet) { *ds.Spec.RevisionHistoryLimit = 1 })
	}), then(image("bad1"), image("bad2"))),
	sees: func(w *world) string {
		for _, r := range w.byNumber() {
			if strings.Contains(string(r.Data.Raw), `"image":"v1"`) {
				return "v1 is kept"
			}
		}
		return "v1 is gone"
	},
	upstream: "v1 is gone", rollcall: "v1 is kept",
}

var scenarioDoubled = scenario{
	does: both(then(update("OnDelete"), image("v2"), deletePod("n1")), func(p *pair) error {
		p.doubled = true
		return then(func(w *world) { w.duplicate(1, false) })(p)
	}),
	sees: func(w *world) string {
		return fmt.Sprint(count(w.state().pods, func(p podState) bool { return p.hash == "hash-1" }), " pods called new")
	},
	upstream: "3 pods called new", rollcall: "1 pods called new",
}

var scenarioKept = scenario{
	does:     then(update("OnDelete"), image("bad1"), deletePod("n1"), func(w *world) { w.orphanPod("n1", false) }),
	sees:     images("n1"),
	upstream: "bad1", rollcall: "v1",
}

var scenarioHash = scenario{
	does: then(removeNode("n2"), removeNode("n3"), update("surge 1"), image("bad1"), func(w *world) {
		w.api.change(revisions, w.newest(), func(o object) { o.GetLabels()[appsv1.ControllerRevisionHashLabelKey] = "other" })
	}),
	sees: func(w *world) string {
		return fmt.Sprint(count(w.state().pods, func(p podState) bool { return p.hash == "other" }), " made anew")
	},
	upstream: "1 made anew", rollcall: "0 made anew",
}

var scenarioExcluded = scenario{
	does:     then(taint("n1"), image("v2")),
	sees:     images("n1"),
	upstream: "", rollcall: "v1",
}

var scenarioDeleting = scenario{
	does: then(func(w *world) {
		at := now()
		w.changeNode("n1", func(n *corev1.Node) { n.DeletionTimestamp, n.Finalizers = &at, []string{"example.com/drain"} })
	}, deletePod("n1")),
	sees:     images("n1"),
	upstream: "v1", rollcall: "",
}

// Rollcall begins with the oldest pod, and so keeps its order; that chance made ten
// equal choices is not to be feared.
var scenarioOrder = scenario{
	does: func(p *pair) error {
		for i := range 10 {
			if err := then(image(fmt.Sprint("v", i+2)))(p); err != nil {
				return err
			}
		}
		for broken(p.upstream) == broken(p.rollcall) {
			if err := then(image("v20"), image("bad1"))(p); err != nil {
				return err
			}
		}
		return nil
	},
	sees: func(w *world) string {
		orders := map[string]bool{}
		for round := range slices.Chunk(w.deleted()[:30], 3) {
			orders[strings.Join(round, " ")] = true
		}
		return fmt.Sprint("one order: ", len(orders) == 1)
	},
	upstream: "one order: false", rollcall: "one order: true",
}

// broken is the node of the pod that is not ready.
func broken(w *world) string {
	for _, p := range w.pods() {
		if !ready(p) {
			return target(p)
		}
	}
	return ""
}

// deleted lists the nodes whose pods the controller has deleted.
func (w *world) deleted() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var out []string
	for _, l := range w.writes {
		if l.verb == "delete" && l.resource == pods {
			out = append(out, l.node)
		}
	}
	return out
}

// The new pod that stands alone on n1 counts or does not.
var scenarioSurge = scenario{
	does: then(update("OnDelete"), image("bad1"), deletePod("n1"), update("surge 1")),
	sees: func(w *world) string {
		return fmt.Sprint(count(w.state().pods, func(p podState) bool { return !p.ready }), " new pods")
	},
	upstream: "2 new pods", rollcall: "1 new pods",
}

// Every agent loses its readiness for a moment, and somebody updates.
var scenarioBudget = scenario{
	does: at(unready, image("v2")),
	sees: func(w *world) string {
		return fmt.Sprint(count(w.state().pods, func(p podState) bool { return strings.HasSuffix(p.doing, "terminating") }), " pods end")
	},
	upstream: "3 pods end", rollcall: "0 pods end",
}

var scenarioDeleted = scenario{
	does: at(removeNode("n1")),
	sees: desired, upstream: "3 desired", rollcall: "2 desired",
}

var scenarioDown = scenario{
	does: both(then(silent("n1")), then(image("v2"))),
	sees: func(w *world) string {
		return fmt.Sprint(w.on("n1")[0].DeletionTimestamp != nil, " ", images("n2")(w), " ", images("n3")(w))
	},
	heals: reporting("n1", corev1.ConditionTrue),

	upstream: "true v1 v1", rollcall: "false v2 v2",
}

var scenarioEnded = scenario{
	does: then(func(w *world) {
		w.forget()
		w.changePod(w.on("n1")[0], func(p *corev1.Pod) { trouble(p, "fails") })
	}),
	sees: func(w *world) string {
		var gone, made time.Time
		for _, l := range w.writes {
			switch l.verb + l.resource {
			case "delete" + pods:
				gone = l.at
			case "create" + pods:
				made = l.at
			}
		}
		return fmt.Sprint("after ", made.Sub(gone))
	},
	upstream: "after 0s", rollcall: "after 1s",
}

// The garbage collector waits for a pod on a node that is silent.
var scenarioForeground = scenario{
	does: both(at(silent("n1")), at(func(w *world) {
		at := now()
		w.api.change(daemonSets, w.daemonSet(), func(o object) {
			o.SetDeletionTimestamp(&at)
			o.SetFinalizers([]string{metav1.FinalizerDeleteDependents})
		})
		deletePod("n1")(w)
	})),
	sees: func(w *world) string {
		return fmt.Sprint("waits: ", *w.on("n1")[0].OwnerReferences[0].BlockOwnerDeletion)
	},
	heals: func(w *world) {
		reporting("n1", corev1.ConditionTrue)(w)
		w.remove(false)
		w.restore("v1")
	},
	upstream: "waits: true", rollcall: "waits: false",
}

var scenarioEvents = scenario{
	does: then(image("v2")),
	sees: func(w *world) string {
		reasons := map[string]bool{}
		for _, e := range w.events {
			reasons[e.Reason] = true
		}
		return strings.Join(slices.Sorted(maps.Keys(reasons)), " ")
	},
	upstream: "SuccessfulCreate SuccessfulDelete", rollcall: "RolloutComplete SuccessfulCreate SuccessfulDelete",
}

var scenarioSettings = scenario{
	does: then(annotate("rollcall.dev/unheard-of", "x"), image("v2")),
	sees: images("n1"),
	heals: func(w *world) {
		w.changeDaemonSet(func(ds *appsv1.DaemonSet) { delete(ds.Annotations, "rollcall.dev/unheard-of") })
	},
	upstream: "v2", rollcall: "v1",
}

var scenarioUnseen = scenario{
	does: then(taint("n1")),
	sees: desired, heals: (*world).nudge,
	upstream: "3 desired", rollcall: "2 desired",
}

var scenarioNames = scenario{
	does: then(image("v2")),
	sees: func(w *world) string {
		_, suffix, _ := strings.Cut(w.on("n1")[0].Name, name+"-")
		return fmt.Sprint(len(suffix), " characters")
	},
	upstream: "5 characters", rollcall: "10 characters",
}

var scenarioAnnotations = scenario{
	does:     then(annotate(ownAnnotations+"forged", "x"), image("v2")),
	sees:     func(w *world) string { return "forged: " + w.newest().Annotations[ownAnnotations+"forged"] },
	upstream: "forged: x", rollcall: "forged: ",
}
