package llm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"semel/chat"
)

// said is what came of one call, with the time each piece took since the call.
type said struct {
	Answer
	pieces []string
	at     []time.Duration
	took   time.Duration
	err    error
}

func (s said) text() string { return strings.Join(s.pieces, "") }

// body is the text before the closing line.
func (s said) body() string {
	i := strings.LastIndex(s.Content, "\n\n")
	if i < 0 {
		return ""
	}
	return s.Content[:i]
}

func ask(ctx context.Context, d *Demo, c Call) said {
	var s said
	start := time.Now()
	s.Answer, s.err = d.Stream(ctx, c, func(p Piece) {
		s.pieces = append(s.pieces, p.Text)
		s.at = append(s.at, time.Since(start))
	})
	s.took = time.Since(start)
	return s
}

func user(question string) Call {
	return Call{RequestID: "r-0000001", Attempt: 1, Model: "demo", Turns: []Turn{{Role: "user", Content: question}}}
}

// wellFormed checks what must hold for every answer, and returns s.
func wellFormed(t *testing.T, s said) said {
	t.Helper()
	for i, p := range s.pieces {
		if !utf8.ValidString(p) {
			t.Errorf("piece %d is not valid UTF-8: %q", i, p)
		}
		if p == "" {
			t.Errorf("piece %d is empty", i)
		}
	}
	if s.err != nil {
		if !reflect.DeepEqual(s.Answer, Answer{}) {
			t.Errorf("a failed call returned %+v as well", s.Answer)
		}
		return s
	}
	if got := s.text(); got != s.Content {
		t.Errorf("the pieces say %q, the content is %q", got, s.Content)
	}
	if (s.Finish == chat.FinishTool) != (len(s.ToolCalls) > 0) {
		t.Errorf("finish %q with %d tool calls", s.Finish, len(s.ToolCalls))
	}
	if got := s.Usage.OutputTokens; got != chat.EstimateTokens(s.Content) {
		t.Errorf("usage says %d output tokens for %q", got, s.Content)
	}
	return s
}

func TestAFailureIsClassifiedByItsStatus(t *testing.T) {
	for _, tt := range []struct {
		statuses []int
		want     Error
	}{
		{[]int{429, 503, 529}, Error{Outcome: chat.OutcomeDefinite, Transient: true, Code: "provider_busy"}},
		{[]int{408, 500, 501, 502, 504, 520}, Error{Outcome: chat.OutcomeUnknown, Code: "provider_error"}},
		{[]int{400, 401, 403, 404, 413, 422, 499}, Error{Outcome: chat.OutcomeDefinite, Code: "provider_refused"}},
	} {
		for _, status := range tt.statuses {
			s := wellFormed(t, ask(t.Context(), NewDemo(), user(fmt.Sprintf("Hi [[fail %d]]", status))))
			got, ok := errors.AsType[*Error](s.err)
			if !ok {
				t.Fatalf("status %d: got %v, want an *Error", status, s.err)
			}
			if got.Outcome != tt.want.Outcome || got.Transient != tt.want.Transient || got.Code != tt.want.Code || got.Status != status {
				t.Errorf("status %d: got %+v, want %+v", status, *got, tt.want)
			}
			if got.Detail == "" || len(s.pieces) > 0 {
				t.Errorf("status %d: detail %q after pieces %q, want a sentence and no text", status, got.Detail, s.pieces)
			}
		}
	}
}

func TestARefusalIsDefiniteAndPermanent(t *testing.T) {
	s := wellFormed(t, ask(t.Context(), NewDemo(), user("Hi [[refuse]]")))
	got, ok := errors.AsType[*Error](s.err)
	if !ok || got.Outcome != chat.OutcomeDefinite || got.Transient || got.Code != "content_refused" {
		t.Errorf("got %v, want a definite, permanent content_refused", s.err)
	}
}

func TestOnceAppliesToTheFirstAttemptOnly(t *testing.T) {
	for _, tt := range []struct {
		question string
		codes    []string // by attempt, from 1
	}{
		{"[[fail 503]]", []string{"provider_busy", "provider_busy"}},
		{"[[fail 503 once]]", []string{"provider_busy", ""}},
		{"[[cut 2]]", []string{"line_lost", "line_lost"}},
		{"[[cut 2 once]]", []string{"line_lost", ""}},
		{"[[fail 503 once]] [[fail 400]]", []string{"provider_busy", "provider_refused"}},
		{"[[fail 503 once]] [[refuse]]", []string{"provider_busy", "content_refused"}},
	} {
		for i, want := range tt.codes {
			c := user("Hi " + tt.question + "[[rate 0]]")
			c.Attempt = int64(i + 1)
			s := wellFormed(t, ask(t.Context(), NewDemo(), c))
			got := ""
			if e, ok := errors.AsType[*Error](s.err); ok {
				got = e.Code
			}
			if got != want {
				t.Errorf("%s, attempt %d: got %q, want %q", tt.question, i+1, got, want)
			}
		}
	}
}

