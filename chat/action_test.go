package chat

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"
)

func TestWhatIsWrongWithADeclarationIsSaid(t *testing.T) {
	with := func(change func(*Action)) Action {
		a := contract()
		change(&a)
		return a
	}
	schema := func(s string) Action { return with(func(a *Action) { a.Parameters = json.RawMessage(s) }) }
	deep := strings.Repeat(`{"not":`, 70) + `{}` + strings.Repeat(`}`, 70)
	for name, c := range map[string]struct {
		list []Action
		want string
	}{
		"two of one name":          {[]Action{contract(), contract()}, `action "sign_contract": there is another one`},
		"no name":                  {[]Action{with(func(a *Action) { a.Name = "" })}, "the name must be"},
		"a name with a dot":        {[]Action{with(func(a *Action) { a.Name = "a.b" })}, `action "a.b": the name must be`},
		"a long name":              {[]Action{with(func(a *Action) { a.Name = strings.Repeat("a", 65) })}, "the name must be"},
		"no approval":              {[]Action{with(func(a *Action) { a.Approval = "" })}, "approval must be one of"},
		"another approval":         {[]Action{with(func(a *Action) { a.Approval = "maybe" })}, "approval must be one of"},
		"no timeout":               {[]Action{with(func(a *Action) { a.CallbackTimeout = 0 })}, "needs a timeout"},
		"a negative timeout":       {[]Action{with(func(a *Action) { a.CallbackTimeout = -1 })}, "must not be negative"},
		"an address of lines":      {[]Action{with(func(a *Action) { a.To = "a\nb" })}, "plain text"},
		"no language":              {[]Action{with(func(a *Action) { a.Description = map[string]string{"": "x"} })}, "no language tag"},
		"no description":           {[]Action{with(func(a *Action) { a.Description = map[string]string{"en": " "} })}, "the description in en"},
		"a long description":       {[]Action{with(func(a *Action) { a.Description = map[string]string{"en": strings.Repeat("a", 1001)} })}, "the description in en"},
		"too many":                 {make([]Action, 129), "129 actions"},
		"no schema":                {[]Action{schema(``)}, "no JSON"},
		"a schema that is none":    {[]Action{schema(`{"type":`)}, "no JSON"},
		"a schema with two types":  {[]Action{schema(`{"type":"object","type":"array"}`)}, `the key "type" twice`},
		"a schema of lists":        {[]Action{schema(`{"type":"array"}`)}, "must be that of an object"},
		"a schema of anything":     {[]Action{schema(`true`)}, "must be that of an object"},
		"a schema of maybe":        {[]Action{schema(`{"type":["object","null"]}`)}, "must be that of an object"},
		"alternatives at the top":  {[]Action{schema(`{"type":"object","oneOf":[{"required":["a"]},{"required":["b"]}]}`)}, `must not have "oneOf" at its top`},
		"a wrong type":             {[]Action{schema(`{"type":"object","properties":{"a":{"type":"strin"}}}`)}, "/properties/a/type"},
		"a wrong rule":             {[]Action{schema(`{"type":"object","required":"a"}`)}, "/required is of type string, not array"},
		"a wrong pattern":          {[]Action{schema(`{"type":"object","properties":{"a":{"pattern":"("}}}`)}, "/properties/a/pattern"},
		"a reference to nothing":   {[]Action{schema(`{"type":"object","properties":{"a":{"$ref":"#/$defs/b"}}}`)}, `#/$defs/b" not found`},
		"a huge bound":             {[]Action{schema(`{"type":"object","properties":{"a":{"maximum":1e999999999}}}`)}, "a number that is too large"},
		"a deep schema":            {[]Action{schema(`{"type":"object","properties":{"a":` + deep + `}}`)}, "nested more than"},
		"a schema that is no text": {[]Action{schema("{\"type\":\"object\",\"title\":\"\xff\"}")}, "no JSON"},
		"a large schema":           {[]Action{schema(`{"type":"object","title":"` + strings.Repeat("x", 64<<10) + `"}`)}, "more than 65536 bytes"},
	} {
		d, err := Declare(c.list)
		if err == nil || !strings.Contains(err.Error(), c.want) || d != nil {
			t.Errorf("%s: %v, want an error with %q", name, err, c.want)
		}
	}
}

