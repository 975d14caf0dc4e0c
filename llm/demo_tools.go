package llm

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// This file is how the built-in model asks for actions: which one a question means, and
// arguments that fit what most schemas say. Whether they fit is for the decision to say.

// proposal returns a call of the action that q asks for: one whose every name
// part is in the question, or two words of whose name and description are. One
// word in common is chance ("what is a contract?").
func (q question) proposal(tools []Tool) (ToolCall, bool) {
	if len(tools) == 0 {
		return ToolCall{}, false
	}
	stems := map[string]bool{}
	for w := range q.words {
		stems[stem(w)] = true
	}
	best, bestScore := Tool{}, 0
	for _, t := range tools {
		if s := q.score(t, stems); s > bestScore {
			best, bestScore = t, s
		}
	}
	if bestScore == 0 {
		return ToolCall{}, false
	}
	return ToolCall{Name: best.Name, Arguments: q.arguments(best)}, true
}

// score counts the words of t in q; 0 when they are too few.
func (q question) score(t Tool, stems map[string]bool) int {
	name := nameWords(t.Name)
	hits := map[string]bool{}
	for _, w := range name {
		if stems[stem(w)] || containsAny(q.text, actionWords[w]) {
			hits[stem(w)] = true
		}
	}
	all := len(name) > 0 && len(hits) == len(name)
	for _, w := range cleanWords(t.Description) {
		w = strings.ToLower(w)
		if len(w) >= 3 && !stopWords[w] && stems[stem(w)] && !hasHan(w) {
			hits[stem(w)] = true
		}
	}
	han := []rune(t.Description)
	for i := 0; i+1 < len(han); i++ {
		pair := string(han[i : i+2])
		if unicode.Is(unicode.Han, han[i]) && unicode.Is(unicode.Han, han[i+1]) && strings.Contains(q.text, pair) {
			hits[pair] = true
		}
	}
	if !all && len(hits) < 2 {
		return 0
	}
	return len(hits)
}

// nameWords splits sign_contract, sign-contract and signContract alike.
func nameWords(name string) []string {
	var b strings.Builder
	lower := false
	for _, r := range name {
		switch {
		case !unicode.IsLetter(r) && !unicode.IsNumber(r):
			r = ' '
		case unicode.IsUpper(r) && lower:
			b.WriteByte(' ')
		}
		lower = unicode.IsLower(r)
		b.WriteRune(unicode.ToLower(r))
	}
	return strings.Fields(b.String())
}

// stem brings the forms of an English word together, roughly: sign, signed and
// signing; ship, ships and shipped; create and creating.
func stem(w string) string {
	for _, end := range []string{"ing", "ed", "es", "s", "e"} {
		if s, ok := strings.CutSuffix(w, end); ok && len(s) >= 3 {
			w = s
			break
		}
	}
	if n := len(w); n > 3 && w[n-1] == w[n-2] {
		w = w[:n-1]
	}
	if s, ok := strings.CutSuffix(w, "y"); ok {
		w = s + "i"
	}
	return w
}

func containsAny(s string, words []string) bool {
	for _, w := range words {
		if strings.Contains(s, w) {
			return true
		}
	}
	return false
}

// arguments fills the required properties of t's schema from the question. A
// schema that cannot be read gets an empty object.
func (q question) arguments(t Tool) string {
	var schema map[string]any
	if json.Unmarshal([]byte(t.Parameters), &schema) != nil {
		return "{}"
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false) // a person reads them before approving
	a := arguer{q, t, schema}
	if err := enc.Encode(a.object(a.plain(schema), 0)); err != nil {
		return "{}"
	}
	return strings.TrimSpace(b.String())
}

// An arguer makes values for the schema of a tool. Numbers are those of encoding/json.
type arguer struct {
	question
	tool Tool
	root map[string]any
}

const (
	deepestObject = 8
	mostItems     = 100
	longestPad    = 10_000
)

