package chat_test

import (
	"encoding/hex"
	"encoding/json"
	"slices"
	"testing"
	"time"

	"semel/chat"
)

func hexOf(f chat.Fingerprint) string { return hex.EncodeToString([]byte(f)) }

// The contract's sentence, in its own words: whoever changes the table of edges
// has to change it here too.
func TestThereAreNoEdgesButThoseOfTheContract(t *testing.T) {
	contract := []string{
		"new>pending", "pending>generating", "pending>failed", "generating>pending", "generating>failed",
		"generating>acknowledged", "acknowledged>committed", "failed>pending",
	}
	everything := append([]chat.State{chat.StateNew, "", "unheard-of"}, chat.States...)
	var found int
	for _, from := range everything {
		for _, to := range everything {
			want := slices.Contains(contract, string(from)+">"+string(to))
			if got := from.CanBecome(to); got != want {
				t.Errorf("%q can become %q: %t, want %t", from, to, got, want)
			}
			if want {
				found++
			}
		}
	}
	if found != len(contract) || len(chat.Edges) != len(contract) {
		t.Errorf("the contract has %d edges, %d were tried, the table has %d", len(contract), found, len(chat.Edges))
	}
}

func TestEveryStateCanBeReachedAndOnlyCommittedIsTheEnd(t *testing.T) {
	reached := map[chat.State]bool{chat.StateNew: true}
	for range chat.States {
		for _, e := range chat.Edges {
			if reached[e.From] {
				reached[e.To] = true
			}
		}
	}
	for _, s := range chat.States {
		if !reached[s] {
			t.Errorf("nothing leads to %s", s)
		}
		var out int
		for _, to := range chat.States {
			if s.CanBecome(to) {
				out++
			}
		}
		if (out == 0) != (s == chat.StateCommitted) {
			t.Errorf("%d edges leave %s", out, s)
		}
	}
}

func TestWhatClientsSeeOfAState(t *testing.T) {
	for _, c := range []struct {
		state          chat.State
		status         chat.Status
		answered, live bool
	}{
		{chat.StatePending, chat.StatusProcessing, false, true},
		{chat.StateGenerating, chat.StatusProcessing, false, true},
		{chat.StateAcknowledged, chat.StatusProcessing, true, false},
		{chat.StateCommitted, chat.StatusCompleted, true, false},
		{chat.StateFailed, chat.StatusFailed, false, false},
	} {
		if got := c.state.Status(); got != c.status {
			t.Errorf("%s is shown as %s, want %s", c.state, got, c.status)
		}
		if c.state.Answered() != c.answered || c.state.Live() != c.live {
			t.Errorf("%s: answered %t, live %t, want %t, %t", c.state, c.state.Answered(), c.state.Live(), c.answered, c.live)
		}
	}
}

func TestOnlyMessageAndEditWriteAQuestion(t *testing.T) {
	for kind, want := range map[chat.Kind]bool{chat.KindMessage: true, chat.KindEdit: true, chat.KindRegenerate: false, chat.KindContinue: false} {
		if got := kind.WritesQuestion(); got != want {
			t.Errorf("%s writes a question: %t, want %t", kind, got, want)
		}
	}
}

// Contract, section 4: clients see 502, 503, 504 or 422 for a failed request,
// never what the provider said, and the problem carries the state.
func TestAFailedRequestIsAProblemOfOurOwn(t *testing.T) {
	for _, code := range []string{"stopped", "interrupted", "line_lost", "provider_unreachable", "provider_busy", "provider_refused", "provider_error",
		"content_refused", "context_too_long", "first_token_timeout", "idle_timeout", "model_gone", "unheard-of"} {
		f := chat.Failure{Code: code, Outcome: chat.OutcomeDefinite, Retry: chat.RetryExplicit, Detail: "why"}
		p := f.Problem("request-1")
		if !slices.Contains([]int{422, 502, 503, 504}, p.Status) {
			t.Errorf("%s has status %d", code, p.Status)
		}
		if p.State != chat.StateFailed || p.RequestID != "request-1" || p.Outcome != f.Outcome || p.Retry != f.Retry || p.Detail != "why" {
			t.Errorf("%s: %+v", code, p)
		}
		if p.Type != "urn:semel:problem:"+code || p.Title == "" {
			t.Errorf("%s is of type %q with title %q", code, p.Type, p.Title)
		}
	}
}

func TestATimeIsShownInMillisecondsOfUTCAndNoneAsNull(t *testing.T) {
	at := time.Date(2026, 7, 8, 1, 2, 3, 45_678_901, time.FixedZone("east", 8*3600))
	for _, c := range []struct {
		stamp chat.Stamp
		text  string
		json  string
	}{
		{chat.Stamp{Time: at}, "2026-07-07T17:02:03.045Z", `"2026-07-07T17:02:03.045Z"`},
		{chat.Stamp{Time: at.Truncate(time.Second)}, "2026-07-07T17:02:03.000Z", `"2026-07-07T17:02:03.000Z"`},
		{chat.Stamp{}, "", "null"},
	} {
		if got := c.stamp.String(); got != c.text {
			t.Errorf("String() = %q, want %q", got, c.text)
		}
		b, err := json.Marshal(c.stamp)
		if err != nil || string(b) != c.json {
			t.Errorf("as JSON %s, %v, want %s", b, err, c.json)
		}
		var back chat.Stamp
		if err := json.Unmarshal(b, &back); err != nil || back.String() != c.text {
			t.Errorf("%s came back as %q, %v", b, back, err)
		}
	}
	var s chat.Stamp
	if err := json.Unmarshal([]byte(`"yesterday"`), &s); err == nil {
		t.Errorf("a word was read as the time %v", s)
	}
}
