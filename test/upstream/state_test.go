package upstream

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/controller"
	"k8s.io/kubernetes/pkg/controller/daemon"
	daemonutil "k8s.io/kubernetes/pkg/controller/daemon/util"
)

// state is what a client can see of a world, without the names and times that
// chance or the clock gave.
type state struct {
	pods       []podState // that are owned
	loose      []podState // that are nobody's, or another's
	revisions  []revisionState
	hash       string // of the revision that the template has
	template   string // the template's generation
	generation int64
	status     appsv1.DaemonSetStatus // without conditions
	conditions []string
}

type podState struct {
	node, hash, image    string
	generation           string
	ready, owned, pinned bool
	doing                string // its phase, and whether it terminates
	shape                string // a digest of all that its maker gave it, but for the node
}

type revisionState struct {
	name, hash string
	number     int64
	owned      bool
	stable     bool // Rollcall has noted that it works
	data       string
	shape      string // a digest of its labels, and of annotations but Rollcall's own
}

func (p podState) String() string {
	return fmt.Sprintf("pod on %s hash=%s generation=%s image=%s ready=%v owned=%v pinned=%v %s shape=%s",
		p.node, p.hash, p.generation, p.image, p.ready, p.owned, p.pinned, p.doing, p.shape)
}

func (r revisionState) String() string {
	return fmt.Sprintf("revision %s number=%d hash=%s owned=%v stable=%v data=%s shape=%s", r.name, r.number, r.hash, r.owned, r.stable, digest(r.data), r.shape)
}

// What Rollcall notes on revisions.
const (
	ownAnnotations   = "state.rollcall.dev/"
	stableAnnotation = ownAnnotations + "stable"
)

// generationLabel is how pods were told apart before revisions.
const generationLabel = "pod-template-generation"

func digest(v any) string {
	raw, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	h := fnv.New32a()
	h.Write(raw)
	return fmt.Sprintf("%08x", h.Sum32())
}

func (w *world) state() state {
	var s state
	for _, p := range w.pods() {
		if o := stateOf(p); o.owned {
			s.pods = append(s.pods, o)
		} else {
			s.loose = append(s.loose, o)
		}
	}
	for _, r := range w.revisions() {
		s.revisions = append(s.revisions, revisionState{name: r.Name, hash: r.Labels[appsv1.ControllerRevisionHashLabelKey],
			number: r.Revision, owned: metav1.GetControllerOf(r) != nil, data: string(r.Data.Raw), stable: r.Annotations[stableAnnotation] != "",
			shape: digest([]any{unhashed(r.Labels), others(r.Annotations)})})
	}
	if ds := w.daemonSet(); ds != nil {
		s.hash, s.template = w.hash(ds), ds.Annotations[appsv1.DeprecatedTemplateGeneration]
		s.generation, s.status = ds.Generation, *ds.Status.DeepCopy()
		s.status.Conditions = nil
		for _, c := range ds.Status.Conditions {
			s.conditions = append(s.conditions, string(c.Type))
		}
	}
	return s
}

func counters(s appsv1.DaemonSetStatus) string {
	raw, err := json.Marshal(s)
	if err != nil {
		return err.Error()
	}
	return string(raw)
}

// hash is the name that the template's revision gives to pods.
func (w *world) hash(ds *appsv1.DaemonSet) string {
	hash := controller.ComputeHash(&ds.Spec.Template, ds.Status.CollisionCount)
	for _, r := range w.byNumber() {
		if same, err := daemon.Match(ds, r); err == nil && same && metav1.IsControlledBy(r, ds) {
			hash = r.Labels[appsv1.ControllerRevisionHashLabelKey]
		}
	}
	return hash
}