func TestACutLineHasGivenExactlyNTokens(t *testing.T) {
	for _, tt := range []struct {
		question string
		want     int
	}{
		{"Hi [[cut 0]]", 0},
		{"Hi [[cut 1]]", 1},
		{"Hi [[cut 7]]", 7},
		{"Hi [[cut 60]]", 60},
		{"Hi [[cut 5000]]", 5000},
		{"你好 [[cut 9]]", 9},
		{"你好 [[cut 333]]", 333},
		{"[[tokens 20]][[cut 12]]", 12},
		{"[[echo one two three four]][[cut 3]]", 3},
		{"[[echo one two]][[cut 30]]", 2}, // the end is never seen
	} {
		s := wellFormed(t, ask(t.Context(), NewDemo(), user(tt.question+"[[rate 0]]")))
		e, ok := errors.AsType[*Error](s.err)
		if !ok || e.Outcome != chat.OutcomeUnknown || e.Code != "line_lost" {
			t.Errorf("%s: got %v, want line_lost with an unknown outcome", tt.question, s.err)
		}
		if got := countTokens(s.text()); got != tt.want {
			t.Errorf("%s: got %d tokens, want %d: %q", tt.question, got, tt.want, s.text())
		}
	}
}

func TestTokensCountTheTextBeforeTheClosingLine(t *testing.T) {
	for _, question := range []string{"Hello", "你好", "How do I compare tea with coffee?", "写一个 Go 函数", "code, please"} {
		for n := range 120 {
			checkSize(t, question, n)
		}
		checkSize(t, question, 9_999)
	}
	checkSize(t, "Hello", maxDemoTokens)
}

func checkSize(t *testing.T, question string, n int) {
	t.Helper()
	s := wellFormed(t, ask(t.Context(), NewDemo(), user(fmt.Sprintf("%s [[tokens %d]] [[rate 0]]", question, n))))
	if s.err != nil {
		t.Fatal(s.err)
	}
	if got := countTokens(s.body()); got != n {
		t.Errorf("%s: got %d tokens, want %d: %q", question, got, n, s.body())
	}
	if !strings.Contains(s.Content[len(s.body()):], "model call no. 1") {
		t.Errorf("%s, %d tokens: no closing line in %q", question, n, s.Content)
	}
	if strings.Count(s.body(), "```")%2 != 0 {
		t.Errorf("%s, %d tokens: an open code block would swallow the closing line: %q", question, n, s.body())
	}
}

func TestAnEchoIsExactlyItsText(t *testing.T) {
	for _, tt := range []struct{ question, want string }{
		{"[[echo 42]]", "42"},
		{"Say it: [[echo 42]] now", "42"},
		{"[[echo   two  spaces ]]", "  two  spaces "},
		{"[[echo a\n\n```go\nx := y[1]\n```\n]]", "a\n\n```go\nx := y[1]\n```\n"},
		{"[[echo {\"a\":[1]} [x] [[tokens 3]]", "{\"a\":[1]} [x] [[tokens 3"},
		{"[[echo 一次，只此一次。😀]]", "一次，只此一次。😀"},
		{"[[echo first]] [[echo second]]", "first"},
		{"[[tokens 9]] [[echo short]]", "short"},
		{"[[echo ]]", ""},
		{"[[echo broken \xff rune]]", "broken \uFFFD rune"},
	} {
		s := wellFormed(t, ask(t.Context(), NewDemo(), user(tt.question)))
		if s.err != nil || s.Content != tt.want || s.Finish != chat.FinishStop {
			t.Errorf("%q: got %q, finish %q, error %v; want %q", tt.question, s.Content, s.Finish, s.err, tt.want)
		}
	}
}

func TestAMalformedDirectiveIsOrdinaryText(t *testing.T) {
	for _, text := range []string{
		"[[tokens]]", "[[tokens x]]", "[[tokens -1]]", "[[tokens +1]]", "[[tokens 1.5]]", "[[tokens 100001]]", "[[tokens 1 2]]",
		"[[tokens 99999999999999999999]]", "[[tokens 5", "[[tokens 5]", "[[Tokens 5]]", "[[ tokens 5]]", "[tokens 5]", "[[tokens5]]",
		"[[rate 1000001]]", "[[rate fast]]", "[[wait 3600001]]", "[[wait 1s]]",
		"[[fail]]", "[[fail 200]]", "[[fail 600]]", "[[fail 503 twice]]", "[[fail once]]",
		"[[cut]]", "[[cut 100001]]", "[[cut 3 times]]", "[[hang 1]]", "[[hang now]]", "[[refuse it]]", "[[echo]]", "[[echo x", "[[echoes x]]",
		"[[tool]]", "[[tool x]]", "[[tool x {]]", "[[tool x {}]", "[[tool x [1]]]", "[[tool {}]]", "[[tool x {} y]]", "[[tool a b {}]]",
		"[[tool x {\"a\":}]]", "[[unknown 1]]", "[[]]", "[[", "]]", "[[[[", "[[tool x " + strings.Repeat("[", 50),
	} {
		s := parseScript("Hi "+text, 1)
		if want := (script{rate: demoRate, rest: "Hi " + text}); !reflect.DeepEqual(s, want) {
			t.Errorf("%s: got %+v, want it as text", text, s)
		}
	}
}

