package llm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
	"unicode"
	"unicode/utf8"

	"semel/chat"
)

// The bounds of the numbers in directives. A directive beyond them is text.
const (
	maxDemoTokens  = 100_000
	maxDemoRate    = 1_000_000 // tokens per second
	maxDemoWait    = time.Hour
	maxDemoActions = 16 // of [[tool]] in one question
)

const (
	demoRate = 40 // tokens per second, unless the question says otherwise

	// An answer without [[tokens]] has this many tokens, closing line included.
	minBriefTokens = 60
	maxBriefTokens = 180

	// Without pacing the text goes out in pieces of about this many bytes.
	unpacedPiece = 16 << 10
)

// Demo is the built-in model: no key, no network, no knowledge, and a script
// inside the question for whoever tests or shows something. Its zero value is
// not usable; it is safe for use by many goroutines at once.
//
// Of files that come with a question it says which they were, and reads nothing in them,
// no directives either.
//
// It answers in the language of the question (Chinese when there is a Han
// character in it, else English) and in other words on each call. The last line
// says which call of this Demo it was. With Params.Seed the text before that
// line depends only on the seed and the turns, not on the attempt; the number in
// the last line counts calls in any case, because it is what gives a repeated
// call away.
//
// A token, for pacing and for counting lengths, is one Han character or one run
// of other characters that are not white space, with the white space before it.
// So a word with its leading space is a token, and so is a Chinese comma. Usage
// counts with [chat.EstimateTokens] instead, as for any text.
//
// # Directives
//
// They may stand anywhere in the last user turn. Of several of one kind the
// first that applies to this attempt counts; every tool counts, up to 16. What
// does not parse, or exceeds a bound, is ordinary text.
//
//	[[tokens N]]          N tokens of text (up to 100000) before the closing line
//	[[rate R]]            R tokens per second (up to 1000000), 0 as fast as possible;
//	                      40 without it, or 0 for an echo
//	[[wait MS]]           milliseconds before the first token, up to an hour
//	[[fail STATUS]]       the provider answers 400 to 599 before any token
//	[[fail STATUS once]]  only on attempt 1
//	[[cut N]]             the line dies after N tokens (up to 100000), or after the
//	                      last one where the answer is shorter; outcome unknown
//	[[cut N once]]        only on attempt 1
//	[[hang]]              accepts and stays silent until the context ends
//	[[echo TEXT]]         answers exactly TEXT, which contains no ]] and may be empty
//	[[tool NAME {json}]]  asks for that action, with the arguments as they are written
//	[[refuse]]            the content is refused
//
// A wait comes first, then a failure, a refusal, the silence, the text. Answers
// cut by Params.MaxTokens ask for no action and may lack the closing line.
type Demo struct {
	salt  uint64 // differs between processes
	calls atomic.Int64
}

var _ Client = (*Demo)(nil)

// NewDemo returns a built-in model that has not been called yet.
func NewDemo() *Demo { return &Demo{salt: rand.Uint64()} }

// Calls returns how often Stream was called, whatever came of it.
func (d *Demo) Calls() int64 { return d.calls.Load() }

// Stream implements [Client]. Every call counts, those that fail too.
func (d *Demo) Stream(ctx context.Context, c Call, emit func(Piece)) (Answer, error) {
	number := d.calls.Add(1)
	if c.Params.MaxTokens != nil && *c.Params.MaxTokens < 1 {
		return Answer{}, demoFailure(http.StatusBadRequest)
	}
	asked := lastUser(c.Turns)
	s := parseScript(contentAt(c.Turns, asked), c.Attempt)
	if err := pause(ctx, s.wait); err != nil {
		return Answer{}, err
	}
	switch {
	case s.fail != 0:
		return Answer{}, demoFailure(s.fail)
	case s.refuse:
		return Answer{}, &Error{Outcome: chat.OutcomeDefinite, Code: "content_refused",
			Detail: "The built-in model was told to refuse this question."}
	case s.hang:
		<-ctx.Done()
		return Answer{}, ended(ctx)
	}

	a := Answer{Finish: chat.FinishStop, UpstreamID: "demo-" + strconv.FormatInt(number, 10)}
	text := d.answer(c, s, asked, number, &a)
	if c.Params.MaxTokens != nil {
		if end := prefixTokens(text, *c.Params.MaxTokens); end < len(text) {
			text, a.Finish, a.ToolCalls = text[:end], chat.FinishLength, nil
		}
	}
	if s.cuts {
		text = text[:prefixTokens(text, s.cut)]
	}
	if err := play(ctx, text, s.rate, emit); err != nil {
		return Answer{}, err
	}
	if s.cuts {
		return Answer{}, &Error{Outcome: chat.OutcomeUnknown, Code: "line_lost",
			Detail: "The line to the model was lost before the end of its answer.", Err: io.ErrUnexpectedEOF}
	}
	a.Content = text
	a.Usage = demoUsage(c.Turns, asked, text)
	return a, nil
}

