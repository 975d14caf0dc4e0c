package outbox

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"unicode"
)

// render returns a message as a person reads it: its payload as indented lines in the
// order it has, in plain text. What a model wrote stays inside its own lines, so that
// it cannot pass for anything else that is said.
func render(m Message) (subject, text string) {
	var p struct {
		Type string `json:"type"`
		Data struct {
			Action string `json:"action"`
		} `json:"data"`
	}
	subject = "Semel"
	if json.Unmarshal(m.Payload, &p) == nil && isWord(p.Data.Action) {
		subject = "Semel: " + p.Data.Action
		if strings.HasSuffix(p.Type, ".compensate") {
			subject += " (to be undone)"
		}
	}
	var b strings.Builder
	if json.Valid(m.Payload) {
		writeValue(&b, m.Payload, 0)
	} else {
		writeText(&b, string(m.Payload), 0)
	}
	fmt.Fprintf(&b, "\n--\nThis message may come twice; then its Webhook-Id and Message-ID are the same.\nWebhook-Id: %s\n", m.WebhookID)
	return subject, b.String()
}

func isWord(s string) bool {
	return s != "" && len(s) <= 64 && !strings.ContainsFunc(s, func(r rune) bool {
		return r > unicode.MaxASCII || !unicode.IsLetter(r) && !unicode.IsDigit(r) && r != '_' && r != '-'
	})
}

// maxDepth is how deep values are laid out; deeper ones stay JSON.
const maxDepth = 12

// writeValue writes valid JSON beginning on a new line.
func writeValue(b *strings.Builder, raw []byte, depth int) {
	raw = bytes.TrimSpace(raw)
	dec := json.NewDecoder(bytes.NewReader(raw))
	indent := strings.Repeat("  ", depth)
	switch {
	case raw[0] == '"':
		var s string
		_ = json.Unmarshal(raw, &s) // it is valid
		writeText(b, s, depth)
	case raw[0] == '{' && depth < maxDepth && len(raw) > 2:
		_, _ = dec.Token()
		for dec.More() {
			key, _ := dec.Token()
			name, _ := key.(string)
			writeEntry(b, indent+shownKey(name)+":", dec, depth)
		}
	case raw[0] == '[' && depth < maxDepth && len(raw) > 2:
		_, _ = dec.Token()
		for dec.More() {
			writeEntry(b, indent+"-", dec, depth)
		}
	default:
		var compact bytes.Buffer
		_ = json.Compact(&compact, raw)
		b.WriteString(indent + shown(compact.String()) + "\n")
	}
}

// writeEntry writes what follows a key or a dash: on the same line where it is short.
func writeEntry(b *strings.Builder, head string, dec *json.Decoder, depth int) {
	var raw json.RawMessage
	if dec.Decode(&raw) != nil {
		return
	}
	b.WriteString(head)
	var s string
	switch {
	case raw[0] == '"' && json.Unmarshal(raw, &s) == nil && !strings.Contains(s, "\n"):
		b.WriteString(" " + shown(s) + "\n")
	case raw[0] == '"' || raw[0] == '{' || raw[0] == '[':
		b.WriteString("\n")
		writeValue(b, raw, depth+1)
	default:
		b.WriteString(" " + string(raw) + "\n")
	}
}

// writeText marks each line, so that none looks like a key.
func writeText(b *strings.Builder, s string, depth int) {
	for line := range strings.SplitSeq(s, "\n") {
		b.WriteString(strings.Repeat("  ", depth) + "| " + shown(strings.TrimSuffix(line, "\r")) + "\n")
	}
}

func shownKey(s string) string {
	if s == "" || strings.ContainsFunc(s, func(r rune) bool { return r == ':' || r == '"' || unicode.IsSpace(r) || !unicode.IsPrint(r) }) {
		return strconv.Quote(s)
	}
	return s
}

// shown makes visible what would break a line or turn its direction.
func shown(s string) string {
	if !strings.ContainsFunc(s, isHidden) {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		if isHidden(r) {
			fmt.Fprintf(&b, `\u%04x`, r)
		} else {
			b.WriteRune(r)
		}
	}
	return b.String()
}

func isHidden(r rune) bool {
	return r != '\t' && unicode.IsControl(r) || r == '\u2028' || r == '\u2029' || unicode.Is(unicode.Bidi_Control, r)
}