// What decides must lie in the declaration: nothing is fetched, no file is opened.
func TestASchemaMayReferToItsOwnPartsOnly(t *testing.T) {
	for _, s := range []string{
		`{"type":"object","properties":{"a":{"$ref":"https://example.com/a.json"}}}`,
		`{"type":"object","properties":{"a":{"$ref":"file:///etc/hostname"}}}`,
		`{"$id":"https://example.com/a","type":"object","properties":{"a":{"$ref":"b"}}}`,
		`{"$id":"file:///etc/","type":"object","properties":{"a":{"$ref":"hostname"}}}`,
		`{"$schema":"https://example.com/meta","type":"object"}`,
		`{"$schema":"file:///etc/hostname","type":"object"}`,
	} {
		a := contract()
		a.Parameters = json.RawMessage(s)
		if _, err := Declare([]Action{a}); err == nil || !strings.Contains(err.Error(), "a schema may refer to its own parts only") {
			t.Errorf("%s: %v", s, err)
		}
	}
	for _, s := range []string{
		`{"type":"object","properties":{"a":{"$ref":"#/$defs/b"},"c":{"$ref":"#/$defs/b"}},"$defs":{"b":{"type":"string"}}}`,
		`{"$schema":"http://json-schema.org/draft-07/schema#","type":"object","definitions":{"b":{}},"properties":{"a":{"$ref":"#/definitions/b"}}}`,
	} {
		a := contract()
		a.Parameters = json.RawMessage(s)
		if _, err := Declare([]Action{a}); err != nil {
			t.Errorf("%s: %v", s, err)
		}
	}
}

// Arguments of a few hundred bytes could keep a worker busy for good where a schema
// leads back to itself by two ways.
func TestTheWorkOfASchemaIsBounded(t *testing.T) {
	doubling := `{"type":"object","properties":{"a":{"$ref":"#/$defs/d0"}},"$defs":{`
	for i := range 20 {
		doubling += fmt.Sprintf(`"d%d":{"allOf":[{"$ref":"#/$defs/d%d"},{"$ref":"#/$defs/d%d"}]},`, i, i+1, i+1)
	}
	doubling += `"d20":{"type":"string"}}}`
	for s, want := range map[string]string{
		`{"type":"object","$ref":"#"}`:                                                                   "in a circle",
		`{"type":"object","properties":{"a":{"$ref":"#"}}}`:                                              "in a circle",
		`{"type":"object","$recursiveRef":"#","$schema":"https://json-schema.org/draft/2019-09/schema"}`: "$recursiveRef",
		`{"type":"object","$dynamicRef":"#"}`:                                                            "$dynamicRef",
		`{"type":"object","properties":{"a":{"$ref":"https://json-schema.org/draft/2020-12/schema"}}}`:   "the schema cannot be used",
		doubling: "more than 2000 parts",
	} {
		a := contract()
		a.Parameters = json.RawMessage(s)
		if _, err := Declare([]Action{a}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.100s: got %v, want %s", s, err, want)
		}
	}
	// A circle by way of each keyword that holds schemas.
	const circle = `{"$ref":"#/$defs/x"}`
	for _, keyword := range []string{
		`"allOf":[C]`, `"anyOf":[{},C]`, `"oneOf":[C]`, `"not":C`, `"if":C`, `"then":C,"if":{}`, `"else":C,"if":{}`,
		`"properties":{"a":C}`, `"patternProperties":{"a":C}`, `"additionalProperties":C`, `"propertyNames":C`,
		`"dependentSchemas":{"a":C}`, `"unevaluatedProperties":C`, `"prefixItems":[C]`, `"items":C`, `"contains":C`, `"unevaluatedItems":C`,
	} {
		a := contract()
		a.Parameters = json.RawMessage(`{"type":"object","properties":{"a":` + circle + `},"$defs":{"x":{` + strings.ReplaceAll(keyword, "C", circle) + `}}}`)
		if _, err := Declare([]Action{a}); err == nil || !strings.Contains(err.Error(), "in a circle") {
			t.Errorf("%s: got %v", keyword, err)
		}
	}
	for _, keyword := range []string{`"dependencies":{"a":C}`, `"items":[C]`, `"items":C`, `"items":[{}],"additionalItems":C`} {
		a := contract()
		a.Parameters = json.RawMessage(`{"$schema":"http://json-schema.org/draft-07/schema#","type":"object","properties":{"a":` + circle + `},"$defs":{"x":{` + strings.ReplaceAll(keyword, "C", circle) + `}}}`)
		if _, err := Declare([]Action{a}); err == nil || !strings.Contains(err.Error(), "in a circle") {
			t.Errorf("%s: got %v", keyword, err)
		}
	}
}