// answer returns the text of the call and sets Finish and ToolCalls of a where
// an action is asked for.
func (d *Demo) answer(c Call, s script, asked int, number int64, a *Answer) string {
	tools := s.tools
	var q question
	if !s.echoes {
		q = readQuestion(c, s, asked)
		// More of an answer must not ask for its action a second time.
		if len(tools) == 0 && !c.Continue {
			if t, ok := q.proposal(c.Tools); ok {
				tools = []ToolCall{t}
			}
		}
	}
	for i, t := range tools {
		t.ID = fmt.Sprintf("call_%d_%d", number, i)
		a.ToolCalls = append(a.ToolCalls, t)
		a.Finish = chat.FinishTool
	}
	if s.echoes {
		if rest, ok := strings.CutPrefix(s.echo, continued(c)); ok {
			return rest
		}
		return s.echo
	}
	if len(tools) > 0 {
		q.action = tools[0].Name
	}

	w := newWriter(q, d.random(c), uint64(number)+d.salt, c.Params.Seed != nil)
	if asked >= 0 && len(c.Turns[asked].Files) > 0 && !s.sized && !c.Continue {
		w.add(saw(c.Turns[asked].Files, q.chinese))
	}
	switch {
	case s.sized:
		w.exactly(s.tokens)
	case s.cuts && s.cut > minBriefTokens: // the line can only die after tokens that exist
		w.exactly(s.cut)
	default:
		w.brief()
	}
	w.add(fmt.Sprintf(w.closing, number))
	return w.b.String()
}

// saw says what came with a question: all that the built-in model can do with it.
func saw(files []File, chinese bool) string {
	var list []string
	for _, f := range files {
		size, kind := len(f.Data), strings.ToUpper(strings.TrimPrefix(f.MediaType, "image/"))
		lines := strings.Count(strings.TrimSuffix(string(f.Data), "\n"), "\n") + 1
		switch {
		case f.image() && chinese:
			list = append(list, fmt.Sprintf("“%s”（%s 图片，%d 字节）", f.Name, kind, size))
		case f.image():
			list = append(list, fmt.Sprintf("“%s” (a %s image of %d bytes)", f.Name, kind, size))
		case chinese:
			list = append(list, fmt.Sprintf("“%s”（文本，%d 行）", f.Name, lines))
		default:
			list = append(list, fmt.Sprintf("“%s” (text, lines: %d)", f.Name, lines))
		}
	}
	if chinese {
		return "附件已收到：" + strings.Join(list, "、") + "。"
	}
	return "This came with the question: " + strings.Join(list, ", ") + "."
}

// random returns the source of the words: the same for the same seed and turns,
// else another on each call.
func (d *Demo) random(c Call) *rand.Rand {
	if c.Params.Seed == nil {
		return rand.New(rand.NewPCG(d.salt, rand.Uint64()))
	}
	h := fnv.New64a()
	for _, t := range c.Turns {
		io.WriteString(h, t.Role+"\x00"+t.Content+"\x00")
		for _, f := range t.Files {
			io.WriteString(h, f.Name+"\x00")
			h.Write(f.Data)
		}
	}
	if c.Continue {
		h.Write([]byte{1})
	}
	return rand.New(rand.NewPCG(uint64(*c.Params.Seed), h.Sum64()))
}

// demoFailure is what a provider's status means by contract section 4.
func demoFailure(status int) *Error {
	e := &Error{Status: status, Detail: fmt.Sprintf("The built-in model answered with status %d.", status)}
	switch {
	case status == http.StatusTooManyRequests, status == http.StatusServiceUnavailable, status == 529:
		e.Outcome, e.Transient, e.Code = chat.OutcomeDefinite, true, "provider_busy"
	case status >= 500, status == http.StatusRequestTimeout:
		e.Outcome, e.Code = chat.OutcomeUnknown, "provider_error"
	default:
		e.Outcome, e.Code = chat.OutcomeDefinite, "provider_refused"
	}
	return e
}

