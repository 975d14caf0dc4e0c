package llm

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"semel/chat"
)

// This file is what the clients of all wire formats share.

// A message is a turn as it is sent. Text and images stand in their order, and no
// two texts beside each other.
type message struct {
	role  string
	parts []messagePart
}

// A messagePart is a text or an image.
type messagePart struct {
	text  string
	image *File
}

// text returns the content of a message that is one text, and whether it is.
func (m message) text() (string, bool) {
	if len(m.parts) == 1 && m.parts[0].image == nil {
		return m.parts[0].text, true
	}
	return "", false
}

// add appends parts, the first of which is joined to a text before it with this
// between them.
func (m *message) add(between string, parts ...messagePart) {
	for _, p := range parts {
		last := len(m.parts) - 1
		if p.image == nil && last >= 0 && m.parts[last].image == nil {
			m.parts[last].text += between + p.text
		} else {
			m.parts = append(m.parts, p)
		}
		between = "\n\n"
	}
}

// partsOf is what a turn says: its files before its words, each with its name, and a
// text between fences that nothing in it ends.
func partsOf(t Turn) []messagePart {
	var m message
	for _, f := range t.Files {
		switch {
		case !f.image():
			m.add("\n\n", messagePart{text: "Attached file " + strconv.Quote(f.Name) + ":\n" + fenced(string(f.Data))})
		case f.Data == nil:
			m.add("\n\n", messagePart{text: "Attached image " + strconv.Quote(f.Name) + ", which you cannot see."})
		default:
			m.add("\n\n", messagePart{text: "Attached image " + strconv.Quote(f.Name) + ":"}, messagePart{image: &f})
		}
	}
	if strings.TrimSpace(t.Content) != "" {
		m.add("\n\n", messagePart{text: t.Content})
	}
	return m.parts
}

// fenced puts a text between fences that are longer than any run of them inside.
func fenced(text string) string {
	longest, run := 2, 0
	for i := range len(text) {
		if text[i] != '`' {
			run = 0
			continue
		}
		run++
		longest = max(longest, run)
	}
	fence := strings.Repeat("`", longest+1)
	if !strings.HasSuffix(text, "\n") {
		text += "\n"
	}
	return fence + "\n" + text + fence
}

// base64Of is the data of an image as JSON carries it.
func base64Of(f *File) string { return base64.StdEncoding.EncodeToString(f.Data) }

func dataURL(f *File) string { return "data:" + f.MediaType + ";base64," + base64Of(f) }

// splitTurns parts the system turns from the others and makes one of those that
// follow each other in the same role. Answers in a row are one answer, continued;
// questions in a row were not answered. Blank turns, which APIs refuse, are left
// out.
func splitTurns(turns []Turn) (system string, messages []message) {
	for _, t := range turns {
		last := len(messages) - 1
		parts := partsOf(t)
		switch {
		case len(parts) == 0:
			// As part of an answer it still is what the next part was joined to.
			if t.Role == "assistant" && last >= 0 && messages[last].role == "assistant" {
				messages[last].add("", messagePart{text: t.Content})
			}
		case t.Role == "system":
			if system != "" {
				system += "\n\n"
			}
			system += t.Content
		case last >= 0 && messages[last].role == t.Role && t.Role == "assistant":
			messages[last].add("", parts...)
		case last >= 0 && messages[last].role == t.Role:
			messages[last].add("\n\n", parts...)
		default:
			messages = append(messages, message{t.Role, parts})
		}
	}
	return system, messages
}

// saying is a message of one text.
func saying(role, text string) message { return message{role, []messagePart{{text: text}}} }

// A roleContent is a message on the wire: a text is sent as it is, because some who
// imitate these formats know no parts.
type roleContent struct {
	Role    string `json:"role"`
	Content any    `json:"content"`
}

// onTheWire writes a message with parts as one format has them.
func onTheWire(m message, text func(string) any, image func(*File) any) roleContent {
	if s, ok := m.text(); ok {
		return roleContent{m.role, s}
	}
	parts := []any{}
	for _, p := range m.parts {
		if p.image != nil {
			parts = append(parts, image(p.image))
		} else {
			parts = append(parts, text(p.text))
		}
	}
	return roleContent{m.role, parts}
}

