package daemonset

import (
	"fmt"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rollcall-dev/rollcall/internal/core/fit"
)

// Place is what the caller remembers about a DaemonSet's place on one node; it
// comes with one plan and goes into the next. Losing it costs only time.
type Place struct {
	Node        string
	LastPod     types.UID // the youngest pod ever seen there
	LastCreated time.Time // when that one was created
	Salt        int32     // raised when the name of the next pod is another's
	Failures    int32     // pods that ended, in a row
	LastFailure time.Time
	Refused     string // why the API did not take the place's next pod
}

// Input is every fact about one DaemonSet, in any order.
type Input struct {
	Now       time.Time
	DaemonSet *appsv1.DaemonSet
	Revisions []*appsv1.ControllerRevision // of its namespace: owned, without an owner, or with a name that it needs
	Nodes     []*corev1.Node
	Pods      []*corev1.Pod // of its namespace: owned, and without an owner
	Places    []Place
	Defaults  map[string]string // annotations of its namespace
}

// Verb is what an Action does.
type Verb string

// The verbs. A plan lists its actions in the order of verbs, below.
const (
	AdoptRevision   Verb = "AdoptRevision"
	ReleaseRevision Verb = "ReleaseRevision"
	CreateRevision  Verb = "CreateRevision"
	UpdateRevision  Verb = "UpdateRevision"
	DeleteRevision  Verb = "DeleteRevision"
	BumpCollision   Verb = "BumpCollision" // the new count is in the status
	AdoptPod        Verb = "AdoptPod"
	ReleasePod      Verb = "ReleasePod"
	LabelPod        Verb = "LabelPod"
	UnblockPod      Verb = "UnblockPod" // the DaemonSet's deletion does not wait for it
	DeletePod       Verb = "DeletePod"
	CreatePod       Verb = "CreatePod"
)

// verbs is the order of the actions of a plan: first what later ones rely on, and
// the deletion of revisions last, when no pod needs them.
var verbs = []Verb{AdoptRevision, ReleaseRevision, BumpCollision, CreateRevision, UpdateRevision,
	AdoptPod, ReleasePod, LabelPod, UnblockPod, DeletePod, CreatePod, DeleteRevision}

// Action is one write. Pod and Revision are the objects to write, or the ones to
// delete; they are the plan's own copies where they differ from the input.
type Action struct {
	Verb     Verb
	Node     string
	Pod      *corev1.Pod
	Revision *appsv1.ControllerRevision
	Reason   fit.Reason
}

// State is a node's answer to the roll call.
type State string

// Present: an available pod. Missing: wanted, without one. Excluded: not wanted.
const (
	Present  State = "Present"
	Missing  State = "Missing"
	Excluded State = "Excluded"
)

// Presence is one node's line in the roll call.
type Presence struct {
	Node    string       `json:"node"`
	State   State        `json:"state"`
	Pod     string       `json:"pod,omitempty"`
	Ready   bool         `json:"ready,omitempty"`
	Updated bool         `json:"updated,omitempty"`
	Reasons []fit.Reason `json:"reasons,omitempty"`
}

// Plan is what is to be done, the status that is true now, and the roll call.
type Plan struct {
	Actions []Action
	Status  appsv1.DaemonSetStatus
	Roll    []Presence // by node name
	Places  []Place
	Wake    time.Time    // when to look again without any event; zero for never
	Hash    string       // of the wanted revision
	Rollout Rollout      // how far the wanted revision has come
	Wrong   []fit.Reason // settings that cannot be read; they hold the rollout
	Warning *fit.Reason  // what keeps the DaemonSet as a whole from being worked on
}

// String is stable text for people, logs and golden tests.
func (p Plan) String() string {
	var b strings.Builder
	for _, a := range p.Actions {
		fmt.Fprintln(&b, a)
	}
	s := p.Status
	fmt.Fprintf(&b, "status desired=%d current=%d ready=%d updated=%d available=%d unavailable=%d misscheduled=%d\n", s.DesiredNumberScheduled,
		s.CurrentNumberScheduled, s.NumberReady, s.UpdatedNumberScheduled, s.NumberAvailable, s.NumberUnavailable, s.NumberMisscheduled)
	if s.CollisionCount != nil {
		fmt.Fprintf(&b, "collisions %d\n", *s.CollisionCount)
	}
	for _, c := range s.Conditions {
		if telling(c) {
			fmt.Fprintf(&b, "%s=%s %s: %s\n", c.Type, c.Status, c.Reason, c.Message)
		}
	}
	for _, r := range p.Roll {
		fmt.Fprintln(&b, r)
	}
	if !p.Wake.IsZero() {
		fmt.Fprintf(&b, "wake %s\n", p.Wake.UTC().Format(time.RFC3339Nano))
	}
	if p.Warning != nil {
		fmt.Fprintf(&b, "warning %s: %s\n", p.Warning.Code, p.Warning.Message)
	}
	return b.String()
}

// String is one line.
func (a Action) String() string {
	parts := []string{string(a.Verb)}
	if a.Node != "" {
		parts = append(parts, "node="+a.Node)
	}
	if a.Pod != nil && a.Pod.Name != "" {
		parts = append(parts, "pod="+a.Pod.Name)
	}
	if a.Revision != nil {
		parts = append(parts, fmt.Sprintf("revision=%s/%d", a.Revision.Name, a.Revision.Revision))
	}
	return strings.Join(append(parts, "("+string(a.Reason.Code)+")"), " ")
}

// String is one line.
func (p Presence) String() string {
	var why []string
	for _, r := range p.Reasons {
		why = append(why, r.Message)
	}
	out := fmt.Sprintf("%-9s %s", strings.ToLower(string(p.State)), p.Node)
	if p.Pod != "" {
		out += " " + p.Pod
	}
	if len(why) > 0 {
		out += ": " + strings.Join(why, "; ")
	}
	return out
}