// demoUsage counts as a provider with a prompt cache would: everything before
// the question was seen before.
func demoUsage(turns []Turn, asked int, text string) chat.Usage {
	u := chat.Usage{OutputTokens: chat.EstimateTokens(text)}
	for i, t := range turns {
		n := t.tokens()
		u.InputTokens += n
		if i != asked {
			u.CachedTokens += n
		}
	}
	return u
}

// lastUser returns the index of the last user turn, -1 when there is none.
func lastUser(turns []Turn) int {
	for i := len(turns) - 1; i >= 0; i-- {
		if turns[i].Role == "user" {
			return i
		}
	}
	return -1
}

func contentAt(turns []Turn, i int) string {
	if i < 0 {
		return ""
	}
	return strings.ToValidUTF8(turns[i].Content, "\uFFFD")
}

// continued returns the text that a call continues, "" when it starts afresh.
func continued(c Call) string {
	if n := len(c.Turns); c.Continue && n > 0 && c.Turns[n-1].Role == "assistant" {
		return c.Turns[n-1].Content
	}
	return ""
}

// Playing

// pause waits for d unless ctx ends first.
func pause(ctx context.Context, d time.Duration) error {
	if ctx.Err() != nil {
		return ended(ctx)
	}
	if d <= 0 {
		return nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ended(ctx)
	case <-t.C:
		return nil
	}
}

// ended wraps the error of ctx and, where it says more, its cause.
func ended(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if errors.Is(cause, err) {
		return fmt.Errorf("ask the built-in model: %w", cause)
	}
	return fmt.Errorf("ask the built-in model: %w: %w", err, cause)
}

// play emits text at rate tokens per second. The nth token is due n/rate after
// the start, so that a late timer delays no later token.
func play(ctx context.Context, text string, rate int64, emit func(Piece)) error {
	if rate == 0 {
		return playUnpaced(ctx, text, emit)
	}
	var timer *time.Timer // one for the whole answer
	start := time.Now()
	for n, from := int64(0), 0; from < len(text); {
		due := func(n int64) time.Duration { return time.Duration(n) * time.Second / time.Duration(rate) }
		if d := due(n) - time.Since(start); d > 0 {
			if timer == nil {
				timer = time.NewTimer(d)
				defer timer.Stop()
			} else {
				timer.Reset(d)
			}
			select {
			case <-ctx.Done():
			case <-timer.C:
			}
		}
		if ctx.Err() != nil {
			return ended(ctx)
		}
		to := from
		for passed := time.Since(start); to < len(text) && due(n) <= passed; n++ {
			to = nextToken(text, to)
		}
		if to > from {
			emit(Piece{Text: text[from:to]})
			from = to
		}
	}
	return nil
}

func playUnpaced(ctx context.Context, text string, emit func(Piece)) error {
	for from := 0; from < len(text); {
		if ctx.Err() != nil {
			return ended(ctx)
		}
		to := len(text)
		if to-from > unpacedPiece {
			for to = from; to < len(text) && to-from < unpacedPiece; {
				to = nextToken(text, to)
			}
		}
		emit(Piece{Text: text[from:to]})
		from = to
	}
	return nil
}

// nextToken returns the end of the token that starts at from. White space at the
// end of s belongs to the last token.
func nextToken(s string, from int) int {
	i := skipSpace(s, from)
	for first := i; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		if unicode.IsSpace(r) {
			break
		}
		han := unicode.Is(unicode.Han, r)
		if han && i > first {
			return i
		}
		i += n
		if han {
			break
		}
	}
	if skipSpace(s, i) == len(s) {
		return len(s)
	}
	return i
}

func skipSpace(s string, i int) int {
	for i < len(s) {
		r, n := utf8.DecodeRuneInString(s[i:])
		if !unicode.IsSpace(r) {
			break
		}
		i += n
	}
	return i
}

// prefixTokens returns the length of the first n tokens of s.
func prefixTokens(s string, n int64) int {
	end := 0
	for ; n > 0 && end < len(s); n-- {
		end = nextToken(s, end)
	}
	return end
}

func countTokens(s string) int {
	n := 0
	for i := 0; i < len(s); n++ {
		i = nextToken(s, i)
	}
	return n
}

// The script

// A script is what the directives of a question ask for, on one attempt.
type script struct {
	tokens int64
	sized  bool // tokens counts
	rate   int64
	wait   time.Duration
	fail   int // a status, 0 for none
	cut    int64
	cuts   bool // cut counts
	hang   bool
	refuse bool
	echo   string
	echoes bool // echo counts
	tools  []ToolCall
	rest   string // the question without its directives
}