// schemaOf returns the schema of a tool's arguments; an object with anything in it
// where none is declared. OpenAI refuses an object without properties, even of an
// action that takes nothing ("object schema missing properties").
func schemaOf(t Tool) json.RawMessage {
	text := strings.TrimSpace(t.Parameters)
	if text == "" {
		return json.RawMessage(`{"type":"object","properties":{}}`)
	}
	var object map[string]json.RawMessage
	if json.Unmarshal([]byte(text), &object) == nil && len(object) > 0 && object["properties"] == nil {
		return json.RawMessage(`{"properties":{},` + text[1:])
	}
	return json.RawMessage(t.Parameters)
}

// classified returns err if it is an *Error, else that of a line whose end was not
// seen.
func classified(ctx context.Context, err error) *Error {
	if e, ok := errors.AsType[*Error](err); ok {
		return e
	}
	return lost(ctx, err)
}

// unsendable is a call that has no form on the wire: a schema that is no JSON.
func unsendable(err error) *Error {
	return &Error{Outcome: chat.OutcomeDefinite, Code: "internal", Detail: "The call cannot be put into JSON.", Err: err}
}

func under(e Endpoint, path string) string { return strings.TrimRight(e.URL, "/") + path }

// argued is a tool call whose arguments come in pieces.
type argued struct {
	at   int // in collector.tools
	args strings.Builder
}

// concluded returns an answer as its finish allows. One that was cut proposes no
// action: the last one may lack its end, and it would be run by nobody. Of one that
// was refused from the first word on nothing is left.
func concluded(a Answer) (Answer, error) {
	if a.Finish == chat.FinishFiltered && a.Content == "" {
		return Answer{}, &Error{Outcome: chat.OutcomeDefinite, Code: "content_refused", Detail: "The model refused to answer."}
	}
	if a.Finish == chat.FinishLength || a.Finish == chat.FinishFiltered {
		a.ToolCalls = nil
	}
	return a, nil
}

// errNoJSON: an event whose data is not what its type promises.
var errNoJSON = errors.New("an event cannot be read")

// countable reports whether counts of tokens can be those of one call. What a provider
// says is money: where it makes no sense, the count is estimated as if it said nothing.
func countable(counts ...int64) bool {
	return !slices.ContainsFunc(counts, func(n int64) bool { return n < 0 || n > 1<<40 })
}

// typeOf returns the field type of a JSON object, "" when it has none. What else is
// in it is looked at only where the type is known.
func typeOf(data []byte) (string, error) {
	var v struct {
		Type string `json:"type"`
	}
	err := decode(data, &v)
	return v.Type, err
}

func decode(data []byte, into any) error {
	if err := json.Unmarshal(data, into); err != nil {
		return fmt.Errorf("%w: %w", errNoJSON, err)
	}
	return nil
}

// readObject reads a body that is no stream. An answer grows in JSON.
func readObject(r io.Reader) ([]byte, error) {
	const most = 4 * maxAnswerBytes
	text, err := io.ReadAll(io.LimitReader(r, most+1))
	if err == nil && len(text) > most {
		err = tooLong()
	}
	return text, err
}

// notAnAnswer classifies what a provider sent with status 200 instead of an answer.
func notAnAnswer(data []byte, key string) *Error {
	if p := parseProviderError(data); p != (providerError{}) && (p.Message != "" || p.Code != "") {
		return frameError(p, false, key)
	}
	return noAnswer(errors.New("a document without an answer"))
}

// listModels reads a list of models. Both APIs have the same.
func listModels(ctx context.Context, t *Transport, url string, header http.Header, key string) ([]string, error) {
	resp, err := t.ask(ctx, http.MethodGet, url, header, key)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	var list struct {
		Data []struct {
			ID string `json:"id"`
		} `json:"data"`
	}
	text, err := readObject(resp.Body)
	switch {
	case err != nil:
		return nil, classified(ctx, err)
	case json.Unmarshal(text, &list) != nil || list.Data == nil:
		return nil, noAnswer(errors.New("no list of models"))
	}
	names := make([]string, 0, len(list.Data))
	for _, m := range list.Data {
		if m.ID != "" {
			names = append(names, m.ID)
		}
	}
	return names, nil
}
