package db_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"semel/chat"
	"semel/db"
	"semel/db/dbtest"
)

// Bits flip, and people write into files. A question or an answer that is not the one that
// was stored is shown to nobody, is sent to no model, and is in no export.
func TestWhatIsNotTheOneStoredIsServedToNobody(t *testing.T) {
	for name, c := range map[string]struct{ damage, search string }{
		"answer":   {`UPDATE snapshots SET content = 'The quay is shut.'`, "quay"},
		"question": {`UPDATE messages SET content = 'Is the harbour shut?' WHERE role = 'user'`, "harbour"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "x.db")
			d := dbtest.OpenAt(t, path, nil)
			r := dbtest.Answered(t, d, "session-1", "Is the harbour open?", "The quay is open.")
			if err := d.Close(); err != nil {
				t.Fatal(err)
			}
			breakFile(t, path, []string{c.damage})
			d = dbtest.OpenAt(t, path, nil)
			reads := map[string]func() error{
				"thread": func() error { _, err := d.Thread(bg, db.LocalUser, "session-1"); return err },
				"turns":  func() error { _, err := d.Turns(bg, r.ConversationID, []int64{1, 2}); return err },
				"export": func() error { _, err := d.Archive(bg, db.LocalUser, "session-1"); return err },
				"search": func() error {
					_, _, err := d.Conversations(bg, db.LocalUser, db.List{Query: c.search, Limit: 10})
					return err
				},
				"reveal": func() error { _, err := d.Reveal(bg, r.ID, db.Deed{Actor: "user:1", Reason: "looking"}); return err },
			}
			if name == "answer" { // the record has no question
				reads["record"] = func() error { _, err := d.Record(bg, r.Key); return err }
			}
			for name, read := range reads {
				if err := read(); !errors.Is(err, db.ErrDamaged) {
					t.Errorf("%s: %v, want that the file is damaged", name, err)
				}
			}
		})
	}
}

// One bit flips in what leaves: the text of a question, a file that it carries, the
// payload of an effect, the arguments that a person approves and those of what undoes
// them. Nothing else than what was stored is handed out to be sent.
func TestAFlippedBitIsNeverSent(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.db")
	d := dbtest.OpenAt(t, path, nil)
	const question, content = "Tell the harbour master who comes.", "The cargo is forty crates of oranges."
	file := dbtest.Upload(t, d, "cargo.txt", content)
	asked := dbtest.Submit(t, d, dbtest.Carrying(dbtest.Ask("session-1", chat.KindMessage, question, 0), file))
	r, _ := dbtest.Claim(t, d, dbtest.Submit(t, d, dbtest.Ask("session-2", chat.KindMessage, "Do it.", 0)))
	const posted, signed = `{"n": 1234567890123}`, `{"n": 9876543210987}`
	calls := []chat.ToolCall{{ID: "a", Name: "note", Arguments: `{"n": 1}`}, {ID: "b", Name: "post", Arguments: posted}, {ID: "c", Name: "sign", Arguments: signed}}
	a := dbtest.Asking()
	a.Decisions = dbtest.Declared.Decide(calls, a.Finish)
	r, err := d.Finish(bg, r, a)
	if err != nil {
		t.Fatal(err)
	}
	effects := dbtest.EffectsOf(t, d, r)
	due, undecided, done := effects[0].WebhookID, effects[1].WebhookID, effects[2].WebhookID
	dbtest.Approve(t, d, effects[2])
	dbtest.Deliver(t, d, done, dbtest.GaveUp)
	payload := dbtest.Outgoing(t, d, due).Payload
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	// Each says what would be sent.
	for name, c := range map[string]struct {
		stored, want string
		sent         func(d *db.DB) (string, error)
	}{
		"a question": {question, question, func(d *db.DB) (string, error) {
			turns, err := d.Turns(bg, asked.ConversationID, []int64{1})
			if err != nil {
				return "", err
			}
			return turns[0].Content, nil
		}},
		"a file": {content, content, func(d *db.DB) (string, error) {
			b, err := d.Content(bg, file.SHA256)
			return string(b), err
		}},
		"a payload": {payload, due + payload, func(d *db.DB) (string, error) {
			list, _, err := d.Due(bg, time.Now().Add(time.Hour), nil, 10)
			if err != nil {
				return "", err
			}
			if !list[0].Sound() {
				return "", db.ErrDamaged
			}
			return list[0].WebhookID + list[0].Payload, nil
		}},
		"arguments": {posted, posted, func(d *db.DB) (string, error) {
			if _, err := d.Decide(bg, db.Verdict{UserID: db.LocalUser, WebhookID: undecided, Approve: true, Actor: "user:1"}); err != nil {
				return "", err
			}
			return argumentsOf(t, dbtest.Outgoing(t, d, undecided)), nil
		}},
		"what undoes": {signed, signed, func(d *db.DB) (string, error) {
			if _, err := d.Resolve(bg, db.Resolution{WebhookID: done, Do: db.Compensate, Actor: "user:1"}); err != nil {
				return "", err
			}
			return argumentsOf(t, dbtest.CompensationOf(t, d, done)), nil
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			found := 0
			for at := 0; ; at++ {
				next := bytes.Index(whole[at:], []byte(c.stored))
				if next < 0 {
					break
				}
				at += next
				for i := 0; i < len(c.stored); i += 1 + len(c.stored)/12 {
					flipped := bytes.Clone(whole)
					flipped[at+i] ^= 1 << (i % 8)
					path := filepath.Join(t.TempDir(), "x.db")
					if err := os.WriteFile(path, flipped, 0o600); err != nil {
						t.Fatal(err)
					}
					d := dbtest.OpenAt(t, path, nil)
					switch sent, err := c.sent(d); {
					case errors.Is(err, db.ErrDamaged):
						found++
					case err != nil:
						t.Fatalf("byte %d: %v", at+i, err)
					case sent != c.want:
						t.Errorf("byte %d: sent is %q, want %q or nothing", at+i, sent, c.want)
					}
					if err := d.Close(); err != nil {
						t.Fatal(err)
					}
				}
			}
			if found < 10 {
				t.Errorf("%d flipped bits were found: this proves little", found)
			}
		})
	}
}

func argumentsOf(t *testing.T, o db.Outgoing) string {
	t.Helper()
	var p struct {
		Data struct{ Arguments struct{ N int64 } }
	}
	if err := json.Unmarshal([]byte(o.Payload), &p); err != nil {
		t.Fatalf("%s: %v", o.Payload, err)
	}
	return fmt.Sprintf(`{"n": %d}`, p.Data.Arguments.N)
}