func TestDirectivesLeaveTheQuestion(t *testing.T) {
	const question = `Dear [[tokens 5]]model[[cut 3 once]], [[tool pay {"a":[[1]]}]]what [[[wait 5]] is [[tokens 6]]this[[echo ? ]]?`
	got := parseScript(question, 2)
	want := script{
		tokens: 5, sized: true, wait: 5 * time.Millisecond, echo: "? ", echoes: true,
		tools: []ToolCall{{Name: "pay", Arguments: `{"a":[[1]]}`}},
		rest:  "Dear model, what [ is this?",
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

func TestReadingDirectivesTakesLinearTime(t *testing.T) {
	start := time.Now()
	for _, part := range []string{"[", "[[", "[[echo ", "[[tool x {\"", "[[tool x {\"a\":1} ", "[[tokens ", "[[tokens 1", "]]", "[[echo x", "[[zzzz"} {
		parseScript(strings.Repeat(part, (256<<10)/len(part)), 1)
		parseScript(strings.Repeat(part, (256<<10)/len(part))+"]]", 1)
	}
	if took := time.Since(start); took > 20*time.Second { // milliseconds; quadratic would be minutes
		t.Errorf("took %v", took)
	}
}

func TestOnlyTheLastUserTurnIsAScript(t *testing.T) {
	c := user("[[fail 400]]")
	c.Turns = append(c.Turns, Turn{Role: "assistant", Content: "[[fail 400]]"}, Turn{Role: "user", Content: "[[echo fine]]"})
	c.Turns = slices.Insert(c.Turns, 0, Turn{Role: "system", Content: "[[refuse]]"})
	if s := wellFormed(t, ask(t.Context(), NewDemo(), c)); s.err != nil || s.Content != "fine" {
		t.Errorf("got %q, %v; want fine", s.Content, s.err)
	}
}

func TestAToolDirectiveAlwaysAsksForThatAction(t *testing.T) {
	for _, tt := range []struct {
		question string
		want     []ToolCall
	}{
		{`[[tool sign {"title":"A [draft]"}]]`, []ToolCall{{"call_1_0", "sign", `{"title":"A [draft]"}`}}},
		{`[[tool sign { "b" : [[1,2],[3]], "a":{"x":"]]"} } ]] Go on`, []ToolCall{{"call_1_0", "sign", `{ "b" : [[1,2],[3]], "a":{"x":"]]"} }`}}},
		{`[[tool a {}]] and [[tool b-2.x {"n":1}]]`, []ToolCall{{"call_1_0", "a", "{}"}, {"call_1_1", "b-2.x", `{"n":1}`}}},
		{`[[tool a {}]] [[tokens 30]]`, []ToolCall{{"call_1_0", "a", "{}"}}},
		{`[[tool a {}]] 你好`, []ToolCall{{"call_1_0", "a", "{}"}}},
	} {
		s := wellFormed(t, ask(t.Context(), NewDemo(), user(tt.question+"[[rate 0]]")))
		if s.err != nil || !slices.Equal(s.ToolCalls, tt.want) {
			t.Errorf("%s: got %v, %v; want %v", tt.question, s.ToolCalls, s.err, tt.want)
		}
		if !strings.Contains(s.Content, "model call no. 1") || len(s.body()) < 20 {
			t.Errorf("%s: got %q, want a sentence and the closing line", tt.question, s.Content)
		}
	}
	if s := wellFormed(t, ask(t.Context(), NewDemo(), user(`[[tool a {}]][[echo exactly this]]`))); s.Content != "exactly this" || s.Finish != chat.FinishTool {
		t.Errorf("with an echo: got %q, finish %q", s.Content, s.Finish)
	}
	if s := wellFormed(t, ask(t.Context(), NewDemo(), user(strings.Repeat(`[[tool a {}]]`, 20)+"[[rate 0]]"))); len(s.ToolCalls) != maxDemoActions {
		t.Errorf("got %d actions, want no more than %d", len(s.ToolCalls), maxDemoActions)
	}
}

var signContract = Tool{Name: "sign_contract", Description: "Have a contract signed", Parameters: `{"type":"object",
	"required":["title","party"],"properties":{"title":{"type":"string"},"party":{"type":"string"}},"additionalProperties":false}`}

func TestAQuestionThatNamesAnActionAsksForIt(t *testing.T) {
	refund := Tool{Name: "refund", Description: "Return money to a customer", Parameters: `{"type":"object","required":["amount"],
		"properties":{"amount":{"type":"integer","minimum":10},"note":{"type":"string"}}}`}
	signChinese := signContract
	signChinese.Description = "签署合同"
	opaque := Tool{Name: "do_it", Description: "签署合同"}
	for _, tt := range []struct {
		question string
		tools    []Tool
		want     string // name and arguments
	}{
		{"Please draft the contract with ACME Ltd and have it signed.", []Tool{refund, signContract}, `sign_contract {"party":"ACME Ltd","title":"Contract with ACME Ltd"}`},
		{"Sign the contracts", []Tool{signContract}, `sign_contract {"party":"Example Ltd","title":"Contracts"}`},
		{"Refund 250 to the customer, not 7", []Tool{signContract, refund}, `refund {"amount":250}`},
		{"I want a refund of 7", []Tool{refund}, `refund {"amount":10}`},
		{"请起草与北京某公司的合同并签署", []Tool{signChinese}, `sign_contract {"party":"北京某公司","title":"合同：北京某公司"}`},
		{"请把合同签了", []Tool{signContract}, `sign_contract {"party":"示例公司","title":"把合同签了"}`},
		{"请签署合同", []Tool{opaque}, `do_it {}`},
		{"What is a contract?", []Tool{signContract}, ""},
		{"Tell me about designs", []Tool{signContract}, ""},
		{"Sign the contract", nil, ""},
	} {
		c := user(tt.question + "[[rate 0]]")
		c.Tools = tt.tools
		s := wellFormed(t, ask(t.Context(), NewDemo(), c))
		got := ""
		if len(s.ToolCalls) == 1 {
			got = s.ToolCalls[0].Name + " " + s.ToolCalls[0].Arguments
		}
		if got != tt.want {
			t.Errorf("%s: got %s, want %s", tt.question, got, tt.want)
		}
		if got != "" && !strings.Contains(s.Content, "`"+s.ToolCalls[0].Name+"`") {
			t.Errorf("%s: the text does not name the action: %q", tt.question, s.Content)
		}
	}
}

func TestArgumentsFitTheirSchema(t *testing.T) {
	all := Tool{Name: "make_thing", Parameters: `{"type":"object","required":["a","b","c","d","e","f","g","h","i","j","k","missing",7],"properties":{
		"a":{"const":"fixed"},"b":{"default":3},"c":{"enum":["red","green"]},"d":{"type":"boolean"},"e":{"type":["null","string"]},
		"f":{"type":"array","items":{"type":"string"}},"g":{"type":"array","minItems":1,"items":{"type":"integer","maximum":0}},
		"h":{"type":"object","required":["email"],"properties":{"email":{"type":"string"}}},"i":{"type":"string","maxLength":3},
		"j":{"type":"string","format":"date"},"k":true,"optional":{"type":"string"}}}`}
	c := user("Make the thing <now> [[rate 0]]")
	c.Tools = []Tool{all}
	s := wellFormed(t, ask(t.Context(), NewDemo(), c))
	if len(s.ToolCalls) != 1 {
		t.Fatalf("got %v, want one action", s.ToolCalls)
	}
	var got map[string]any
	if err := json.Unmarshal([]byte(s.ToolCalls[0].Arguments), &got); err != nil {
		t.Fatal(err)
	}
	want := map[string]any{"a": "fixed", "b": 3.0, "c": "red", "d": true, "e": nil, "f": []any{}, "g": []any{0.0},
		"h": map[string]any{"email": "someone@example.com"}, "i": "Thi", "j": "2030-01-01", "k": "Thing", "missing": "Thing"}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
	for _, broken := range []string{"", "null", "[]", "true", "{", `{"properties":[],"required":{}}`, `{"required":["x"]}`} {
		all.Parameters = broken
		c.Tools = []Tool{all}
		if s := wellFormed(t, ask(t.Context(), NewDemo(), c)); len(s.ToolCalls) != 1 || !json.Valid([]byte(s.ToolCalls[0].Arguments)) {
			t.Errorf("schema %q: got %v", broken, s.ToolCalls)
		}
	}
}

func TestMoreOfAnAnswerDoesNotAskForItsActionAgain(t *testing.T) {
	c := user("Sign the contract [[rate 0]]")
	c.Tools = []Tool{signContract}
	c.Turns = append(c.Turns, Turn{Role: "assistant", Content: "I would like to"})
	c.Continue = true
	if s := wellFormed(t, ask(t.Context(), NewDemo(), c)); s.err != nil || len(s.ToolCalls) > 0 {
		t.Errorf("got %v, %v; want text only", s.ToolCalls, s.err)
	}
}

func TestContinuingGoesOnWhereTheTextStopped(t *testing.T) {
	for _, tt := range []struct{ question, before, starts string }{
		{"Tell me about tides", "The moon pulls the", " … "},
		{"Tell me about tides", "The moon pulls the water.", "\n\n"},
		{"Tell me about tides", "It does.\n\nmodel call no. 3", "\n\n"},
		{"说说潮汐", "月亮吸引", "……"},
		{"说说潮汐", "月亮吸引海水。", "\n\n"},
		{"[[echo one two three]]", "one tw", "o three"},
		{"[[echo one two three]]", "two", "one two three"},
		{"[[tokens 8]] tides", "The moon", " … "},
	} {
		c := user(tt.question + "[[rate 0]]")
		c.Turns = append(c.Turns, Turn{Role: "assistant", Content: tt.before})
		c.Continue = true
		s := wellFormed(t, ask(t.Context(), NewDemo(), c))
		if s.err != nil || !strings.HasPrefix(s.Content, tt.starts) {
			t.Errorf("%q then %q: got %q, %v; want it to start with %q", tt.question, tt.before, s.Content, s.err, tt.starts)
		}
		for _, p := range []*phrases{&english, &chinese} {
			for _, greeting := range p.openingPlain {
				if strings.Contains(s.Content, greeting) {
					t.Errorf("%q then %q: starts afresh with %q", tt.question, tt.before, greeting)
				}
			}
		}
	}
}

func TestMaxTokensCutTheAnswer(t *testing.T) {
	for _, tt := range []struct {
		question string
		most     int64
		tokens   int // -1: any
		finish   chat.Finish
	}{
		{"Hello [[rate 0]]", 10, 10, chat.FinishLength},
		{"你好 [[rate 0]]", 1, 1, chat.FinishLength},
		{"Hello [[rate 0]]", 100_000, -1, chat.FinishStop},
		{"[[tokens 300]][[rate 0]]", 299, 299, chat.FinishLength},
		{"[[echo one two three]]", 2, 2, chat.FinishLength},
		{"[[echo one two three]]", 3, 3, chat.FinishStop},
		{"[[tool a {}]][[echo one two three]]", 2, 2, chat.FinishLength},
		{"[[tool a {}]][[echo one two three]]", 3, 3, chat.FinishTool},
	} {
		c := user(tt.question)
		c.Params.MaxTokens = &tt.most
		s := wellFormed(t, ask(t.Context(), NewDemo(), c))
		if got := countTokens(s.Content); s.err != nil || s.Finish != tt.finish || tt.tokens >= 0 && got != tt.tokens {
			t.Errorf("%s, at most %d: got %d tokens, finish %q, error %v; want %d, %q", tt.question, tt.most, got, s.Finish, s.err, tt.tokens, tt.finish)
		}
	}
	c, none := user("Hello"), int64(0)
	c.Params.MaxTokens = &none
	if e, ok := errors.AsType[*Error](ask(t.Context(), NewDemo(), c).err); !ok || e.Outcome != chat.OutcomeDefinite || e.Transient {
		t.Errorf("no tokens at all: got %v, want a definite refusal", e)
	}
}

func TestAnAnswerIsShortMarkdownAboutTheQuestion(t *testing.T) {
	for _, tt := range []struct{ question, topic, block string }{
		{"What is the capital of France?", "“capital of France”", "\n- **"},
		{"How do I bake bread?", "“bake bread”", "\n1. **"},
		{"Which is better, tea or coffee?", "“tea or coffee”", "\n|---|---|\n"},
		{"Write a Go function, please", "“Go function”", "```go\n"},
		{"Explain exactly-once delivery", "“exactly-once delivery”", "\n- **"},
		{"Что такое чай?", "“Что такое чай”", "\n- **"},
		{"Hello!", "", "\n- **"},
		{"<b onclick=`x`>x</b> | [a](b) {topic} %d", "", "\n- **"},
		{"什么是人工智能？", "“人工智能”", "\n- **"},
		{"怎么学习围棋", "“学习围棋”", "\n1. **"},
		{"Kubernetes 和 Docker 有什么区别？", "“Kubernetes 和 Docker”", "\n|---|---|\n"},
		{"用 Python 写一段代码", "Python", "```python\n"},
		{"你好", "", "\n- **"},
		{"", "", "\n- **"},
		{strings.Repeat("tea ", 50_000) + "?", "“tea tea tea tea”", "\n- **"},
	} {
		c := user(tt.question)
		d := NewDemo()
		for range 60 {
			for _, before := range [][]Turn{nil, {{Role: "user", Content: "Who wrote the long and winding history of " + tt.topic}, {Role: "assistant", Content: "x"}}} {
				c.Turns = append(slices.Clone(before), Turn{Role: "user", Content: tt.question + "[[rate 0]]"})
				s := wellFormed(t, ask(t.Context(), d, c))
				if s.err != nil {
					t.Fatal(s.err)
				}
				if n := countTokens(s.Content); n < minBriefTokens || n > maxBriefTokens {
					t.Fatalf("%.60q: got %d tokens, want %d to %d: %q", tt.question, n, minBriefTokens, maxBriefTokens, s.Content)
				}
				if !strings.Contains(s.Content, tt.topic) || !strings.Contains(s.Content, tt.block) {
					t.Fatalf("%.60q: got %q, want %q and %q in it", tt.question, s.Content, tt.topic, tt.block)
				}
				if strings.ContainsAny(s.Content, "{}<>") && !strings.Contains(tt.block, "```") || strings.Contains(s.Content, "%!") {
					t.Fatalf("%.60q: something unfilled or unsafe in %q", tt.question, s.Content)
				}
				if hasHan(s.Content) != hasHan(tt.question) {
					t.Fatalf("%.60q: answered in another language: %q", tt.question, s.Content)
				}
			}
		}
	}
}

func TestItSaysThatItIsBuiltInAndWhatItRemembers(t *testing.T) {
	for _, tt := range []struct {
		question string
		earlier  []string
		want     []string
	}{
		{"What is tea?", nil, []string{"“tea”"}},
		{"What is tea?", []string{"What is milk?"}, []string{"“tea”", "one earlier question", "“milk”"}},
		{"What is tea?", []string{"什么是糖", "What is milk?", "[[echo 1]]"}, []string{"3 earlier questions", "something short"}},
		{"什么是茶？", []string{"What is milk?", "什么是糖？"}, []string{"“茶”", " 2 个问题", "“糖”"}},
		{"[[tokens 150]]", []string{"什么是糖？"}, []string{"内置", " 1 个问题"}},
	} {
		var turns []Turn
		for _, e := range tt.earlier {
			turns = append(turns, Turn{Role: "user", Content: e}, Turn{Role: "assistant", Content: "…"})
		}
		c := user("")
		c.Turns = append(turns, Turn{Role: "user", Content: tt.question + "[[rate 0]]"})
		s := wellFormed(t, ask(t.Context(), NewDemo(), c))
		for _, want := range tt.want {
			if !strings.Contains(s.Content, want) {
				t.Errorf("%q: got %q, want %q in it", tt.question, s.Content, want)
			}
		}
	}
	for _, s := range slices.Concat(english.honest, chinese.honest) {
		if !strings.Contains(s, "built-in") && !strings.Contains(s, "built into") && !strings.Contains(s, "demonstration model") && !strings.Contains(s, "内置") {
			t.Errorf("%q hides what it is", s)
		}
	}
}

func TestEveryCallAnswersInOtherWords(t *testing.T) {
	for _, question := range []string{"What is tea?", "Hello", "什么是茶？", "What is tea? [[tokens 40]]"} {
		d := NewDemo()
		seen := map[string]bool{}
		opening := ""
		for i := range 200 {
			s := wellFormed(t, ask(t.Context(), d, user(question+"[[rate 0]]")))
			// In 40 tokens there is no room for always other words.
			if seen[s.body()] && !strings.Contains(question, "[[") {
				t.Fatalf("%s: call %d repeats %q", question, i+1, s.body())
			}
			seen[s.body()] = true
			if first := s.Content[:prefixTokens(s.Content, 12)]; first == opening {
				t.Fatalf("%s: two calls in a row open with %q", question, first)
			} else {
				opening = first
			}
		}
	}
}

func TestTheClosingLineCountsTheCallsOfThisModel(t *testing.T) {
	d := NewDemo()
	for _, question := range []string{"[[fail 503]]", "[[echo x]]", "[[cut 1]][[rate 0]]"} {
		ask(t.Context(), d, user(question))
	}
	if s := wellFormed(t, ask(t.Context(), d, user("Hi [[rate 0]]"))); !strings.HasSuffix(s.Content, "\n\nmodel call no. 4") {
		t.Errorf("got %q, want it to end with model call no. 4", s.Content)
	}
	if s := wellFormed(t, ask(t.Context(), d, user("你好 [[tokens 3]][[rate 0]]"))); !strings.HasSuffix(s.Content, "\n\n第 5 次模型调用（model call no. 5）") {
		t.Errorf("got %q, want it to end with call 5", s.Content)
	}
	if s := wellFormed(t, ask(t.Context(), d, user("[[tokens 0]][[rate 0]]"))); s.Content != "model call no. 6" {
		t.Errorf("got %q, want only the closing line", s.Content)
	}
	if got := d.Calls(); got != 6 {
		t.Errorf("got %d calls, want 6", got)
	}
	if s := ask(t.Context(), NewDemo(), user("[[rate 0]]")); !strings.HasSuffix(s.Content, "no. 1") {
		t.Errorf("another model does not start at 1: %q", s.Content)
	}
}

func TestASeedMakesTheTextReproducible(t *testing.T) {
	body := func(d *Demo, question string, seed, attempt int64) string {
		c := user(question)
		c.Attempt = attempt
		c.Params.Seed = &seed
		return wellFormed(t, ask(t.Context(), d, c)).body()
	}
	for _, question := range []string{"What is tea? [[rate 0]]", "什么是茶？[[rate 0]]", "[[tokens 500]][[rate 0]]"} {
		d := NewDemo()
		first := body(d, question, 7, 1)
		if again := body(d, question, 7, 2); again != first {
			t.Errorf("%s: got %q, then %q", question, first, again)
		}
		if elsewhere := body(NewDemo(), question, 7, 1); elsewhere != first {
			t.Errorf("%s: another process says %q, not %q", question, elsewhere, first)
		}
		if other := body(d, question, 8, 1); other == first {
			t.Errorf("%s: another seed says the same: %q", question, other)
		}
		if other := body(d, question+" ", 7, 1); other == first {
			t.Errorf("%s: another question gets the same answer: %q", question, other)
		}
	}
}

func TestUsageCountsAllTurnsAndCachesAllButTheQuestion(t *testing.T) {
	c := user("")
	c.Turns = []Turn{{Role: "system", Content: "Be brief, please."}, {Role: "user", Content: "什么是茶？"}, {Role: "assistant", Content: "Leaves."}, {Role: "user", Content: "Thanks. [[echo one two]]"}}
	before := chat.EstimateTokens(c.Turns[0].Content) + chat.EstimateTokens(c.Turns[1].Content) + chat.EstimateTokens(c.Turns[2].Content)
	want := chat.Usage{InputTokens: before + chat.EstimateTokens(c.Turns[3].Content), CachedTokens: before, OutputTokens: chat.EstimateTokens("one two")}
	if s := wellFormed(t, ask(t.Context(), NewDemo(), c)); s.Usage != want {
		t.Errorf("got %+v, want %+v", s.Usage, want)
	}
}

func TestACallWithoutAQuestionIsAnsweredToo(t *testing.T) {
	for _, turns := range [][]Turn{nil, {{Role: "system", Content: "x"}}, {{Role: "assistant", Content: "x"}}} {
		for _, goOn := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				if s := wellFormed(t, ask(t.Context(), NewDemo(), Call{Turns: turns, Continue: goOn})); s.err != nil || s.Content == "" {
					t.Errorf("%v: got %q, %v", turns, s.Content, s.err)
				}
			})
		}
	}
}