// plain returns schema with what it refers to, and the first of its alternatives, in
// the place of the reference. What stands beside a reference holds, too.
func (a arguer) plain(schema map[string]any) map[string]any {
	for range deepestObject {
		key, next := a.next(schema)
		if next == nil {
			return schema
		}
		merged := maps.Clone(next)
		for k, v := range schema {
			if k != key {
				merged[k] = v
			}
		}
		schema = merged
	}
	return schema
}

func (a arguer) next(schema map[string]any) (key string, next map[string]any) {
	if ref, _ := schema["$ref"].(string); strings.HasPrefix(ref, "#/") {
		at := any(a.root)
		for name := range strings.SplitSeq(ref[len("#/"):], "/") {
			object, _ := at.(map[string]any)
			at = object[strings.NewReplacer("~1", "/", "~0", "~").Replace(name)]
		}
		next, _ = at.(map[string]any)
		return "$ref", next
	}
	for _, key := range []string{"anyOf", "oneOf", "allOf"} {
		list, _ := schema[key].([]any)
		for _, one := range list {
			if next, _ := one.(map[string]any); next != nil && next["type"] != "null" {
				return key, next
			}
		}
	}
	return "", nil
}

func (a arguer) object(schema map[string]any, depth int) map[string]any {
	out := map[string]any{}
	properties, _ := schema["properties"].(map[string]any)
	required, _ := schema["required"].([]any)
	for _, r := range required {
		name, ok := r.(string)
		if !ok {
			continue
		}
		property, _ := properties[name].(map[string]any)
		out[name] = a.value(name, property, 0, depth+1)
	}
	return out
}

// value is the nth value for a schema, from 0: those of a list should differ.
func (a arguer) value(name string, schema map[string]any, n, depth int) any {
	schema = a.plain(schema)
	for _, key := range []string{"const", "default"} {
		if v, ok := schema[key]; ok {
			return v
		}
	}
	for _, key := range []string{"enum", "examples"} {
		if list, _ := schema[key].([]any); len(list) > 0 {
			return list[n%len(list)]
		}
	}
	kind, _ := schema["type"].(string)
	if list, _ := schema["type"].([]any); len(list) > 0 {
		kind, _ = list[0].(string)
	}
	switch kind {
	case "integer", "number":
		return a.number(schema, kind == "integer")
	case "boolean":
		return true
	case "null":
		return nil
	case "array":
		items, _ := schema["items"].(map[string]any)
		least, _ := schema["minItems"].(float64)
		list := []any{}
		for i := 0; depth <= deepestObject && i < min(int(least), mostItems); i++ {
			list = append(list, a.value(name, items, i, depth+1))
		}
		return list
	case "object":
		if depth > deepestObject {
			return map[string]any{}
		}
		return a.object(schema, depth)
	}
	return a.text(name, schema, n)
}

func (a arguer) text(name string, schema map[string]any, n int) string {
	s := a.wording(name, schema)
	if n > 0 {
		s = fmt.Sprintf("%s %d", s, n+1)
	}
	least, _ := schema["minLength"].(float64)
	for pad := s + "."; utf8.RuneCountInString(s) < min(int(least), longestPad); {
		s += " " + pad
	}
	if most, ok := schema["maxLength"].(float64); ok && most >= 0 && most < float64(utf8.RuneCountInString(s)) {
		s = string([]rune(s)[:int(most)])
	}
	return s
}

