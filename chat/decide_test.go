package chat

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// contract is the example of the documentation.
func contract() Action {
	return Action{
		Name:            "sign_contract",
		Description:     map[string]string{"en": "Have a contract signed", "zh-CN": "签署合同"},
		Parameters:      json.RawMessage(`{"type":"object","required":["title","party"],"properties":{"title":{"type":"string"},"party":{"type":"string"}},"additionalProperties":false}`),
		Approval:        ApprovalAsk,
		AwaitCallback:   true,
		CallbackTimeout: 24 * 3600e9,
		To:              "webhook http://127.0.0.1:9900/sign",
		Compensates:     true,
	}
}

func declareT(t testing.TB, list ...Action) *Declarations {
	t.Helper()
	d, err := Declare(list)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// shop declares one action of each approval, and schemas of many kinds.
func shop(t testing.TB) *Declarations {
	t.Helper()
	return declareT(t,
		contract(),
		Action{Name: "note", Approval: ApprovalAuto, Parameters: json.RawMessage(`{"type":"object"}`)},
		Action{Name: "deep", Approval: ApprovalAuto, Parameters: json.RawMessage(deeply(`{"type":"object","properties":{"`+longName+`":`, `{"type":"string"}`, `}}`))},
		Action{Name: "wipe", Approval: ApprovalNever, Parameters: json.RawMessage(`{"type":"object","required":["sure"]}`)},
		Action{Name: "order", Approval: ApprovalAuto, Parameters: json.RawMessage(`{
			"type": "object",
			"required": ["lines"],
			"properties": {
				"lines": {"type": "array", "minItems": 1, "uniqueItems": true, "items": {"$ref": "#/$defs/line"}},
				"mail": {"type": "string", "format": "email"},
				"speed": {"enum": ["slow", "fast"]},
				"note": {"anyOf": [{"type": "string", "maxLength": 5}, {"type": "null"}]},
				"a/b~c": {"type": "string"}
			},
			"propertyNames": {"maxLength": 12},
			"$defs": {"line": {
				"type": "object",
				"required": ["sku", "count"],
				"properties": {"sku": {"type": "string", "pattern": "^[A-Z]+$"}, "count": {"type": "integer", "minimum": 1}, "price": {"type": "number", "multipleOf": 0.01}, "parts": {"type": "array", "items": {"$ref": "#/$defs/part"}}}
			}, "part": {
				"type": "object",
				"required": ["sku", "count"],
				"properties": {"sku": {"type": "string", "pattern": "^[A-Z]+$"}, "count": {"type": "integer"}}
			}}
		}`)},
	)
}

const longName = "a_name_of_many_words_that_stands_for_a_place_in_the_arguments"

// deeply is inner within six layers.
func deeply(open, inner, shut string) string {
	return strings.Repeat(open, 6) + inner + strings.Repeat(shut, 6)
}

// calls that a model could make, right and wrong, by what they are about.
var proposals = []struct{ about, name, arguments string }{
	{"fits", "sign_contract", `{"title":"Lease","party":"ACME"}`},
	{"its own bytes are kept", "sign_contract", " { \"party\" : \"é\\u00e9e\u0301\",\n\"title\":\"租约\" } "},
	{"missing", "sign_contract", `{"title":"Lease"}`},
	{"not declared", "sign_contract", `{"title":"Lease","party":"ACME","zeta":1,"amount":7}`},
	{"wrong type", "sign_contract", `{"title":"Lease","party":7}`},
	{"nothing where something is needed", "sign_contract", ``},
	{"nothing", "note", ``},
	{"blank", "note", " \n"},
	{"auto", "note", `{"any":[1,2,{"b":null}]}`},
	{"never", "wipe", `{"sure":true}`},
	{"never, whatever the arguments", "wipe", `{{{`},
	{"unknown action", "transfer_money", `{"to":"me"}`},
	{"unknown for its case", "Note", `{}`},
	{"no name", "", `{}`},
	{"a long name", strings.Repeat("x", 100), `{}`},
	{"a name in lines", "note\nnote", `{}`},
	{"no JSON", "note", `{"a":`},
	{"words", "note", `please`},
	{"trailing text", "note", `{} and more`},
	{"two objects", "note", `{}{}`},
	{"array", "note", `[]`},
	{"null", "note", `null`},
	{"text", "note", `"{}"`},
	{"a key twice", "note", `{"a":1,"a":2}`},
	{"a key twice, escaped", "note", `{"a":1,"\u0061":2}`},
	{"a key twice, deep", "note", `{"x":[{"k":1,"k":1}]}`},
	{"the same key in two objects", "note", `{"x":{"k":1},"y":{"k":1}}`},
	{"half a pair", "note", `{"a":"\ud83d"}`},
	{"the other half", "note", `{"a":"\ude00"}`},
	{"half a pair before text", "note", `{"a":"\ud83d\u0041"}`},
	{"a whole pair", "note", `{"a":"\ud83d\ude00"}`},
	{"no escape", "note", `{"a":"\\ud83d"}`},
	{"64 deep", "note", `{"a":` + strings.Repeat("[", 63) + strings.Repeat("]", 63) + `}`},
	{"65 deep", "note", `{"a":` + strings.Repeat("[", 64) + strings.Repeat("]", 64) + `}`},
	{"nesting bomb", "note", strings.Repeat("[", 100_000)},
	{"nesting bomb, closed", "note", `{"a":` + strings.Repeat("[", 60_000) + strings.Repeat("]", 60_000) + `}`},
	{"large number", "note", `{"a":1e308}`},
	{"huge number", "note", `{"a":1e309}`},
	{"number that fills memory", "order", `{"lines":[{"sku":"A","count":1e999999999}]}`},
	{"number that fills memory, small", "order", `{"lines":[{"sku":"A","count":1,"price":1e-999999999}]}`},
	{"exponent beyond int", "note", `{"a":1e-99999999999999999999999}`},
	{"long number", "note", `{"a":` + strings.Repeat("1", 101) + `}`},
	{"number of 100 digits", "note", `{"a":` + strings.Repeat("1", 100) + `}`},
	{"too many bytes", "note", `{"a":"` + strings.Repeat("x", maxArgumentsBytes) + `"}`},
	{"at the bound", "note", `{"a":"` + strings.Repeat("x", maxArgumentsBytes-8) + `"}`},
	{"order", "order", `{"lines":[{"sku":"A","count":1,"price":0.07}],"mail":"a@example.com","speed":"fast","note":null}`},
	{"integer written otherwise", "order", `{"lines":[{"sku":"A","count":2.0}]}`},
	{"exact beyond doubles", "order", `{"lines":[{"sku":"A","count":9007199254740993}]}`},
	{"not unique", "order", `{"lines":[{"sku":"A","count":1},{"count":1.0,"sku":"A"}]}`},
	{"deep misfit", "order", `{"lines":[{"sku":"A","count":1,"parts":[{"sku":"A","count":1},{"sku":"b","count":1}]}]}`},
	{"several misfits", "order", `{"lines":[{"sku":"A","count":0},{"count":1}],"speed":"warp"}`},
	{"no line", "order", `{"lines":[]}`},
	{"no e-mail address", "order", `{"lines":[{"sku":"A","count":1}],"mail":"nobody"}`},
	{"no value of the list", "order", `{"lines":[{"sku":"A","count":1}],"speed":"warp"}`},
	{"none of the alternatives", "order", `{"lines":[{"sku":"A","count":1}],"note":"far too long"}`},
	{"a place with slashes", "order", `{"lines":[{"sku":"A","count":1}],"a/b~c":1}`},
	{"a long name in it", "order", `{"lines":[{"sku":"A","count":1}],"` + strings.Repeat("n", 90) + `":1}`},
	{"a place far down", "deep", deeply(`{"`+longName+`":`, `1`, `}`)},
	{"no multiple", "order", `{"lines":[{"sku":"A","count":1,"price":0.075}]}`},
}

func decideOne(d *Declarations, name, arguments string) ActionDecision {
	return d.Decide([]ToolCall{{ID: "call_1", Name: name, Arguments: arguments}}, FinishTool)[0]
}

// What has been decided is stored, and must be decided alike by every later version:
// a difference here is a change of meaning.
func TestDecisionsStayAsTheyWere(t *testing.T) {
	d := shop(t)
	var got bytes.Buffer
	for _, p := range proposals {
		a := decideOne(d, p.name, p.arguments)
		if a.Arguments != "" && a.Arguments != p.arguments && strings.TrimSpace(p.arguments) != "" {
			t.Errorf("%s: the arguments are %q, want the model's own bytes %q", p.about, a.Arguments, p.arguments)
		}
		fmt.Fprintf(&got, "%s\n\t%s %q %s %x\n", p.about, a.Verdict, a.Action, a.Code, a.Digest[:6])
		if a.Reason != "" {
			fmt.Fprintf(&got, "\t%s\n", a.Reason)
		}
	}
	file := filepath.Join("testdata", "decisions.txt")
	if flag.Lookup("update").Value.String() == "true" { // as the diagram of states
		if err := os.WriteFile(file, got.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got.Bytes(), want) {
		t.Errorf("decisions differ from %s (go test ./chat -run StayAsTheyWere -update writes it anew):\n%s", file, differing(got.String(), string(want)))
	}
}

func differing(got, want string) string {
	g, w := strings.Split(got, "\n"), strings.Split(want, "\n")
	for i := range max(len(g), len(w)) {
		var a, b string
		if i < len(g) {
			a = g[i]
		}
		if i < len(w) {
			b = w[i]
		}
		if a != b {
			return fmt.Sprintf("line %d\n got %s\nwant %s", i+1, a, b)
		}
	}
	return "nothing"
}

func TestAnAnswerThatWasCutProposesNothing(t *testing.T) {
	d := shop(t)
	calls := []ToolCall{{Name: "note"}, {Name: "sign_contract"}}
	for finish, want := range map[Finish]int{FinishStop: 2, FinishTool: 2, FinishStopped: 0, FinishLength: 0, FinishFiltered: 0} {
		if got := d.Decide(calls, finish); len(got) != want {
			t.Errorf("finish %s: %d decisions, want %d", finish, len(got), want)
		}
	}
}

func TestEveryCallHasItsDecisionByPosition(t *testing.T) {
	got := shop(t).Decide([]ToolCall{{ID: "b", Name: "note"}, {ID: "b", Name: "note"}, {Name: "no"}, {Name: "wipe"}}, FinishTool)
	want := []Verdict{VerdictAuto, VerdictAuto, VerdictInvalid, VerdictNever}
	if len(got) != len(want) {
		t.Fatalf("%d decisions, want %d", len(got), len(want))
	}
	for i, a := range got {
		if a.Position != i || a.Verdict != want[i] {
			t.Errorf("decision %d has position %d and verdict %s, want %s", i, a.Position, a.Verdict, want[i])
		}
	}
}

func TestWithoutDeclarationsEveryActionIsUnknown(t *testing.T) {
	for _, d := range []*Declarations{nil, {}, declareT(t)} {
		if a := decideOne(d, "note", "{}"); a.Verdict != VerdictInvalid || a.Code != CodeUnknownAction {
			t.Errorf("decided %+v", a)
		}
		if d.Frozen() != nil || d.Actions() != nil {
			t.Errorf("%v is not nothing", d)
		}
		if got := d.Decide(nil, FinishStop); got != nil {
			t.Errorf("decided %v of no calls", got)
		}
	}
}

func TestTheDigestParts(t *testing.T) {
	d := declareT(t,
		Action{Name: "a", Approval: ApprovalAsk, Parameters: json.RawMessage(`{"type":"object"}`)},
		Action{Name: "ab", Approval: ApprovalAsk, Parameters: json.RawMessage(`{"type":"object"}`)})
	seen := map[[32]byte]string{}
	for _, c := range []ToolCall{{Name: "a"}, {Name: "ab"}, {Name: "a", Arguments: `{"b":1}`}, {Name: "ab", Arguments: `{"b":1}`}, {Name: "a", Arguments: `{"b": 1}`}} {
		a := decideOne(d, c.Name, c.Arguments)
		if other, ok := seen[a.Digest]; ok {
			t.Errorf("%q and %q have one digest", a.Action+a.Arguments, other)
		}
		seen[a.Digest] = a.Action + a.Arguments
		if a.Digest != DigestAction(a.Action, a.Arguments) {
			t.Errorf("the digest of %q is not that of its parts", a.Action)
		}
	}
}

// What has just come and what is read back from the database is decided alike.
func TestWhatIsStoredIsDecidedAsItCame(t *testing.T) {
	d := shop(t)
	calls := []ToolCall{{Name: "note", Arguments: "{\"a\":\"\xff\xfe\"}"}, {Name: "no\xff", Arguments: "{\"\xc3\":1}"}}
	for _, p := range proposals {
		calls = append(calls, ToolCall{ID: p.about, Name: p.name, Arguments: p.arguments})
	}
	stored, err := json.Marshal(calls)
	if err != nil {
		t.Fatal(err)
	}
	read, err := ParseToolCalls(stored)
	if err != nil {
		t.Fatal(err)
	}
	again, err := ParseDeclarations(d.Frozen())
	if err != nil {
		t.Fatal(err)
	}
	if got, want := again.Decide(read, FinishTool), d.Decide(calls, FinishTool); !reflect.DeepEqual(got, want) {
		for i := range got {
			if got[i] != want[i] {
				t.Errorf("%s:\n got %+v\nwant %+v", calls[i].ID, got[i], want[i])
			}
		}
	}
}

func TestManyDecideAtOnce(t *testing.T) {
	d := shop(t)
	var want []ActionDecision
	for _, p := range proposals {
		want = append(want, decideOne(d, p.name, p.arguments))
	}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for i, p := range proposals {
				if got := decideOne(d, p.name, p.arguments); got != want[i] {
					t.Errorf("%s: got %+v, want %+v", p.about, got, want[i])
				}
			}
		})
	}
	wg.Wait()
}