func TestTokensArriveAtTheirRateWithoutDrift(t *testing.T) {
	for _, tt := range []struct {
		question string
		tokens   int // with the closing line
		rate     int
	}{
		{"[[tokens 81]] Hello", 85, 40},
		{"[[tokens 30]] 你好", 41, 40},
		{"[[tokens 1000]][[rate 7]]", 1004, 7},
		{"[[tokens 50]][[rate 1]]", 54, 1},
		{"[[rate 3]][[echo one two three four]]", 4, 3},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := wellFormed(t, ask(t.Context(), NewDemo(), user(tt.question)))
			if s.err != nil || len(s.pieces) != tt.tokens {
				t.Fatalf("%s: got %d pieces, %v; want %d", tt.question, len(s.pieces), s.err, tt.tokens)
			}
			for i, at := range s.at {
				if want := time.Duration(i) * time.Second / time.Duration(tt.rate); at != want {
					t.Fatalf("%s: token %d came after %v, want %v", tt.question, i, at, want)
				}
			}
		})
	}
}

func TestASlowReaderDoesNotDelayTheTokensAfterIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start, pieces := time.Now(), 0
		_, err := NewDemo().Stream(t.Context(), user("[[tokens 96]][[rate 10]]"), func(Piece) {
			if pieces++; pieces == 5 {
				time.Sleep(3 * time.Second) // fake time: the reader is the one who is slow
			}
		})
		if took, want := time.Since(start), 9900*time.Millisecond; err != nil || took != want {
			t.Errorf("took %v, %v; want %v", took, err, want)
		}
		if pieces != 100-29 {
			t.Errorf("got %d pieces, want the tokens that were late in one", pieces)
		}
	})
}

