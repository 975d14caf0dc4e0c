package handlers_test

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	"semel/chat"
	"semel/engine"
	"semel/handlers"
	"semel/llm"
)

const (
	idA = "01J0000000000000000000000A"
	idB = "01J0000000000000000000000B"
)

// A carried id is where an intent's name stands (contract, section 1).
type carried struct {
	body   string
	header []string // names and values in turn
}

func TestTheStrongestCarrierNamesTheIntent(t *testing.T) {
	t.Parallel()
	d := openDoor(t)
	for name, c := range map[string]struct {
		carried
		want    string // the request id, or the code of the refusal
		ignored int64  // X-Request-Id that were ignored
	}{
		"the body alone":                        {carried{body: idA}, idA, 0},
		"a key alone":                           {carried{header: []string{"Idempotency-Key", idA}}, idA, 0},
		"a quoted key":                          {carried{header: []string{"Idempotency-Key", `"` + idA + `"`}}, idA, 0},
		"an X-Request-Id alone":                 {carried{header: []string{"X-Request-Id", idA}}, idA, 0},
		"a ULID in lower case":                  {carried{body: strings.ToLower(idA)}, idA, 0},
		"a UUID in upper case":                  {carried{header: []string{"Idempotency-Key", "F81D4FAE-7DEC-11D0-A765-00A0C91E6BF6"}}, "f81d4fae-7dec-11d0-a765-00a0c91e6bf6", 0},
		"a business key":                        {carried{body: "order:2024-11_4711.a"}, "order:2024-11_4711.a", 0},
		"all three agree":                       {carried{idA, []string{"Idempotency-Key", idA, "X-Request-Id", idA}}, idA, 0},
		"body and key agree but for the case":   {carried{idA, []string{"Idempotency-Key", strings.ToLower(idA)}}, idA, 0},
		"body and key disagree":                 {carried{idA, []string{"Idempotency-Key", idB}}, "key_mismatch", 0},
		"the key beside a body is no id":        {carried{idA, []string{"Idempotency-Key", "?"}}, "key_mismatch", 0},
		"a proxy's X-Request-Id beside a body":  {carried{idA, []string{"X-Request-Id", "proxy/1234"}}, idA, 1},
		"a proxy's X-Request-Id beside a key":   {carried{header: []string{"Idempotency-Key", idA, "X-Request-Id", idB}}, idA, 1},
		"the same key twice":                    {carried{header: []string{"Idempotency-Key", idA, "Idempotency-Key", `"` + idA + `"`}}, idA, 0},
		"two different keys":                    {carried{header: []string{"Idempotency-Key", idA, "Idempotency-Key", idB}}, "key_mismatch", 0},
		"two keys in one line":                  {carried{header: []string{"Idempotency-Key", idA + ", " + idB}}, "key_invalid", 0},
		"S13: none":                             {carried{}, "key_missing", 0},
		"an empty key":                          {carried{header: []string{"Idempotency-Key", `""`, "X-Request-Id", idA}}, "key_invalid", 0},
		"a key of blanks":                       {carried{header: []string{"Idempotency-Key", " "}}, "key_invalid", 0},
		"a body that is no id":                  {carried{idA + "!", []string{"Idempotency-Key", idA}}, "key_invalid", 0},
		"a ULID beyond all time":                {carried{body: "80000000000000000000000000"}, "key_invalid", 0},
		"seven characters":                      {carried{body: "abcdefg"}, "key_invalid", 0},
		"eight characters":                      {carried{body: "abcdefgh"}, "abcdefgh", 0},
		"64 characters":                         {carried{body: strings.Repeat("x", 64)}, strings.Repeat("x", 64), 0},
		"65 characters":                         {carried{body: strings.Repeat("x", 65)}, "key_invalid", 0},
		"an X-Request-Id alone that is no id":   {carried{header: []string{"X-Request-Id", "a b c d e f"}}, "key_invalid", 0},
		"a half-quoted key":                     {carried{header: []string{"Idempotency-Key", `"` + idA}}, "key_invalid", 0},
		"white space around a key is not of it": {carried{header: []string{"Idempotency-Key", "  " + idA + "  "}}, idA, 0},
	} {
		t.Run(name, func(t *testing.T) {
			before := d.engine.Counters()["x_request_id_ignored"]
			body := doc{"sessionId": chat.NewID(), "content": "[[echo yes]]"}
			if c.body != "" {
				body["requestId"] = c.body
			}
			r := d.chat(body, c.header...)
			if strings.HasPrefix(c.want, "key_") {
				if p := r.refused(400, c.want); p.Retry != chat.RetryNewID {
					t.Errorf("%+v", p)
				}
			} else if rec := r.wants(200).has("X-Request-Id", c.want).record(); rec.RequestID != c.want {
				t.Errorf("request id %q, want %q", rec.RequestID, c.want)
			}
			if got := d.engine.Counters()["x_request_id_ignored"] - before; got != c.ignored {
				t.Errorf("%d ignored X-Request-Id, want %d", got, c.ignored)
			}
		})
	}
}

