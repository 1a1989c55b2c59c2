package fit

// Code names the kind of a reason; it is stable.
type Code string

// Why a node is excluded.
const (
	NodeNameMismatch     Code = "NodeNameMismatch"
	NodeSelectorMismatch Code = "NodeSelectorMismatch"
	NodeAffinityMismatch Code = "NodeAffinityMismatch"
	UntoleratedTaint     Code = "UntoleratedTaint"
	NodeBeingDeleted     Code = "NodeBeingDeleted"
)

// Why an eligible node has no available pod, or an old one.
const (
	PodCreating      Code = "PodCreating"
	PodRefused       Code = "PodRefused"
	PodUnscheduled   Code = "PodUnscheduled"
	PodStarting      Code = "PodStarting"
	ContainerWaiting Code = "ContainerWaiting"
	CrashLoop        Code = "CrashLoop"
	NotReady         Code = "NotReady"
	MinReadySeconds  Code = "MinReadySeconds"
	Terminating      Code = "Terminating"
	PodFailed        Code = "PodFailed"
	PodSucceeded     Code = "PodSucceeded"
	FailedBackoff    Code = "FailedBackoff"
	NodeNotReady     Code = "NodeNotReady"
	RevisionPending  Code = "RevisionPending"
	SurgePending     Code = "SurgePending"
	SurgeBlocked     Code = "SurgeBlocked"
	SettingInvalid   Code = "SettingInvalid"

	ProgressDeadlineExceeded Code = "ProgressDeadlineExceeded"
)

// Why something is done.
const (
	NodeEligible    Code = "NodeEligible"
	NodeNotEligible Code = "NodeNotEligible"
	NodeGone        Code = "NodeGone"
	DuplicatePod    Code = "DuplicatePod"
	OldRevision     Code = "OldRevision"
	OldPodBroken    Code = "OldPodBroken"
	SurgeDone       Code = "SurgeDone"
	SelectorMatch   Code = "SelectorMatch"
	SelectorLeft    Code = "SelectorLeft"
	NewTemplate     Code = "NewTemplate"
	TemplateAgain   Code = "TemplateAgain"
	SameTemplate    Code = "SameTemplate"
	NoHashLabel     Code = "NoHashLabel"
	NameCollision   Code = "NameCollision"
	HistoryLimit    Code = "HistoryLimit"
	RevisionStable  Code = "RevisionStable"
)

// Why nothing is done for the whole DaemonSet.
const (
	DaemonSetDeleted Code = "DaemonSetDeleted"
	SelectingAll     Code = "SelectingAll"
	SelectorInvalid  Code = "SelectorInvalid"
	TemplateInvalid  Code = "TemplateInvalid"
)

// Why a pod cannot be on its node now.
const (
	NodeUnschedulable    Code = "NodeUnschedulable"
	HostPortTaken        Code = "HostPortTaken"
	InsufficientResource Code = "InsufficientResource"
	TooManyPods          Code = "TooManyPods"
	PodAntiAffinity      Code = "PodAntiAffinity"
)

// What is doubtful before anything runs.
const (
	SurgeWithHostPorts Code = "SurgeWithHostPorts"
	PodSecurityRefuses Code = "PodSecurityRefuses"
)

// Codes says in one sentence what each code means. It is the table of all codes.
var Codes = map[Code]string{
	NodeNameMismatch:     "The template names another node in spec.nodeName.",
	NodeSelectorMismatch: "The node lacks a label that the template's nodeSelector asks for.",
	NodeAffinityMismatch: "No term of the template's required node affinity matches the node.",
	UntoleratedTaint:     "The node has a taint that the pod does not tolerate.",
	NodeBeingDeleted:     "The Node object is being deleted: a pod that is there stays, none is created.",

	PodCreating:      "The node has no pod yet; it is created now.",
	PodRefused:       "The API refuses the node's pod; its words follow.",
	PodUnscheduled:   "The pod is not bound to its node; the scheduler's words follow.",
	PodStarting:      "The pod is bound and its containers have not started.",
	ContainerWaiting: "A container waits; the kubelet's reason follows.",
	CrashLoop:        "A container ends again and again.",
	NotReady:         "The pod runs but is not ready.",
	MinReadySeconds:  "The pod is ready, but not yet for minReadySeconds.",
	Terminating:      "The pod is terminating; the next one is created when it is gone.",
	PodFailed:        "The pod has failed and is replaced.",
	PodSucceeded:     "The pod has ended, which a daemon should not, and is replaced.",
	FailedBackoff:    "The pod has ended again; replacing it waits.",
	NodeNotReady:     "The node is not ready, so nothing on it can be relied on.",
	RevisionPending:  "The node has a pod of an older revision whose turn has not come.",
	SurgePending:     "The node has a pod of an older revision; the new one beside it is not available.",
	SurgeBlocked:     "The new pod finds no room on the node beside the old one.",
	SettingInvalid:   "An annotation of Rollcall's cannot be read; it holds the rollout.",

	ProgressDeadlineExceeded: "No further node had an available pod of the wanted revision for longer than rollcall.dev/progress-deadline.",

	NodeEligible:    "The node is eligible and has no pod.",
	NodeNotEligible: "The node is no longer eligible.",
	NodeGone:        "The node that the pod was made for does not exist.",
	DuplicatePod:    "The node has more than one pod.",
	OldRevision:     "It is the node's turn in the rollout.",
	OldPodBroken:    "The old pod is broken, so that replacing it costs nothing.",
	SurgeDone:       "The new pod has taken the old one's place.",
	SelectorMatch:   "Its labels match the selector and nobody owns it.",
	SelectorLeft:    "Its labels no longer match the selector.",
	NewTemplate:     "The template is new.",
	TemplateAgain:   "An earlier template is wanted again.",
	SameTemplate:    "Another revision holds the same template.",
	NoHashLabel:     "It has no hash label.",
	NameCollision:   "The revision's name belongs to another template.",
	RevisionStable:  "The revision has run on every node.",
	HistoryLimit:    "There are more old revisions than revisionHistoryLimit.",

	DaemonSetDeleted: "The DaemonSet is being deleted.",
	SelectingAll:     "The selector is empty and would select every pod.",
	SelectorInvalid:  "The selector cannot be read, or does not match the template's labels.",
	TemplateInvalid:  "The template cannot be stored as a revision.",

	NodeUnschedulable:    "The node is cordoned, and the pod does not tolerate that.",
	HostPortTaken:        "Another pod on the node holds a host port that the pod asks for.",
	InsufficientResource: "The node has too little of a resource left.",
	TooManyPods:          "All pod slots of the node are taken.",
	PodAntiAffinity:      "The required anti-affinity of another pod keeps it away.",

	SurgeWithHostPorts: "Two pods cannot share a host port, so a surging update cannot proceed.",
	PodSecurityRefuses: "The Pod Security level that the namespace enforces refuses the pods.",
}

// Reason is why something is, or is done: a code, the numbers, the object to
// blame, one sentence, and the smallest remedy where there is one.
type Reason struct {
	Code    Code   `json:"code"`
	Object  string `json:"object,omitempty"`
	Asked   string `json:"asked,omitempty"`
	Free    string `json:"free,omitempty"`
	Limit   string `json:"limit,omitempty"`
	Message string `json:"message"`
	Remedy  string `json:"remedy,omitempty"`
}

// Verdict is the pair of answers about one node, with the reasons for a no.
type Verdict struct {
	ShouldRun      bool     // a missing pod is created
	ShouldContinue bool     // a pod that is there stays
	Reasons        []Reason // why ShouldRun is false
}