// recount is the status that a settled world should show: the oldest pod stands for
// its node, and what is ready is available by now.
func (w *world) recount() appsv1.DaemonSetStatus {
	ds := w.daemonSet()
	s := appsv1.DaemonSetStatus{ObservedGeneration: ds.Generation, CollisionCount: ds.Status.CollisionCount}
	hash := w.hash(ds)
	for _, n := range w.nodes() {
		should, _ := w.wants(n)
		p := w.oldest(ds, n.Name)
		switch {
		case should && p == nil:
			s.DesiredNumberScheduled++
		case should:
			s.DesiredNumberScheduled++
			s.CurrentNumberScheduled++
			if ready(p) {
				s.NumberReady++
				s.NumberAvailable++
			}
			if p.Labels[appsv1.ControllerRevisionHashLabelKey] == hash || p.Labels[generationLabel] == ds.Annotations[appsv1.DeprecatedTemplateGeneration] {
				s.UpdatedNumberScheduled++
			}
		case p != nil:
			s.NumberMisscheduled++
		}
	}
	s.NumberUnavailable = s.DesiredNumberScheduled - s.NumberAvailable
	return s
}

// wants is upstream's answer to whether the node should have a pod, and whether it
// may keep one.
func (w *world) wants(n *corev1.Node) (should, may bool) {
	should, may = daemon.NodeShouldRunDaemonPod(klog.Logger{}, n, w.daemonSet())
	if w.drains && n.DeletionTimestamp != nil {
		should = false
	}
	return should, may
}

func (w *world) oldest(ds *appsv1.DaemonSet, node string) *corev1.Pod {
	var oldest *corev1.Pod
	for _, p := range w.pods() {
		if metav1.IsControlledBy(p, ds) && target(p) == node && (oldest == nil || p.CreationTimestamp.Before(&oldest.CreationTimestamp)) {
			oldest = p
		}
	}
	return oldest
}

func stateOf(p *corev1.Pod) podState {
	s := podState{node: target(p), hash: p.Labels[appsv1.ControllerRevisionHashLabelKey], image: p.Spec.Containers[0].Image,
		generation: p.Labels[generationLabel], ready: ready(p), owned: metav1.GetControllerOf(p) != nil, doing: string(p.Status.Phase)}
	if p.DeletionTimestamp != nil {
		s.doing += " terminating"
	}
	given := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Labels: unhashed(p.Labels), Annotations: p.Annotations, Finalizers: p.Finalizers}, Spec: *p.Spec.DeepCopy()}
	given.Spec.NodeName = ""
	if equality.Semantic.DeepEqual(p.Spec.Affinity, daemonutil.ReplaceDaemonSetPodNodeNameNodeAffinity(p.Spec.Affinity.DeepCopy(), s.node)) {
		s.pinned = true
		given.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution = nil
	}
	for _, ref := range p.OwnerReferences {
		ref.UID = ""
		given.OwnerReferences = append(given.OwnerReferences, ref)
	}
	s.shape = digest(given)
	return s
}

// others are the annotations that Rollcall does not keep for itself.
func others(annotations map[string]string) map[string]string {
	out := maps.Clone(annotations)
	maps.DeleteFunc(out, func(k, _ string) bool { return strings.HasPrefix(k, ownAnnotations) })
	if len(out) == 0 {
		return nil
	}
	return out
}

// unhashed leaves out the label that a state tells apart.
func unhashed(labels map[string]string) map[string]string {
	out := maps.Clone(labels)
	delete(out, appsv1.ControllerRevisionHashLabelKey)
	delete(out, generationLabel)
	return out
}

// updated says that a pod is of the template that is wanted.
func (s state) updated(p podState) bool { return p.hash == s.hash || p.generation == s.template }

// differences lists what only one of two states has, one line each.
func differences(upstream, rollcall state) []string {
	var out []string
	for _, side := range []struct {
		name      string
		has, want []string
	}{{"upstream only: ", upstream.lines(), rollcall.lines()}, {"rollcall only: ", rollcall.lines(), upstream.lines()}} {
		for _, l := range side.has {
			if i := slices.Index(side.want, l); i >= 0 {
				side.want = slices.Delete(side.want, i, i+1)
				continue
			}
			out = append(out, side.name+l)
		}
	}
	return out
}

func (s state) lines() []string {
	out := []string{fmt.Sprintf("generation %d status %s", s.generation, counters(s.status))}
	for _, c := range s.conditions {
		out = append(out, "condition "+c)
	}
	for _, p := range slices.Concat(s.pods, s.loose) {
		out = append(out, p.String())
	}
	for _, r := range s.revisions {
		out = append(out, r.String())
	}
	return out
}

func (s state) String() string { return "    " + strings.Join(s.lines(), "\n    ") + "\n" }