func TestAValidatorThatPanicsRefusesTheAction(t *testing.T) {
	d := declareT(t, Action{Name: "note", Approval: ApprovalAuto, Parameters: json.RawMessage(`{"type":"object"}`)})
	d.schemas["note"] = &jsonschema.Schema{DraftVersion: 2020, Extensions: []jsonschema.SchemaExt{panicking{}}}
	if a := decideOne(d, "note", "{}"); a.Verdict != VerdictInvalid || a.Code != CodeBadArguments || a.Reason == "" {
		t.Errorf("decided %+v", a)
	}
}

type panicking struct{}

func (panicking) Validate(*jsonschema.ValidatorContext, any) { panic("no") }

func TestToolCallsAreReadWhole(t *testing.T) {
	calls, err := ParseToolCalls(nil)
	if calls != nil || err != nil {
		t.Errorf("of nothing: %v, %v", calls, err)
	}
	calls, err = ParseToolCalls([]byte(`[{"id":"1","name":"a","arguments":"{}"}]`))
	if err != nil || len(calls) != 1 || calls[0] != (ToolCall{"1", "a", "{}"}) {
		t.Errorf("got %v, %v", calls, err)
	}
	for _, bad := range []string{`{}`, `[`, `[]x`, `[{"name":1}]`, `[{"nome":"a"}]`} {
		if calls, err := ParseToolCalls([]byte(bad)); err == nil {
			t.Errorf("%s was read as %v", bad, calls)
		}
	}
}

