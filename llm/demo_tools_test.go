package llm

import (
	"encoding/json"
	"testing"

	"semel/chat"
)

// Whoever tries the built-in model with declarations of their own should see them
// asked for, with arguments that are not refused.
func TestArgumentsFitCommonSchemas(t *testing.T) {
	for _, schema := range []string{
		`{"type":"object","required":["title","party"],"properties":{"title":{"type":"string"},"party":{"type":"string"}},"additionalProperties":false}`,
		`{"type":"object"}`,
		`{"type":"object","required":["a"]}`,
		`{"type":"object","required":["a"],"properties":{"a":{"type":"string","minLength":40}}}`,
		`{"type":"object","required":["a"],"properties":{"a":{"type":"string","maxLength":5}}}`,
		`{"type":"object","required":["a"],"properties":{"a":{"type":"string","minLength":3,"maxLength":3}}}`,
		`{"type":"object","required":["a"],"properties":{"a":{"type":"integer","minimum":500}}}`,
		`{"type":"object","required":["a"],"properties":{"a":{"type":"integer","exclusiveMinimum":0}}}`,
		`{"type":"object","required":["a"],"properties":{"a":{"type":"integer","exclusiveMinimum":1}}}`,
		`{"type":"object","required":["a"],"properties":{"a":{"type":"number","exclusiveMaximum":1}}}`,
		`{"type":"object","required":["a"],"properties":{"a":{"type":"number","exclusiveMinimum":0,"maximum":0.5}}}`,
		`{"type":"object","required":["a"],"properties":{"a":{"type":"number","multipleOf":0.01}}}`,
		`{"type":"object","required":["a"],"properties":{"a":{"type":"integer","multipleOf":5,"minimum":7}}}`,
		`{"type":"object","required":["a"],"properties":{"a":{"type":"integer","minimum":1.5}}}`,
		`{"type":"object","required":["a"],"properties":{"a":{"type":"integer","maximum":-3}}}`,
		`{"type":"object","required":["a"],"properties":{"a":{"enum":["x","y"]}}}`,
		`{"type":"object","required":["a"],"properties":{"a":{"enum":[3,4],"type":"integer"}}}`,
		`{"type":"object","required":["a"],"properties":{"a":{"const":{"b":1}}}}`,
		`{"type":"object","required":["a"],"properties":{"a":{"type":["string","null"]}}}`,
		`{"type":"object","required":["a"],"properties":{"a":{"type":["null","string"]}}}`,
		`{"type":"object","required":["a"],"properties":{"a":{"anyOf":[{"type":"integer"},{"type":"null"}]}}}`,
		`{"type":"object","required":["a"],"properties":{"a":{"oneOf":[{"type":"object","required":["b"],"properties":{"b":{"const":"c"}}},{"type":"null"}]}}}`,
		`{"type":"object","required":["a"],"properties":{"a":{"allOf":[{"type":"integer"}]}}}`,
		`{"type":"object","required":["a"],"properties":{"a":{"$ref":"#/$defs/x"}},"$defs":{"x":{"type":"object","required":["b"],"properties":{"b":{"type":"boolean"}}}}}`,
		`{"type":"object","required":["a"],"properties":{"a":{"$ref":"#/definitions/x"}},"definitions":{"x":{"type":"integer"}}}`,
		`{"type":"object","required":["a"],"properties":{"a":{"type":"array","items":{"type":"string"}}}}`,
		`{"type":"object","required":["a"],"properties":{"a":{"type":"array","minItems":2,"items":{"type":"string"}}}}`,
		`{"type":"object","required":["a"],"properties":{"a":{"type":"array","minItems":2,"uniqueItems":true,"items":{"enum":["x","y"]}}}}`,
		`{"type":"object","required":["a"],"properties":{"a":{"type":"object","required":["b"],"properties":{"b":{"type":"integer"}}}}}`,
		`{"type":"object","required":["a"],"properties":{"a":{"type":"string","format":"date"}}}`,
		`{"type":"object","required":["a"],"properties":{"a":{"type":"string","format":"date-time"}}}`,
		`{"type":"object","required":["a"],"properties":{"a":{"type":"string","format":"time"}}}`,
		`{"type":"object","required":["a"],"properties":{"a":{"type":"string","format":"email"}}}`,
		`{"type":"object","required":["a"],"properties":{"a":{"type":"string","format":"uri"}}}`,
		`{"type":"object","required":["a"],"properties":{"a":{"type":"string","format":"uuid"}}}`,
		`{"type":"object","required":["a"],"properties":{"a":{"type":"string","format":"duration"}}}`,
		`{"type":"object","required":["a"],"properties":{"a":{"type":"string","format":"ipv4"}}}`,
		`{"type":"object","required":["a"],"properties":{"a":{"type":"string","format":"hostname"}}}`,
		`{"type":"object","required":["email","date"],"properties":{"email":{"type":"string","maxLength":12},"date":{"type":"string","format":"date"}}}`,
		`{"type":"object","required":["a"],"properties":{"a":{"properties":{"b":{"type":"string"}},"required":["b"]}}}`,
		`{"type":"object","required":["a"],"properties":{"a":{"items":{"type":"string"}}}}`,
		`{"type":"object","required":["a"],"properties":{"a":{"minimum":3}}}`,
		`{"type":"object","required":["amount","currency"],"properties":{"amount":{"type":"number","minimum":0.01},"currency":{"type":"string","pattern":"^[A-Z]{3}$"}}}`,
		`{"type":"object","required":["a"],"properties":{"a":{"type":"boolean"}}}`,
		`{"type":"object","required":["a"],"properties":{"a":{"type":"boolean","const":false}}}`,
		`{"type":"object","required":["a"],"properties":{"a":{"$ref":"#/$defs/a~1b"}},"$defs":{"a/b":{"anyOf":[{"type":"null"},{"$ref":"#/$defs/c"}]},"c":{"type":"integer","minimum":3}}}`,
	} {
		d, err := chat.Declare([]chat.Action{{Name: "sign_contract", Approval: chat.ApprovalAsk, Parameters: json.RawMessage(schema)}})
		if err != nil {
			t.Fatalf("%s: %v", schema, err)
		}
		for _, question := range []string{"Please draft the contract with ACME Ltd for 250 and have it signed", "draft the contract and have it signed", "起草合同并请签署"} {
			c := user(question + "[[rate 0]]")
			c.Tools = []Tool{{Name: "sign_contract", Description: "Have a contract signed", Parameters: schema}}
			s := wellFormed(t, ask(t.Context(), NewDemo(), c))
			if len(s.ToolCalls) != 1 {
				t.Fatalf("%s: asked for %v", question, s.ToolCalls)
			}
			if got := d.Decide([]chat.ToolCall{chat.ToolCall(s.ToolCalls[0])}, s.Finish)[0]; got.Verdict != chat.VerdictAsk {
				t.Errorf("%s\n\t%s\n\t%s", schema, s.ToolCalls[0].Arguments, got.Reason)
			}
		}
	}
}