func TestWithoutARateTheTextComesInFewLargePieces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for question, most := range map[string]int{"[[rate 0]]": 1, "[[echo one two three]]": 1, "[[rate 0]][[tokens 100000]]": 60} {
			s := wellFormed(t, ask(t.Context(), NewDemo(), user(question)))
			if s.err != nil || len(s.pieces) > most || s.took != 0 {
				t.Errorf("%s: got %d pieces in %v, %v", question, len(s.pieces), s.took, s.err)
			}
		}
	})
}

func TestAWaitComesBeforeEverythingElse(t *testing.T) {
	for _, question := range []string{"[[echo x]]", "[[fail 503]]", "[[refuse]]", "[[cut 0]]", "[[rate 0]] Hello"} {
		synctest.Test(t, func(t *testing.T) {
			s := wellFormed(t, ask(t.Context(), NewDemo(), user(question+"[[wait 1500]]")))
			if s.took != 1500*time.Millisecond {
				t.Errorf("%s took %v, want 1.5s", question, s.took)
			}
			if len(s.at) > 0 && s.at[0] != 1500*time.Millisecond {
				t.Errorf("%s: the first token came after %v", question, s.at[0])
			}
		})
	}
}

func TestAnEndingContextEndsTheCallAtOnce(t *testing.T) {
	why := errors.New("somebody pressed stop")
	for _, tt := range []struct {
		question string
		after    time.Duration
		tokens   int
	}{
		{"[[hang]]", time.Hour * 24 * 365, 0},
		{"[[hang]]", 0, 0},
		{"[[wait 60000]][[echo x]]", time.Second, 0},
		{"Hello", 0, 0},
		{"[[echo x]]", 0, 0},
		{"[[tokens 100]][[rate 10]]", 1050 * time.Millisecond, 11},
		{"[[tokens 100]][[rate 1]]", 500 * time.Millisecond, 1},
	} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancelCause(t.Context())
			if tt.after == 0 {
				cancel(why)
			} else {
				defer time.AfterFunc(tt.after, func() { cancel(why) }).Stop()
			}
			s := wellFormed(t, ask(ctx, NewDemo(), user(tt.question)))
			if !errors.Is(s.err, context.Canceled) || !errors.Is(s.err, why) {
				t.Errorf("%s: got %v, want it to wrap the cancellation and its cause", tt.question, s.err)
			}
			if s.took != tt.after || len(s.pieces) != tt.tokens {
				t.Errorf("%s: ended after %v and %d tokens, want %v and %d", tt.question, s.took, len(s.pieces), tt.after, tt.tokens)
			}
			if _, ok := errors.AsType[*Error](s.err); ok {
				t.Errorf("%s: %v looks like a provider's failure", tt.question, s.err)
			}
		})
	}
}

func TestADeadlineIsReportedAsOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if s := ask(ctx, NewDemo(), user("[[hang]]")); !errors.Is(s.err, context.DeadlineExceeded) || s.took != time.Minute {
			t.Errorf("got %v after %v", s.err, s.took)
		}
	})
}

func TestAReaderMayCancelFromWithin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		pieces := 0
		_, err := NewDemo().Stream(ctx, user("[[tokens 100000]][[rate 0]]"), func(Piece) { pieces++; cancel() })
		if !errors.Is(err, context.Canceled) || pieces != 1 {
			t.Errorf("got %v after %d pieces, want the end after the first", err, pieces)
		}
	})
}

func TestManyCallsAtOnceAreCountedOneByOne(t *testing.T) {
	d := NewDemo()
	const callers, each = 16, 25
	numbers := make(chan string, callers*each)
	var wg sync.WaitGroup
	for range callers {
		wg.Go(func() {
			for range each {
				s := ask(context.Background(), d, user("What is tea? [[rate 0]]"))
				numbers <- s.Content[strings.LastIndex(s.Content, "\n")+1:]
			}
		})
	}
	wg.Wait()
	close(numbers)
	seen := map[string]bool{}
	for n := range numbers {
		if seen[n] {
			t.Errorf("two calls ended with %q", n)
		}
		seen[n] = true
	}
	if got := d.Calls(); got != callers*each || !seen[fmt.Sprintf("model call no. %d", callers*each)] {
		t.Errorf("got %d calls, want %d", got, callers*each)
	}
}

