package llmtest

import (
	"fmt"
	"strings"
	"time"

	"semel/chat"
	"semel/llm"
)

// A Script says what a [Server] does with one call, whatever its wire format. The
// zero value answers at once and says which call it was.
//
// A piece is one delta that carries something: reasoning pieces come first, then
// text, then the arguments of tool calls in fragments. For pacing each counts as a
// token.
type Script struct {
	// What is answered.
	Text        []string // nil without Tools: which call it was
	Reasoning   []string // in the format's own field
	ThinkInline bool     // Reasoning goes into the text instead, between <think> and </think>
	Tools       []llm.ToolCall
	Finish      chat.Finish // "" is tool with Tools, else stop
	Usage       *chat.Usage // nil is counted from the body and the pieces

	// When.
	HeaderDelay time.Duration
	TokenDelay  time.Duration // before the first piece, after the headers
	Rate        float64       // pieces a second, 0 as fast as possible
	Late        bool          // begins when the client has gone; see [Server.Executed]
	Hang        Point         // silence at this point until [Server.Release] or Close
	HangAfter   int           // pieces, for AfterPieces

	// What goes wrong.
	Refuse     *Failure // instead of an answer
	ErrorFrame *Failure // after ErrorAfter pieces, in the stream; not streaming it is the body
	ErrorAfter int
	Cut        Cut // how the line ends
	CutAt      int // byte of the body as it is on the line; below 0 before the headers
	Redirect   string
	HTML       bool // a page with status 200, as portals and wrong addresses answer
	JSON       bool // a whole answer although a stream was asked for

	// How it is written.
	OneByte    bool // each byte by itself
	SplitRunes bool // no write ends where a character of several bytes does
	Gzip       bool // although nobody asked
	KeepAlive  bool // a comment before each event

	// What is missing, or twice.
	DoubleEnd bool // all that ends an answer comes twice
	NoDone    bool // no last event: [DONE], message_stop, response.completed
	NoUsage   bool
	NoFinish  bool // no reason why it ended

	// Chat completions only.
	AsOllama       bool   // the role in each delta, an empty one at the end, tool calls whole
	ReasoningField string // "" is reasoning_content
	UsageInFinish  bool   // usage beside the finish reason, asked for or not

	// Anthropic only.
	CacheWrites int64 // input tokens that were written to the cache

	// Responses only.
	ErrorEvent bool // ErrorFrame is an error event instead of response.failed

	// Responses with background only. There the pieces, their pace, Hang AfterPieces
	// and ErrorFrame are the run's, which goes on whatever becomes of its lines.
	// HeaderDelay, the other points and Cut concern the line of the prompt; how
	// it is written concerns every line. Late means nothing.
	NoResume bool // a stream of a stored run is refused, its state is not
	CutAgain int  // so many resumed streams are cut too
	Forgets  bool // the run is not found once it was created
	AskFails int  // so many requests about the run get 503
}

// A Point is where a call falls silent.
type Point int

const (
	_             Point = iota // nowhere
	BeforeHeaders              // the prompt is read, nothing is answered
	AfterHeaders               // status 200 and not a byte
	AfterPieces                // after HangAfter of them
)

// A Cut is the way in which a line ends before its time.
type Cut int

const (
	_        Cut = iota // it does not
	CutClean            // as if that were all: no error at the other side
	CutClose            // closed in the middle of a body
	CutReset            // reset, which also loses what the other side has not read
)

// A Failure is an error as a provider words it. What is empty is what the provider
// says for Status, which is 500 when 0.
type Failure struct {
	Status              int
	Type, Code, Message string
	RetryAfter          string  // header, as it is written
	Body                *string // instead of the provider's form
}

func (f Failure) status() int {
	if f.Status == 0 {
		return 500
	}
	return f.Status
}

func (f Failure) message() string {
	if f.Message == "" {
		return fmt.Sprintf("The server was told to fail with status %d.", f.status())
	}
	return f.Message
}

// Tokens returns n pieces of about a token each.
func Tokens(n int) []string {
	words := []string{"once", " only", " the", " same", " question", " gets", " one", " answer", ".\n"}
	pieces := make([]string, n)
	for i := range pieces {
		pieces[i] = words[i%len(words)]
	}
	return pieces
}

// filled returns s with everything said that it left open.
func (s Script) filled(number int64, body []byte) Script {
	if s.Text == nil && s.Tools == nil {
		s.Text = strings.SplitAfter(fmt.Sprintf("This is call %d of this server.", number), " ")
	}
	if s.ThinkInline && len(s.Reasoning) > 0 {
		text := append([]string{"<think>"}, s.Reasoning...)
		text = append(text, "</think>\n\n")
		s.Text, s.Reasoning = append(text, s.Text...), nil
	}
	if s.Finish == "" {
		s.Finish = chat.FinishStop
		if len(s.Tools) > 0 {
			s.Finish = chat.FinishTool
		}
	}
	s.Tools = append([]llm.ToolCall(nil), s.Tools...)
	for i := range s.Tools {
		if s.Tools[i].ID == "" {
			s.Tools[i].ID = fmt.Sprintf("call_%d_%d", number, i)
		}
	}
	if s.Usage == nil {
		u := chat.Usage{InputTokens: chat.EstimateTokens(string(body)), OutputTokens: int64(len(s.Text) + len(s.Reasoning))}
		for _, t := range s.Tools {
			u.OutputTokens += int64(len(fragments(t.Arguments)))
		}
		s.Usage = &u
	}
	return s
}

// fragments cuts arguments of a tool as they arrive, at no boundary of JSON.
func fragments(arguments string) []string {
	var parts []string
	for len(arguments) > 0 {
		n := 0
		for i := range arguments {
			if n = i; i >= 5 {
				break
			}
		}
		if n < 5 {
			n = len(arguments)
		}
		parts = append(parts, arguments[:n])
		arguments = arguments[n:]
	}
	return parts
}

func join(pieces []string) string { return strings.Join(pieces, "") }