func TestFrozenDeclarationsAreOnesOwn(t *testing.T) {
	a := contract()
	a.Description["en"] = "Sign <&> \u2028 it"
	a.Parameters = json.RawMessage(" { \"type\" : \"object\",\n \"title\" : \"<&>\" } ")
	d := declareT(t, a, Action{Name: "note", Approval: ApprovalAuto, Parameters: json.RawMessage(`{"type":"object"}`)})
	frozen := d.Frozen()
	again, err := ParseDeclarations(frozen)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(again.Frozen(), frozen) {
		t.Errorf("frozen again:\n%s\nwant\n%s", again.Frozen(), frozen)
	}
	if bytes.Contains(frozen, []byte("\n")) || !bytes.Contains(frozen, []byte(`{"type":"object","title":"<&>"}`)) {
		t.Errorf("not canonical: %s", frozen)
	}
	got, ok := again.Action("sign_contract")
	if !ok || got.CallbackTimeout != 24*time.Hour || got.To != a.To || !got.Compensates || !got.AwaitCallback ||
		got.Approval != ApprovalAsk || got.Description["zh-CN"] != "签署合同" || got.Description["en"] != a.Description["en"] {
		t.Errorf("got %+v", got)
	}
	if _, ok := again.Action("Note"); ok {
		t.Error("there is no action Note")
	}

	// Nothing that was given or handed out changes what is declared.
	a.Description["en"] = "changed"
	a.Parameters[0] = 'x'
	frozen[0] = 'x'
	list := d.Actions()
	list[0].Description["en"], list[0].Parameters[0], list[1].Name = "changed", 'x', "changed"
	if !bytes.Equal(d.Frozen(), again.Frozen()) {
		t.Error("the declarations changed")
	}
	if list := d.Actions(); list[0].Describe("en") != got.Description["en"] || list[1].Name != "note" || list[0].Parameters[0] != '{' {
		t.Errorf("the actions changed: %+v", list)
	}
}

func TestFrozenDeclarationsThatAreNotUnderstoodAreRefused(t *testing.T) {
	frozen := string(declareT(t, contract()).Frozen())
	for _, bad := range []string{"x", "{}", "null x", frozen + "]", frozen[:len(frozen)-1],
		strings.Replace(frozen, `"approval"`, `"aproval"`, 1),
		strings.Replace(frozen, `"name"`, `"more":1,"name"`, 1)} {
		if d, err := ParseDeclarations([]byte(bad)); err == nil {
			t.Errorf("%s was read as %+v", bad, d.Actions())
		}
	}
	if d, err := ParseDeclarations(nil); err != nil || d.Frozen() != nil {
		t.Errorf("of nothing: %v, %v", d, err)
	}
}

func TestDescribe(t *testing.T) {
	a := Action{Description: map[string]string{"en": "Sign", "zh-CN": "签署", "de": "Unterschreiben"}}
	for language, want := range map[string]string{"en": "Sign", "zh-CN": "签署", "fr": "Sign", "": "Sign"} {
		if got := a.Describe(language); got != want {
			t.Errorf("in %q: %q, want %q", language, got, want)
		}
	}
	delete(a.Description, "en")
	if got := a.Describe("en"); got != "Unterschreiben" {
		t.Errorf("without English: %q", got)
	}
	if got := (Action{}).Describe("en"); got != "" {
		t.Errorf("without any: %q", got)
	}
}

func FuzzDeclarations(f *testing.F) {
	f.Add([]byte(shop(f).Frozen()))
	f.Add([]byte(`[{"name":"a","description":null,"parameters":{"type":"object","$ref":"#"},"approval":"auto"}]`))
	f.Fuzz(func(t *testing.T, frozen []byte) {
		d, err := ParseDeclarations(frozen)
		if err != nil {
			return
		}
		again, err := ParseDeclarations(d.Frozen())
		if err != nil || !bytes.Equal(again.Frozen(), d.Frozen()) {
			t.Fatalf("%q: frozen as %q, then %q, %v", frozen, d.Frozen(), again.Frozen(), err)
		}
		for _, a := range d.Actions() {
			checkDecision(t, d, ToolCall{Name: a.Name, Arguments: `{"a":{"a":[1]}}`})
		}
	})
}