// checkDecision is what holds of every decision.
func checkDecision(t *testing.T, d *Declarations, c ToolCall) {
	t.Helper()
	a := decideOne(d, c.Name, c.Arguments)
	if again := decideOne(d, c.Name, c.Arguments); again != a {
		t.Fatalf("%q: decided\n%+v, then\n%+v", c, a, again)
	}
	stored, err := json.Marshal([]ToolCall{c})
	if err != nil {
		t.Fatal(err)
	}
	read, err := ParseToolCalls(stored)
	if err != nil {
		t.Fatal(err)
	}
	if again := d.Decide(read, FinishTool)[0]; again.Verdict != a.Verdict || again.Digest != a.Digest || again.Reason != a.Reason {
		t.Fatalf("%q: decided\n%+v, after storing\n%+v", c, a, again)
	}
	action, known := d.Action(a.Action)
	runs := a.Verdict == VerdictAuto || a.Verdict == VerdictAsk
	var object map[string]any
	isObject := json.Unmarshal([]byte(a.Arguments), &object) == nil && object != nil
	switch {
	case runs && (!known || string(action.Approval) != string(a.Verdict)):
		t.Fatalf("%q runs although its declaration is %+v", c, action)
	case runs && (a.Code != "" || a.Reason != ""), !runs && (a.Code == "" || a.Reason == ""):
		t.Fatalf("%q: verdict %s, code %q, reason %q", c, a.Verdict, a.Code, a.Reason)
	case a.Verdict == VerdictNever && action.Approval != ApprovalNever:
		t.Fatalf("%q is never run although its declaration is %+v", c, action)
	case runs && a.Arguments == "", a.Arguments != "" && !isObject:
		t.Fatalf("%q: the arguments %q are no object", c, a.Arguments)
	case len([]rune(a.Reason)) > maxReason, strings.ContainsAny(a.Reason, "\n\x00"), !utf8.ValidString(a.Reason):
		t.Fatalf("%q: the reason %q is no line", c, a.Reason)
	case a.Action == "", len([]rune(a.Action)) > maxActionName:
		t.Fatalf("%q: the action is %q", c, a.Action)
	case a.Digest != DigestAction(a.Action, a.Arguments):
		t.Fatalf("%q: the digest is not that of its parts", c)
	}
}

