package llm

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"semel/chat"
)

// A chatToolCall is a part of a tool call, or a whole one.
type chatToolCall struct {
	Index    *int   `json:"index"`
	ID       string `json:"id"`
	Function struct {
		Name      string          `json:"name"`
		Arguments json.RawMessage `json:"arguments"` // a string of JSON; from some the JSON itself
	} `json:"function"`
}

// toolCalls puts tool calls together from their parts, in the order in which they
// began. A part says by its index which call it belongs to; some servers leave that
// out, some give every call the same, some repeat id and name in each part.
type toolCalls struct {
	calls []*openCall
}

// An openCall is a tool call of which more may come.
type openCall struct {
	index     int // -1 for none
	id, name  string
	arguments strings.Builder
}

const (
	// maxToolCalls is how many actions an answer may ask for.
	maxToolCalls = 256
	// toolCallBytes is what one counts beside its words.
	toolCallBytes = 256
)

// add takes a part and returns how many bytes of the answer it is.
func (t *toolCalls) add(part chatToolCall) (n int, err error) {
	arguments, err := argumentsOf(part.Function.Arguments)
	if err != nil {
		return 0, noAnswer(err)
	}
	n = len(arguments)
	c := t.find(part, arguments)
	if c == nil {
		if len(t.calls) == maxToolCalls {
			return 0, &Error{Outcome: chat.OutcomeDefinite, Code: "answer_too_long",
				Detail: fmt.Sprintf("The answer was cut: it asks for more than %d actions.", maxToolCalls)}
		}
		c = &openCall{index: -1}
		if part.Index != nil {
			c.index = *part.Index
		}
		t.calls = append(t.calls, c)
		n += toolCallBytes
	}
	if c.id == "" {
		c.id = part.ID
		n += len(part.ID)
	}
	if c.name == "" {
		c.name = part.Function.Name
		n += len(c.name)
	}
	c.arguments.WriteString(arguments)
	return n, nil
}

// find returns the call that part belongs to, nil when it begins one.
func (t *toolCalls) find(part chatToolCall, arguments string) *openCall {
	for i := len(t.calls) - 1; i >= 0; i-- {
		c := t.calls[i]
		switch {
		case part.Index != nil && c.index != *part.Index:
			continue
		case part.Index == nil && part.ID != "" && c.id != part.ID:
			continue
		case c.begins(part, arguments):
			return nil
		}
		return c
	}
	return nil
}

// begins reports whether part is the begin of a new call although it looks as if it
// went on with c.
func (c *openCall) begins(part chatToolCall, arguments string) bool {
	name := part.Function.Name
	switch {
	case name == "" || c.name == "":
		return false // vLLM gave each part an id of its own once, but the name only once
	case name != c.name:
		return true
	case part.ID != "" && c.id != "":
		return part.ID != c.id
	}
	// The same name again: a part that repeats it, or another call of that tool.
	return arguments != "" && complete(c.arguments.String())
}

func complete(arguments string) bool {
	return strings.HasPrefix(arguments, "{") && strings.HasSuffix(arguments, "}") && json.Valid([]byte(arguments))
}

func (t *toolCalls) list() []ToolCall {
	var list []ToolCall
	for _, c := range t.calls {
		list = append(list, ToolCall{ID: c.id, Name: c.name, Arguments: c.arguments.String()})
	}
	return list
}

// argumentsOf returns arguments as the model gave them.
func argumentsOf(raw json.RawMessage) (string, error) {
	switch {
	case len(raw) == 0 || string(raw) == "null":
		return "", nil
	case raw[0] == '"':
		var s string
		err := json.Unmarshal(raw, &s)
		return s, err
	case raw[0] == '{':
		var b bytes.Buffer
		err := json.Compact(&b, raw)
		return b.String(), err
	}
	return "", fmt.Errorf("arguments of a tool call that begin with %q", raw[0])
}