// A schema that only refers to itself has an end all the same, and one that asks for
// the impossible gets something.
func TestArgumentsOfStrangeSchemasEnd(t *testing.T) {
	for _, schema := range []string{
		`{"type":"object","$ref":"#"}`,
		`{"type":"object","required":["a"],"properties":{"a":{"$ref":"#/properties/a"}}}`,
		`{"type":"object","required":["a"],"properties":{"a":{"$ref":"#/$defs/b"}},"$defs":{"b":{"type":"object","required":["a","c"],"properties":{"a":{"$ref":"#/$defs/b"},"c":{"$ref":"#/$defs/b"}}}}}`,
		`{"type":"object","required":["a"],"properties":{"a":{"anyOf":[{"$ref":"#/properties/a"}]}}}`,
		`{"type":"object","required":["a"],"properties":{"a":{"type":"array","minItems":1e9,"items":{"type":"array","minItems":1e9}}}}`,
		`{"type":"object","required":["a"],"properties":{"a":{"type":"string","minLength":1e9}}}`,
		`{"type":"object","required":["a"],"properties":{"a":{"type":"number","minimum":2,"maximum":1}}}`,
		`{"type":"object","required":["a"],"properties":{"a":{"type":"number","multipleOf":0}}}`,
		`{"type":"object","required":["a"],"properties":{"a":{"type":"number","multipleOf":-1,"exclusiveMinimum":1e308}}}`,
	} {
		c := user("Have the contract signed [[rate 0]]")
		c.Tools = []Tool{{Name: "sign_contract", Parameters: schema}}
		s := wellFormed(t, ask(t.Context(), NewDemo(), c))
		if len(s.ToolCalls) != 1 || !json.Valid([]byte(s.ToolCalls[0].Arguments)) || len(s.ToolCalls[0].Arguments) > 1<<20 {
			t.Errorf("%s: asked for %.200v", schema, s.ToolCalls)
		}
	}
}