func TestTheSameIDOverAnotherCarrierIsTheSameIntent(t *testing.T) {
	t.Parallel()
	d := openDoor(t)
	session := chat.NewID()
	body := doc{"sessionId": session, "content": "[[echo yes]]"}
	id := chat.NewID()
	d.chat(body, "X-Request-Id", strings.ToLower(id)).wants(200).has("X-Idempotent-Replayed", "")
	d.chat(body, "Idempotency-Key", `"`+id+`"`).wants(200).has("X-Idempotent-Replayed", "true")
	d.chat(ask(strings.ToLower(session), id, "[[echo yes]]")).wants(200).has("X-Idempotent-Replayed", "true")
	if n := d.demo.Calls(); n != 1 {
		t.Errorf("%d calls of the model", n)
	}
}

func TestASessionHasTheGrammarOfIDs(t *testing.T) {
	t.Parallel()
	d := openDoor(t)
	for _, session := range []string{"", "short", strings.Repeat("x", 65), "with space", "../../etc/passwd", "80000000000000000000000000", "сессия-1"} {
		p := d.chat(ask(session, chat.NewID(), "hello")).refused(400, "session_invalid")
		if !strings.Contains(p.Detail, "sessionId") {
			t.Errorf("%q: %+v", session, p)
		}
	}
}

// FuzzCarriers: whatever the three carriers hold, the id is the canonical form of
// the strongest that is there, or there is a refusal.
func FuzzCarriers(f *testing.F) {
	f.Add(idA, idA, idA)
	f.Add("", `"`+idA+`"`, "")
	f.Add("", "", strings.ToLower(idA))
	f.Add(idA, idB, "")
	f.Add("", `""`, idA)
	f.Add("80000000000000000000000000", "", "")
	f.Add("order:4711", `"order:4711`, "\x00")
	e, err := engine.New(engine.Options{Models: []engine.Model{{Name: "demo", Client: llm.NewDemo()}}})
	if err != nil {
		f.Fatal(err)
	}
	s := handlers.New(handlers.Options{Engine: e})
	f.Fuzz(func(t *testing.T, body, key, weak string) {
		r := &http.Request{Header: http.Header{}}
		if key != "" {
			r.Header.Set("Idempotency-Key", key)
		}
		if weak != "" {
			r.Header.Set("X-Request-Id", weak)
		}
		got, err := s.RequestID(r, body)
		bare := strings.TrimSpace(key)
		if len(bare) >= 2 && bare[0] == '"' && bare[len(bare)-1] == '"' {
			bare = bare[1 : len(bare)-1]
		}
		strongest := body
		if strongest == "" && key != "" {
			strongest = bare
		} else if strongest == "" {
			strongest = weak
		}
		want, wantErr := chat.ParseID(strongest)
		if key != "" && body != "" {
			if other, err := chat.ParseID(bare); err != nil || other != want {
				wantErr = errors.New("they disagree")
			}
		}
		if (err != nil) != (wantErr != nil) || err == nil && got != want {
			t.Fatalf("body %q, key %q, X-Request-Id %q: %q, %v, want %q, %v", body, key, weak, got, err, want, wantErr)
		}
		var p *chat.Problem
		if err != nil && (!errors.As(err, &p) || p.Status != 400 || !strings.HasPrefix(p.Code, "key_")) {
			t.Fatalf("refused with %v", err)
		}
		if err == nil {
			if again, err := chat.ParseID(got); err != nil || again != got {
				t.Fatalf("%q is not canonical", got)
			}
		}
	})
}
