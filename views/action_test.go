package views

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"semel/chat"
)

func TestArgumentsAreShownInTheirOrderAsText(t *testing.T) {
	got := arguments(json.RawMessage(`{"z":"line\nline","a":12345678901234567890.10,"b":null,"c":{"d":[1,"x"]},"<i>":"<b>","e":"\u202e"}`))
	want := []argument{{"z", "line\nline"}, {"a", "12345678901234567890.10"}, {"b", "null"}, {"c", `{"d":[1,"x"]}`}, {"<i>", "<b>"}, {"e", "\u202e"}}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	for _, none := range []string{"", "null", "[]", "{}"} {
		if got := arguments(json.RawMessage(none)); len(got) != 0 {
			t.Errorf("%q: got %q", none, got)
		}
	}
}

func TestSignsThatAreNotSeenAreNamed(t *testing.T) {
	for text, want := range map[string]string{
		"plain, 中文 and é":       "plain, 中文 and é",
		"a\tb\nc":               "a\tb\nc",
		"pay \u202e0001\u202c.": "pay ‹U+202E›0001‹U+202C›.",
		"\u200bx\u00ad":         "‹U+200B›x‹U+00AD›",
		"\x00\r\x7f":            "‹U+0000›‹U+000D›‹U+007F›",
		"\u2028\u00a0\u3164":    "‹U+2028›‹U+00A0›‹U+3164›",
		"\U000e0041\U000e0101":  "‹U+E0041›‹U+E0101›",
		"":                      "",
	} {
		if got := visibleText(text); got != want {
			t.Errorf("%q is shown as %q, want %q", text, got, want)
		}
	}
}

func FuzzArguments(f *testing.F) {
	f.Add(`{"a":"b"}`)
	f.Add("{\"\u202e\":{\"x\":[1]}}")
	f.Fuzz(func(t *testing.T, object string) {
		for _, a := range arguments(json.RawMessage(object)) {
			for _, s := range []string{a.Name, a.Value, a.start()} {
				if shown := visibleText(s); strings.ContainsFunc(shown, unseen) {
					t.Errorf("%q is shown as %q", s, shown)
				}
			}
		}
	})
}

// What a person can do about an effect, in each of its states.
func TestWaysOutOfTrouble(t *testing.T) {
	undo := func(s chat.EffectState) *chat.Compensation { return &chat.Compensation{WebhookID: "undo", State: s} }
	for _, test := range []struct {
		e    chat.Effect
		want string
	}{
		{chat.Effect{State: chat.EffectUndecided}, ""},
		{chat.Effect{State: chat.EffectPending, Attempts: 3, Compensates: true}, ""},
		{chat.Effect{State: chat.EffectDelivering, Compensates: true}, ""},
		{chat.Effect{State: chat.EffectDead}, "it:redrive it:abandon"},
		{chat.Effect{State: chat.EffectDead, Compensates: true}, "it:redrive it:abandon"}, // nothing has left
		{chat.Effect{State: chat.EffectDead, Compensates: true, Attempts: 1}, "it:redrive it:compensate it:abandon"},
		{chat.Effect{State: chat.EffectTimedOut, Compensates: true, Attempts: 1}, "it:redrive it:compensate it:abandon"},
		{chat.Effect{State: chat.EffectRefused, Attempts: 1}, "it:abandon"},
		{chat.Effect{State: chat.EffectCompensating, Attempts: 1, Compensation: undo(chat.EffectPending)}, ""},
		{chat.Effect{State: chat.EffectCompensating, Attempts: 1, Compensation: undo(chat.EffectDead)}, "undo:redrive undo:abandon"},
		{chat.Effect{State: chat.EffectDelivered, Attempts: 1, Compensates: true}, ""},
		{chat.Effect{State: chat.EffectCompensated, Attempts: 1, Compensation: undo(chat.EffectDelivered)}, ""},
	} {
		test.e.WebhookID = "it"
		var got []string
		for _, w := range ways(test.e) {
			got = append(got, w.id+":"+w.do)
		}
		if got := strings.Join(got, " "); got != test.want {
			t.Errorf("%s: %q, want %q", test.e.State, got, test.want)
		}
	}
}
