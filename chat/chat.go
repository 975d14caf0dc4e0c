// Package chat is the domain of Semel: what a request is, how it may change and
// what it costs. It does no I/O and reads no clock, so every rule in it can be
// tested by calling it.
//
// The rules are those of the contract: one user intent (one click on Send, one
// queue message, one API call with one request id) has exactly one accepted
// question, one final answer and one charge, however often it arrives.
package chat

import "time"

// A Key is the identity of one intent. It never contains the content: the same
// words sent twice on purpose are two intents.
type Key struct {
	UserID    int64  // the account the intent belongs to
	SessionID string // the conversation
	RequestID string // canonical, as [ParseID] returns it
}

// Kind says what a request asks for.
type Kind string

const (
	KindMessage    Kind = "message"    // a new question at the head of the conversation
	KindEdit       Kind = "edit"       // a question beside an earlier one
	KindRegenerate Kind = "regenerate" // another answer to an earlier question
	KindContinue   Kind = "continue"   // more of an earlier answer
)

// WritesQuestion reports whether a request of this kind stores a user message.
func (k Kind) WritesQuestion() bool { return k == KindMessage || k == KindEdit }

// Finish says why an answer ended.
type Finish string

const (
	FinishStop     Finish = "stop"     // the model was done
	FinishLength   Finish = "length"   // a length limit cut it
	FinishStopped  Finish = "stopped"  // a person stopped it
	FinishFiltered Finish = "filtered" // the provider's filter cut it
	FinishTool     Finish = "tool"     // the model asks for an action
)

// Outcome says what is known of a call to a model.
type Outcome string

const (
	OutcomeNone     Outcome = "none"     // the provider never got the prompt
	OutcomeDefinite Outcome = "definite" // the provider said no
	OutcomeUnknown  Outcome = "unknown"  // nobody can know whether it ran
	// The rest describe attempts only, never a failed request.
	OutcomeOK      Outcome = "ok"
	OutcomeStopped Outcome = "stopped" // a person stopped it
	OutcomeFenced  Outcome = "fenced"  // the worker lost its lease
)

// Retry says who may start a failed request again, or what a client that was
// refused should do.
type Retry string

const (
	RetryAuto     Retry = "auto"     // the same id restarts it
	RetrySameID   Retry = "same-id"  // not heard yet: send the same id again
	RetryNewID    Retry = "new-id"   // this id is spent or taken
	RetryExplicit Retry = "explicit" // a person must ask again
	RetryNever    Retry = "never"
)

// Source says which door an arrival came through.
type Source string

const (
	SourceWeb  Source = "web"
	SourceAPI  Source = "api"
	SourceForm Source = "form"
	// SourceImport is no door for questions: it came answered, with a file.
	SourceImport Source = "import"
)

// Decision says what was done with an arrival.
type Decision string

const (
	DecisionFirst     Decision = "first"
	DecisionJoined    Decision = "joined"
	DecisionReplayed  Decision = "replayed"
	DecisionConflict  Decision = "conflict"
	DecisionExpired   Decision = "expired"
	DecisionRestarted Decision = "restarted"
)

// Decisions are all of them.
var Decisions = []Decision{DecisionFirst, DecisionJoined, DecisionReplayed, DecisionConflict, DecisionExpired, DecisionRestarted}

// A Failure says why a request is in state failed.
type Failure struct {
	Code    string  // short and stable, e.g. "stopped", "provider_unavailable"
	Outcome Outcome // none, definite or unknown
	Retry   Retry   // auto, explicit or never
	Detail  string  // one sentence for a person; never a secret
}

// Usage counts tokens. CachedTokens is a subset of InputTokens.
type Usage struct {
	InputTokens  int64 `json:"inputTokens"`
	CachedTokens int64 `json:"cachedTokens"`
	OutputTokens int64 `json:"outputTokens"`
	Estimated    bool  `json:"estimated"` // counted by Semel, not by the provider
}

// A Request is one accepted intent as it is stored now.
type Request struct {
	ID             int64 // internal, in order of acceptance
	Key            Key
	ConversationID int64
	Kind           Kind
	Seq            int64 // order in its conversation, given by the server
	Fingerprint    Fingerprint
	State          State
	Steps          int64 // how many transitions it has
	Attempt        int64 // 0 before the first claim; the fencing token
	Owner          string
	StopRequested  bool
	StopAttempt    int64
	Model          string
	Params         string // JSON object as accepted, "{}" when none
	SystemPrompt   string
	Price          Price
	Refused        int64 // refused attempts since the last explicit retry
	Crashes        int64 // re-runs after a death since the last explicit retry
	RetryAt        time.Time
	Failure        Failure // zero unless State is failed
	ParentSeq      int64   // message it hangs under; 0 is the start, or not placed yet
	Placed         bool
	ContextDropped int64
	CreatedAt      time.Time
	UpdatedAt      time.Time
	AcknowledgedAt time.Time
	CompletedAt    time.Time
}

// A Message is one turn of a conversation. Messages are only ever inserted.
type Message struct {
	ID        int64
	Seq       int64
	RequestID string // the intent that wrote it
	Role      string // "user" or "assistant"
	ParentSeq int64  // 0: the first of its branch
	Content   string
	Reasoning string
	Finish    Finish
	Model     string
	CreatedAt time.Time
	Siblings  []int64 // seq of every message with the same parent, itself included
	// Coming are the numbers of other answers under the same parent that are still
	// to come: they have no message yet.
	Coming []int64
	// ContextDropped is how many earlier messages its request left out, because
	// they did not fit the model's context.
	ContextDropped int64
	Attachments    []Attachment // of a question

	// Of an answer only.
	Usage    Usage
	Micros   int64         // its charge
	Attempts int64         // calls to a model that it took
	Absorbed int64         // repeats of its request that joined or replayed it
	Thought  time.Duration // before its first word; 0: it did not, or it is not known
	Imported bool          // it came with a file: no model was called for it here
	Effects  []Effect      // what it asked for
}

// A Conversation is a thread of messages of one user.
type Conversation struct {
	ID           int64
	UserID       int64
	SessionID    string
	Title        string
	Named        bool   // a person gave the title; else it is the first words
	Model        string // "" is the default model
	SystemPrompt string
	Params       string
	Pinned       bool
	HeadSeq      int64
	CreatedAt    time.Time
	UpdatedAt    time.Time
	DeletedAt    time.Time
	ArchivedAt   time.Time
	News         bool // a request of it has ended since a person looked
	Running      bool // a request of it waits for its answer
}
