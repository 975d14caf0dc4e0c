// Package llm talks to language models.
//
// A client makes one call and classifies what came of it; it never retries and
// never sends an idempotency header, because no provider honours one on
// inference. Attempts, retries and records belong to the engine.
package llm

import (
	"context"
	"fmt"
	"time"

	"semel/chat"
)

// A Turn is one message of the prompt.
type Turn struct {
	Role    string // "system", "user" or "assistant"
	Content string
}

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
}

// Params are the parameters that pass through to a model. Nil is unset.
type Params struct {
	Temperature *float64 `json:"temperature,omitempty"`
	TopP        *float64 `json:"top_p,omitempty"`
	MaxTokens   *int64   `json:"max_tokens,omitempty"`
	Seed        *int64   `json:"seed,omitempty"`
}

// A Piece is a part of an answer as it arrives. Text and Reasoning are appended
// to what came before.
type Piece struct {
	Text      string
	Reasoning string
}

// A ToolCall is an action that the model proposes.
type ToolCall struct {
	ID        string `json:"id"`
	Name      string `json:"name"`
	Arguments string `json:"arguments"` // as the model gave it; may be no JSON at all
}

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