// Decisions of arguments made by changing good ones, and of wholly random ones.
func TestWhatHoldsOfEveryDecision(t *testing.T) {
	d := shop(t)
	r := rand.New(rand.NewPCG(1, 2))
	parts := []string{"{", "}", "[", "]", ",", ":", `"`, `\u`, `\ud83d`, "1e9", "null", "true", `"title"`, `"lines"`, "\xff", " ", "a", "-0", "é"}
	for range 5_000 {
		p := proposals[r.IntN(len(proposals))]
		if len(p.arguments) > 1000 {
			continue
		}
		b := []byte(p.arguments)
		for range r.IntN(4) {
			at := r.IntN(len(b) + 1)
			part := parts[r.IntN(len(parts))]
			cut := min(len(b), at+r.IntN(3))
			b = append(b[:at:at], append([]byte(part), b[cut:]...)...)
		}
		checkDecision(t, d, ToolCall{Name: p.name, Arguments: string(b)})
	}
}

func FuzzDecide(f *testing.F) {
	for _, p := range proposals {
		if len(p.arguments) < 1000 {
			f.Add(p.name, p.arguments)
		}
	}
	d := shop(f)
	f.Fuzz(func(t *testing.T, name, arguments string) {
		for _, n := range []string{name, "note", "order"} {
			checkDecision(t, d, ToolCall{Name: n, Arguments: arguments})
		}
	})
}