// parseScript reads the directives in text. It takes time linear in its length,
// whatever it is made of.
func parseScript(text string, attempt int64) script {
	s := script{rate: -1}
	if !strings.Contains(text, "[[") {
		s.rate, s.rest = demoRate, text
		return s
	}
	seen := map[string]bool{}
	tried := 0 // an unclosed object is read to the end of the text: not too often
	var rest strings.Builder
	from := 0
	for i := 0; i < len(text); {
		at := strings.Index(text[i:], "[[")
		if at < 0 {
			break
		}
		i += at
		name, n := directiveName(text[i+2:])
		args := text[i+2+n:]
		used := 0 // of args, with the closing brackets
		switch name {
		case "echo":
			end := strings.Index(args, "]]")
			if end < 0 { // then nothing else can be closed either
				i = len(text)
				continue
			}
			if end < 1 || args[0] != ' ' {
				break
			}
			used = end + 2
			if !s.echoes {
				s.echo, s.echoes = args[1:end], true
			}
		case "tool":
			if tried == maxDemoActions {
				break
			}
			tried++
			var t ToolCall
			if t, used = parseTool(args); used > 0 {
				s.tools = append(s.tools, t)
			}
		case "tokens", "rate", "wait", "fail", "cut", "hang", "refuse":
			const longest = 64 // of a directive with numbers; the search stays short
			end := strings.Index(args[:min(len(args), longest)], "]]")
			if end < 0 || end > 0 && args[0] != ' ' {
				break
			}
			// A directive that does not apply to this attempt is taken out of the
			// question all the same, and leaves its place to the next of its kind.
			once, set := s.directive(name, strings.Fields(args[:end]))
			if set == nil {
				break
			}
			used = end + 2
			if !seen[name] && !(once && attempt != 1) {
				seen[name] = true
				set()
			}
		}
		if used == 0 {
			i++
			continue
		}
		rest.WriteString(text[from:i])
		i += 2 + n + used
		from = i
	}
	rest.WriteString(text[from:])
	s.rest = rest.String()
	if s.rate < 0 {
		s.rate = demoRate
		if s.echoes {
			s.rate = 0
		}
	}
	return s
}

func directiveName(s string) (name string, n int) {
	for n < len(s) && s[n] >= 'a' && s[n] <= 'z' {
		n++
	}
	return s[:n], n
}

// directive returns what sets the directive in s, nil when it is malformed, and
// whether it is for attempt 1 only.
func (s *script) directive(name string, args []string) (once bool, set func()) {
	if (name == "fail" || name == "cut") && len(args) == 2 && args[1] == "once" {
		once, args = true, args[:1]
	}
	if name == "hang" || name == "refuse" {
		if len(args) != 0 {
			return false, nil
		}
		return false, func() {
			s.hang = s.hang || name == "hang"
			s.refuse = s.refuse || name == "refuse"
		}
	}
	if len(args) != 1 {
		return false, nil
	}
	v, err := strconv.ParseUint(args[0], 10, 32)
	if err != nil {
		return false, nil
	}
	n := int64(v)
	switch {
	case name == "tokens" && n <= maxDemoTokens:
		return false, func() { s.tokens, s.sized = n, true }
	case name == "rate" && n <= maxDemoRate:
		return false, func() { s.rate = n }
	case name == "wait" && n <= maxDemoWait.Milliseconds():
		return false, func() { s.wait = time.Duration(n) * time.Millisecond }
	case name == "fail" && n >= 400 && n <= 599:
		return once, func() { s.fail = int(n) }
	case name == "cut" && n <= maxDemoTokens:
		return once, func() { s.cut, s.cuts = n, true }
	}
	return false, nil
}

// parseTool reads ` NAME {json}]]` and returns how long it is, 0 when it is not
// of that form.
func parseTool(s string) (ToolCall, int) {
	nameAt := skipSpace(s, 0)
	end := nameAt
	for end < len(s) && isActionByte(s[end]) {
		end++
	}
	jsonAt := skipSpace(s, end)
	if nameAt == 0 || end == nameAt || jsonAt == len(s) || s[jsonAt] != '{' {
		return ToolCall{}, 0
	}
	dec := json.NewDecoder(strings.NewReader(s[jsonAt:]))
	var arguments json.RawMessage
	if err := dec.Decode(&arguments); err != nil {
		return ToolCall{}, 0
	}
	closeAt := skipSpace(s, jsonAt+int(dec.InputOffset()))
	if !strings.HasPrefix(s[closeAt:], "]]") {
		return ToolCall{}, 0
	}
	return ToolCall{Name: s[nameAt:end], Arguments: string(arguments)}, closeAt + 2
}

func isActionByte(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c == '-' || c == '.'
}
