package fit

// Code names the kind of a reason; it is stable.
type Code string

// The codes of all reasons, of exclusion first, then of absence.
const (
	NodeNameMismatch     Code = "NodeNameMismatch"
	NodeSelectorMismatch Code = "NodeSelectorMismatch"
	NodeAffinityMismatch Code = "NodeAffinityMismatch"
	UntoleratedTaint     Code = "UntoleratedTaint"
	NodeBeingDeleted     Code = "NodeBeingDeleted"

	PodMissing      Code = "PodMissing"
	PodUnscheduled  Code = "PodUnscheduled"
	PodStarting     Code = "PodStarting"
	ContainerWaits  Code = "ContainerWaits"
	PodNotReady     Code = "PodNotReady"
	PodTerminating  Code = "PodTerminating"
	PodFailed       Code = "PodFailed"
	PodSucceeded    Code = "PodSucceeded"
	FailedBackoff   Code = "FailedBackoff"
	MinReadySeconds Code = "MinReadySeconds"
	NodeNotReady    Code = "NodeNotReady"

	Eligible       Code = "Eligible"
	NotEligible    Code = "NotEligible"
	DuplicatePod   Code = "DuplicatePod"
	NodeGone       Code = "NodeGone"
	OldRevision    Code = "OldRevision"
	SurgeDone      Code = "SurgeDone"
	SelectingAll   Code = "SelectingAll"
	SelectorMatch  Code = "SelectorMatch"
	SelectorLeft   Code = "SelectorLeft"
	RevisionChange Code = "RevisionChange"
	HistoryLimit   Code = "HistoryLimit"
	NameCollision  Code = "NameCollision"
)

// Reason is why something is, or is to be done: a code, the object to blame, one
// sentence, and the smallest remedy where there is one.
type Reason struct {
	Code    Code   `json:"code"`
	Object  string `json:"object,omitempty"`
	Message string `json:"message"`
	Remedy  string `json:"remedy,omitempty"`
}

// Verdict is upstream's pair of answers about one node, with the reasons for a no.
type Verdict struct {
	ShouldRun      bool     // a missing pod is created
	ShouldContinue bool     // a pod that is there stays
	Reasons        []Reason // why ShouldRun is false
}
