package chat

import (
	"encoding/json"
	"time"
)

// A Stamp is a time as the API shows it: RFC 3339, UTC, milliseconds. The zero
// time is null.
type Stamp struct{ time.Time }

// StampFormat is the layout of every time in the API.
const StampFormat = "2006-01-02T15:04:05.000Z"

func (s Stamp) String() string {
	if s.IsZero() {
		return ""
	}
	return s.UTC().Format(StampFormat)
}

// MarshalJSON implements [json.Marshaler].
func (s Stamp) MarshalJSON() ([]byte, error) {
	if s.IsZero() {
		return []byte("null"), nil
	}
	return []byte(`"` + s.String() + `"`), nil
}

// UnmarshalJSON implements [json.Unmarshaler].
func (s *Stamp) UnmarshalJSON(b []byte) error { return json.Unmarshal(b, &s.Time) }

// A Record is a request as the API shows it in any state (api.md, Chat).
type Record struct {
	RequestID      string         `json:"requestId"`
	SessionID      string         `json:"sessionId"`
	Kind           Kind           `json:"kind"`
	Status         Status         `json:"status"`
	State          State          `json:"state"`
	Attempt        int64          `json:"attempt"`
	FromCache      bool           `json:"fromCache"`
	Content        string         `json:"content"` // the answer, or the partial text stored so far
	Message        *RecordMessage `json:"message"` // nil until acknowledged
	Model          string         `json:"model"`
	Usage          *Usage         `json:"usage"`
	Cost           *Money         `json:"cost"`
	ContextDropped int64          `json:"contextDropped"`
	Effects        []Effect       `json:"effects"` // never nil
	Error          *Problem       `json:"error"`
	CreatedAt      Stamp          `json:"createdAt"`
	CompletedAt    Stamp          `json:"completedAt"`
	StatusURL      string         `json:"statusUrl"`
	StreamURL      string         `json:"streamUrl"`
	// Where it belongs, for pages: its number, the message it hangs under, and the
	// reasoning of an answer that is not final.
	Seq       int64  `json:"-"`
	ParentSeq int64  `json:"-"`
	Reasoning string `json:"-"`
	// HTML is the answer rendered, only in streams that asked for as=html.
	HTML string `json:"html,omitempty"`
}

// A RecordMessage is the answer inside a record, or a message of a conversation.
type RecordMessage struct {
	ID        string `json:"id"`
	Seq       int64  `json:"seq"`
	ParentID  string `json:"parentId"`
	Role      string `json:"role"`
	Content   string `json:"content"`
	Reasoning string `json:"reasoning"`
	Finish    Finish `json:"finish"`
	CreatedAt Stamp  `json:"createdAt"`
}

// Money is an amount in millionths of the currency.
type Money struct {
	Currency string `json:"currency"`
	Micros   int64  `json:"micros"`
}

// A Problem is an application/problem+json document (RFC 9457) with the members
// of api.md.
type Problem struct {
	Type      string   `json:"type"` // "urn:semel:problem:" + Code
	Title     string   `json:"title"`
	Status    int      `json:"status"`
	Detail    string   `json:"detail"`
	Code      string   `json:"code"`
	RequestID string   `json:"requestId,omitempty"`
	State     State    `json:"state,omitempty"` // only where the request was accepted
	Retry     Retry    `json:"retry,omitempty"`
	Outcome   Outcome  `json:"outcome,omitempty"` // of a failed request
	Fields    []string `json:"fields,omitempty"`  // key_reused: which fields differ
	Partial   int      `json:"partial,omitempty"` // bytes of partial text stored
	// RetryAfter becomes the header Retry-After; 0 is none.
	RetryAfter time.Duration `json:"-"`
	// Attempt becomes the header X-Attempt; nil where no accepted request is meant.
	Attempt *int64 `json:"-"`
}

// Error makes a problem an error, so that whoever refuses says how it is told.
func (p *Problem) Error() string { return p.Code + ": " + p.Detail }