func TestATokenIsAWordOrAHanCharacter(t *testing.T) {
	for s, want := range map[string][]string{
		"":                    nil,
		"  ":                  {"  "},
		"one":                 {"one"},
		" one  two\n\nthree ": {" one", "  two", "\n\nthree "},
		"什么是茶？":               {"什", "么", "是", "茶", "？"},
		"用 Go语言，写once吧":       {"用", " Go", "语", "言", "，", "写", "once", "吧"},
		"| a |":               {"|", " a", " |"},
		"茶 \n":                {"茶 \n"},
		"é😀 \u3000x":          {"é😀", " \u3000x"},
	} {
		var got []string
		for i := 0; i < len(s); {
			j := nextToken(s, i)
			got = append(got, s[i:j])
			i = j
		}
		if !slices.Equal(got, want) {
			t.Errorf("%q: got %q, want %q", s, got, want)
		}
	}
}

func TestEachSlotHasEnoughVariety(t *testing.T) {
	for name, p := range map[string]*phrases{"english": &english, "chinese": &chinese} {
		v := reflect.ValueOf(*p)
		for i := range v.NumField() {
			if v.Field(i).Type() != reflect.TypeFor[[]string]() {
				continue
			}
			var slot []string
			for j := range v.Field(i).Len() {
				slot = append(slot, v.Field(i).Index(j).String())
			}
			if len(slot) < 12 {
				t.Errorf("%s %s has %d variants, want 12 or more", name, v.Type().Field(i).Name, len(slot))
			}
			for j, s := range slot {
				if slices.Index(slot, s) != j {
					t.Errorf("%s %s says %q twice", name, v.Type().Field(i).Name, s)
				}
				if s != strings.TrimSpace(s) || s == "" {
					t.Errorf("%s %s: white space around %q", name, v.Type().Field(i).Name, s)
				}
			}
		}
		if len(p.criteria) < 12 {
			t.Errorf("%s: %d criteria, want 12 or more", name, len(p.criteria))
		}
	}
}