// number returns the first number of the question that the schema allows, else
// the smallest useful one.
func (a arguer) number(schema map[string]any, whole bool) float64 {
	bound := func(key string, otherwise float64) float64 {
		if v, ok := schema[key].(float64); ok {
			return v
		}
		return otherwise
	}
	least, most := bound("minimum", math.Inf(-1)), bound("maximum", math.Inf(1))
	above, below := bound("exclusiveMinimum", math.Inf(-1)), bound("exclusiveMaximum", math.Inf(1))
	step := bound("multipleOf", 0)
	if whole && step < 1 {
		step = 1
	}
	multiple := step
	fits := func(v float64) bool {
		steps := v / multiple
		return v >= least && v <= most && v > above && v < below &&
			(multiple <= 0 || math.Abs(steps-math.Round(steps)) < 1e-9)
	}
	for _, w := range cleanWords(a.question.text) {
		if v, err := strconv.ParseUint(w, 10, 32); err == nil && fits(float64(v)) {
			return float64(v)
		}
	}
	if step <= 0 {
		step = 1
	}
	low, high := max(least, above), min(most, below)
	up, down := math.Ceil(low/step)*step, math.Floor(high/step)*step
	for _, v := range []float64{1, low, up, up + step, high, down, down - step, (low + high) / 2, 0} {
		if fits(v) && !math.IsInf(v, 0) {
			return v
		}
	}
	return 1
}

// wording returns the text for a property, going by its format and its name.
func (a arguer) wording(name string, schema map[string]any) string {
	switch schema["format"] {
	case "date":
		return "2030-01-01"
	case "date-time":
		return "2030-01-01T09:00:00Z"
	case "time":
		return "09:00:00Z"
	case "email":
		return "someone@example.com"
	case "uri", "url":
		return "https://example.com/"
	case "uuid":
		return "00000000-0000-4000-8000-000000000000"
	case "duration":
		return "P1D"
	case "hostname":
		return "example.com"
	case "ipv4":
		return "192.0.2.1"
	}
	for _, w := range nameWords(name) {
		switch w {
		case "party", "counterparty", "customer", "client", "recipient", "to", "partner", "company", "person":
			return a.party()
		case "email", "mail":
			return "someone@example.com"
		case "url", "link":
			return "https://example.com/"
		case "date", "day":
			return "2030-01-01"
		case "currency":
			return "USD"
		case "text", "body", "message", "content", "description", "reason", "note", "question", "details":
			return strings.TrimSpace(a.question.text)
		}
	}
	return a.title(a.tool)
}

// title names the thing the action is about: the last word of the action's name,
// and the subject of the question.
func (q question) title(t Tool) string {
	words := nameWords(t.Name)
	thing, between := "", ": "
	if len(words) > 0 {
		thing = words[len(words)-1]
	}
	if q.chinese {
		between = "："
		for _, word := range actionWords[thing] {
			if strings.Contains(q.text, word) {
				thing = word
				break
			}
		}
	}
	title := thing
	switch {
	case strings.Contains(strings.ToLower(q.topic), thing): // also where there is no thing
		title = q.topic
	case q.topic != "":
		title += between + q.topic
	}
	first, n := utf8.DecodeRuneInString(title)
	if n == 0 {
		return "Untitled"
	}
	return string(unicode.ToUpper(first)) + title[n:]
}

// party returns whom the question names: capitals after "with", "for" or "to".
func (q question) party() string {
	var name []string
	open := false
	for _, w := range cleanWords(q.text) {
		r, _ := utf8.DecodeRuneInString(w)
		switch {
		case open && (unicode.IsUpper(r) || unicode.IsNumber(r)):
			name = append(name, w)
		case len(name) > 0:
			return strings.Join(name, " ")
		default:
			open = w == "with" || w == "for" || w == "to"
		}
	}
	if len(name) > 0 {
		return strings.Join(name, " ")
	}
	if q.chinese {
		return chineseParty(q.text)
	}
	return "Example Ltd"
}

// chineseParty returns what stands between "与" and the verb.
func chineseParty(s string) string {
	for _, with := range []string{"与", "和", "跟"} {
		_, after, ok := strings.Cut(s, with)
		if !ok {
			continue
		}
		end := strings.IndexFunc(after, func(r rune) bool {
			return strings.ContainsRune("签订起草的，。、；！？,.;!?", r)
		})
		if end > 0 && utf8.RuneCountInString(after[:end]) <= 20 {
			return strings.TrimSpace(after[:end])
		}
	}
	return "示例公司"
}
