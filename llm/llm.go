// Package llm talks to language models.
//
// A client makes one call and classifies what came of it; it never retries and
// never sends an idempotency header, because no provider honours one on
// inference. Attempts, retries and records belong to the engine.
package llm

import (
	"context"
	"fmt"
	"strings"
	"time"

	"semel/chat"
)

// A Turn is one message of the prompt.
type Turn struct {
	Role    string // "system", "user" or "assistant"
	Content string
	Files   []File // that came with it; of a user
}

// A File is what a person put beside a question.
type File struct {
	Name      string
	MediaType string // "text/plain", or that of an image
	Data      []byte // nil: an image that this model cannot see
	Tokens    int64  // estimated
}

func (f File) image() bool { return strings.HasPrefix(f.MediaType, "image/") }

// A Tool is an action a model may ask for.
type Tool struct {
	Name        string
	Description string
	Parameters  string // JSON Schema
}

// A Call is one dispatch of a prompt to a model.
type Call struct {
	RequestID string // the intent; for scripting and logs, never a provider's key
	Attempt   int64
	Model     string // the name the provider knows it by
	Turns     []Turn
	Params    Params
	Tools     []Tool
	// Continue asks for more of the last assistant turn instead of a new one.
	Continue bool
	// Started, when set, is told the provider's name of a run that a [Reattacher]
	// can follow, once and before the first piece. It returns when the name is
	// durable, or will not be: the call goes on either way.
	Started func(upstreamID string)
}

// Params are the parameters that pass through to a model. Nil is unset.
type Params struct {
	Temperature *float64 `json:"temperature,omitempty"`
	TopP        *float64 `json:"top_p,omitempty"`
	MaxTokens   *int64   `json:"max_tokens,omitempty"`
	Seed        *int64   `json:"seed,omitempty"`
}

// A Piece is a part of an answer as it arrives. Text and Reasoning are appended
// to what came before. An empty one is a sign of life from a provider that has
// nothing to say yet.
type Piece struct {
	Text      string
	Reasoning string
}

// A ToolCall is an action that the model proposes.
type ToolCall chat.ToolCall

// An Answer is a whole answer. Content is exactly the concatenation of the Text
// of all pieces, Reasoning that of all Reasoning.
type Answer struct {
	Content    string
	Reasoning  string
	Finish     chat.Finish
	ToolCalls  []ToolCall
	Usage      chat.Usage
	UpstreamID string // the provider's name for this run, "" when it gave none
}

// A Client calls one provider.
type Client interface {
	// Stream dispatches c once and hands every piece to emit, in order, from one
	// goroutine, before it returns. It returns the whole answer, or an *Error
	// that classifies the failure; pieces already emitted stay emitted. When ctx
	// ends it closes the connection and returns ctx's error, wrapped.
	Stream(ctx context.Context, c Call, emit func(Piece)) (Answer, error)
}

// A Reattacher is a client whose provider keeps runs, so that one goes on although
// whoever asked for it died.
type Reattacher interface {
	Client
	// Reattach follows a run that an earlier Stream of the same call reported to
	// Started. It calls no model anew. The pieces it hands out are the whole
	// answer from its first byte; otherwise it is like Stream.
	Reattach(ctx context.Context, c Call, upstreamID string, emit func(Piece)) (Answer, error)
	// Cancel ends a run whose answer nobody wants any more.
	Cancel(ctx context.Context, upstreamID string) error
}

// A Lister is a client whose provider can say which models it has.
type Lister interface {
	// Models returns the names of the models, in the provider's order. Errors are
	// those of Stream.
	Models(ctx context.Context) ([]string, error)
}

// An Endpoint says where a provider is and how to talk to it.
type Endpoint struct {
	URL    string // up to and including the version: "https://api.openai.com/v1"
	Key    string // "" for none
	Quirks Quirks
}

// An Error is a failed call, classified as contract section 4 demands.
type Error struct {
	Outcome    chat.Outcome  // none, definite or unknown
	Transient  bool          // definite only: the same call may succeed later (429, 503, 529)
	Status     int           // the provider's HTTP status, 0 when there was none
	RetryAfter time.Duration // as the provider asked, 0 when it did not
	Code       string        // e.g. "provider_busy", "content_refused", "line_lost"
	Detail     string        // one sentence for a person
	Err        error
}

func (e *Error) Error() string {
	s := fmt.Sprintf("%s (outcome %s)", e.Code, e.Outcome)
	if e.Status != 0 {
		s += fmt.Sprintf(", status %d", e.Status)
	}
	if e.Detail != "" {
		s += ": " + e.Detail
	}
	return s
}

func (e *Error) Unwrap() error { return e.Err }