func FuzzDirectives(f *testing.F) {
	for _, s := range []string{
		"Hello", "你好，世界", "[[tokens 40]] x", "[[rate 0]]", "[[wait 10]]", "[[fail 429 once]]", "[[cut 3]]", "[[hang]]", "[[echo a]b]]",
		`[[tool sign {"a":"]]"}]]`, "[[refuse]]", "[[[[echo [[", "[[tool x {", "sign the contract with ACME 12", "\xff[[echo \xff]]",
		"请与北京公司签合同", "compare a | b", "｜“”……", "[[tokens 12]]写代码",
	} {
		f.Add(s, int64(1), false)
		f.Add(s, int64(2), true)
	}
	f.Fuzz(func(t *testing.T, question string, attempt int64, goOn bool) {
		s := parseScript(question, attempt)
		if !strings.Contains(question, "[[") && s.rest != question {
			t.Errorf("took %q out of a question without directives", question)
		}
		again := parseScript(question, attempt)
		if !reflect.DeepEqual(s, again) {
			t.Errorf("read %+v, then %+v", s, again)
		}
		switch {
		case s.tokens < 0 || s.tokens > maxDemoTokens, s.cut < 0 || s.cut > maxDemoTokens, s.rate < 0 || s.rate > maxDemoRate,
			s.wait < 0 || s.wait > maxDemoWait, s.fail != 0 && (s.fail < 400 || s.fail > 599), len(s.tools) > maxDemoActions:
			t.Errorf("beyond the bounds: %+v", s)
		}
		for _, tool := range s.tools {
			if !json.Valid([]byte(tool.Arguments)) {
				t.Errorf("arguments %q are not JSON", tool.Arguments)
			}
		}
		c := user(question)
		c.Attempt, c.Continue, c.Tools = attempt, goOn, []Tool{signContract}
		c.Turns = append(c.Turns, Turn{Role: "assistant", Content: question})
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 48*time.Hour)
			defer cancel()
			got := wellFormed(t, ask(ctx, NewDemo(), c))
			if _, ok := errors.AsType[*Error](got.err); got.err != nil && !ok && !errors.Is(got.err, context.DeadlineExceeded) {
				t.Errorf("got %v, which is neither classified nor the end of the context", got.err)
			}
			if got.err == nil && s.sized && !s.echoes && countTokens(got.body()) != int(s.tokens) && !goOn {
				t.Errorf("got %d tokens, want %d: %q", countTokens(got.body()), s.tokens, got.Content)
			}
			for _, tool := range got.ToolCalls {
				if !json.Valid([]byte(tool.Arguments)) {
					t.Errorf("arguments %q are not JSON", tool.Arguments)
				}
			}
		})
	})
}

func BenchmarkDemo(b *testing.B) {
	for _, question := range []string{"[[echo x]]", "[[rate 0]] What is tea?", "[[rate 0]][[tokens 1000]]"} {
		b.Run(question, func(b *testing.B) {
			d, c := NewDemo(), user(question)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := d.Stream(b.Context(), c, func(Piece) {}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
