package db_test

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"semel/chat"
	"semel/db"
	"semel/db/dbtest"
)

// as are the columns that a request in each state has.
var as = map[chat.State]string{
	chat.StatePending:      `state = 'pending', owner = NULL, lease_until = NULL, acknowledged_at = NULL, completed_at = NULL, failure_code = NULL, failure_outcome = NULL, failure_retry = NULL`,
	chat.StateGenerating:   `state = 'generating', owner = 'life', lease_until = 1, acknowledged_at = NULL, completed_at = NULL, failure_code = NULL, failure_outcome = NULL, failure_retry = NULL`,
	chat.StateAcknowledged: `state = 'acknowledged', owner = NULL, lease_until = NULL, acknowledged_at = 1, completed_at = NULL, failure_code = NULL, failure_outcome = NULL, failure_retry = NULL`,
	chat.StateCommitted:    `state = 'committed', owner = NULL, lease_until = NULL, acknowledged_at = 1, completed_at = 1, failure_code = NULL, failure_outcome = NULL, failure_retry = NULL`,
	chat.StateFailed:       `state = 'failed', owner = NULL, lease_until = NULL, acknowledged_at = NULL, completed_at = 1, failure_code = 'x', failure_outcome = 'none', failure_retry = 'never'`,
}

// refused runs statements as one caller of the write queue, on the writer's own
// connection, and returns why they were refused, "" when they were not. Nothing
// stays.
func refused(t *testing.T, d *db.DB, statements ...string) string {
	t.Helper()
	undo := fmt.Errorf("undo")
	err := db.Write(context.Background(), d, func(tx *db.Tx) error {
		for _, s := range statements {
			if _, err := tx.Exec(s); err != nil {
				return fmt.Errorf("%s: %w", s, err)
			}
		}
		return undo
	})
	if err == undo {
		return ""
	}
	return err.Error()
}

func TestTheDatabaseAllowsExactlyTheEdgesOfTheContract(t *testing.T) {
	d := dbtest.Open(t)
	r, _ := dbtest.Claim(t, d, dbtest.Accept(t, d, chat.NewID(), "hello"))
	everything := append([]chat.State{chat.StateNew, "unheard-of"}, chat.States...)
	for _, from := range everything {
		for _, to := range everything {
			want := from.CanBecome(to)
			// As a row of transitions.
			n := 9
			if from == chat.StateNew {
				n = 1
			}
			why := refused(t, d, `DROP TRIGGER transitions_no_delete`, `DELETE FROM transitions`,
				fmt.Sprintf(`INSERT INTO transitions VALUES (%d, %d, '%s', '%s', 1, 'a', 'b', 1, 1)`, r.ID, n, from, to))
			if got := why == ""; got != want {
				t.Errorf("a transition from %s to %s is taken: %t, want %t (%s)", from, to, got, want, why)
			}
			// As a change of a request.
			if as[from] == "" || as[to] == "" {
				continue
			}
			claim := ""
			if to == chat.StateGenerating {
				claim = ", attempt = attempt + 1"
			}
			trigger, err := triggerSQL(d, "requests_edges")
			if err != nil {
				t.Fatal(err)
			}
			why = refused(t, d, `DROP TRIGGER requests_edges`, fmt.Sprintf(`UPDATE requests SET %s WHERE id = %d`, as[from], r.ID), trigger,
				fmt.Sprintf(`UPDATE requests SET %s%s WHERE id = %d`, as[to], claim, r.ID))
			if got := why == ""; got != want {
				t.Errorf("a request can go from %s to %s: %t, want %t (%s)", from, to, got, want, why)
			}
		}
	}
}

func triggerSQL(d *db.DB, name string) (string, error) {
	return db.Text(context.Background(), d, `SELECT sql FROM sqlite_schema WHERE name = ?`, name)
}

func TestARequestBeginsAsPending(t *testing.T) {
	d := dbtest.Open(t)
	dbtest.Accept(t, d, "session-1", "hello")
	insert := `INSERT INTO requests (request_id, conversation_id, user_id, kind, seq, fingerprint, model, params, system_prompt, price_input, price_cached,
		price_output, accepted_tx, created_at, updated_at, placed, context, attempt, state) VALUES ('request-9', 1, 1, 'message', 9, zeroblob(80), 'm', '{}', '', 0, 0, 0, 1, 1, 1, 1, '9', 0, 'pending')`
	if why := refused(t, d, insert); why != "" {
		t.Errorf("a pending request is refused: %s", why)
	}
	for _, s := range chat.States[1:] {
		var set, values []string
		for _, c := range strings.Split(strings.TrimPrefix(as[s], "state = '"+string(s)+"', "), ", ") {
			col, value, _ := strings.Cut(c, " = ")
			set, values = append(set, col), append(values, value)
		}
		text := strings.Replace(insert, "attempt, state)", "attempt, state, "+strings.Join(set, ", ")+")", 1)
		text = strings.Replace(text, "0, 'pending')", "1, '"+string(s)+"', "+strings.Join(values, ", ")+")", 1)
		if why := refused(t, d, text); !strings.Contains(why, "CHECK constraint failed: steps") {
			t.Errorf("a request was born %s (%q)", s, why)
		}
	}
}

// healthyWithMoney is a database with a row in every table of record.
func healthyWithMoney(t *testing.T) *db.DB {
	t.Helper()
	d := dbtest.Open(t)
	r, _ := dbtest.Claim(t, d, dbtest.Accept(t, d, "session-1", "hello"))
	r = dbtest.Restart(t, d, dbtest.Fail(t, d, r, "half an ans"))
	r, _ = dbtest.Claim(t, d, r)
	dbtest.Finish(t, d, r, "answer")
	return d
}

func TestRowsOfRecordAreOnlyEverInserted(t *testing.T) {
	d := healthyWithMoney(t)
	ctx := context.Background()
	for table, c := range map[string]struct{ key, other, says string }{
		"transitions": {"request_id, n", "reason", "append-only"},
		"snapshots":   {"request_id", "content", "immutable"},
		"messages":    {"conversation_id, seq", "tokens", "append-only"},
		"ledger":      {"id", "micros", "append-only"},
		"attempts":    {"request_id, n", "upstream_id", "attempts"},
	} {
		before, err := db.Dump(ctx, d, table)
		if err != nil || len(before) == 0 {
			t.Fatalf("%s has %d rows: %v", table, len(before), err)
		}
		for _, s := range []string{
			`UPDATE ` + table + ` SET ` + c.other + ` = ` + c.other,
			`UPDATE OR REPLACE ` + table + ` SET ` + c.other + ` = NULL`,
			`UPDATE OR IGNORE ` + table + ` SET tx = tx + 1`,
			`DELETE FROM ` + table,
			`INSERT OR REPLACE INTO ` + table + ` SELECT * FROM ` + table,
			`REPLACE INTO ` + table + ` SELECT * FROM ` + table,
			`INSERT INTO ` + table + ` SELECT * FROM ` + table + ` WHERE true ON CONFLICT DO UPDATE SET ` + c.other + ` = excluded.` + c.other,
		} {
			if why := refused(t, d, s); !strings.Contains(why, c.says) {
				t.Errorf("%s: %q, want it refused as %q", s, why, c.says)
			}
		}
		after, err := db.Dump(ctx, d, table)
		if err != nil || !slices.Equal(before, after) {
			t.Errorf("%s changed: %q, before %q (%v)", table, after, before, err)
		}
	}
	// A second charge under a key of its own meets the index instead.
	if why := refused(t, d, `INSERT OR REPLACE INTO ledger SELECT NULL, request_id, user_id, kind, attempt, model, 0, 0, 0, 0, 0, at, tx FROM ledger`); !strings.Contains(why, "append-only") {
		t.Errorf("a charge was replaced through its index: %q", why)
	}
	if why := refused(t, d, `INSERT INTO ledger SELECT NULL, request_id, user_id, kind, attempt, model, 0, 0, 0, 0, 0, at, tx FROM ledger WHERE kind = 'charge'`); !strings.Contains(why, "UNIQUE") {
		t.Errorf("a request was charged twice: %q", why)
	}
	if why := refused(t, d, `INSERT INTO ledger SELECT NULL, request_id, user_id, kind, attempt, model, 0, 0, 0, 0, 0, at, tx FROM ledger WHERE kind = 'waste'`); !strings.Contains(why, "UNIQUE") {
		t.Errorf("an attempt was wasted twice: %q", why)
	}
	// A finished request is not replaced either.
	for _, s := range []string{`INSERT OR REPLACE INTO requests SELECT * FROM requests`, `DELETE FROM requests`} {
		if why := refused(t, d, s); !strings.Contains(why, "only a purge deletes") {
			t.Errorf("%s: %q", s, why)
		}
	}
}

// Why the writer's connection has recursive_triggers: without it, REPLACE deletes
// behind the back of the triggers.
func TestWithoutRecursiveTriggersReplaceWalksPastTheGuards(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.db")
	d := dbtest.OpenAt(t, path, nil)
	dbtest.Answered(t, d, "session-1", "hello", "answer")
	for pragma, want := range map[string]bool{"": true, "&_pragma=recursive_triggers(1)": false} {
		c := raw(t, path, pragma)
		tx, err := c.BeginTx(context.Background(), nil)
		if err != nil {
			t.Fatal(err)
		}
		_, err = tx.Exec(`REPLACE INTO snapshots SELECT * FROM snapshots`)
		if got := err == nil; got != want {
			t.Errorf("with %q a snapshot can be replaced: %t, want %t (%v)", pragma, got, want, err)
		}
		if err := tx.Rollback(); err != nil {
			t.Error(err)
		}
	}
}

func TestAnAttemptIsClosedOnceAndNeverReopened(t *testing.T) {
	d := healthyWithMoney(t)
	for _, set := range []string{"outcome = 'ok'", "outcome = NULL, ended_at = NULL", "ended_at = 5", "code = 'x'", "input_tokens = 1"} {
		if why := refused(t, d, `UPDATE attempts SET `+set); !strings.Contains(why, "a closed attempt does not change") {
			t.Errorf("attempts set to %s: %q", set, why)
		}
	}
}

func TestOnlyAClaimChangesTheAttemptAndByOne(t *testing.T) {
	d := dbtest.Open(t)
	r, _ := dbtest.Claim(t, d, dbtest.Accept(t, d, "session-1", "hello"))
	pending := fmt.Sprintf(`UPDATE requests SET %s WHERE id = %d`, as[chat.StatePending], r.ID)
	generating := fmt.Sprintf(`UPDATE requests SET %s`, as[chat.StateGenerating])
	where := fmt.Sprintf(` WHERE id = %d`, r.ID)
	for name, statements := range map[string][]string{
		"two steps":                {pending, generating + `, attempt = attempt + 2` + where},
		"a step back":              {pending, generating + `, attempt = attempt - 1` + where},
		"none":                     {pending, generating + where},
		"while it generates":       {`UPDATE requests SET attempt = attempt + 2` + where},
		"without generating":       {pending, `UPDATE requests SET attempt = attempt + 1` + where},
		"with the end of its life": {`UPDATE requests SET ` + as[chat.StateFailed] + `, attempt = attempt + 1` + where},
	} {
		if why := refused(t, d, statements...); !strings.Contains(why, "only a claim changes the attempt") && !strings.Contains(why, "no such edge") {
			t.Errorf("%s: %q", name, why)
		}
	}
	if why := refused(t, d, pending, generating+`, attempt = attempt + 1`+where); why != "" {
		t.Errorf("a claim is refused: %s", why)
	}
}

func TestWhatWasAcceptedDoesNotChange(t *testing.T) {
	d := healthyWithMoney(t)
	dbtest.Accept(t, d, "session-1", "and now?")
	for _, col := range []string{"id", "request_id", "conversation_id", "user_id", "kind", "seq", "fingerprint", "params", "system_prompt", "accepted_tx", "created_at"} {
		if why := refused(t, d, `UPDATE requests SET `+col+` = `+col); !strings.Contains(why, "what was accepted does not change") {
			t.Errorf("%s: %q", col, why)
		}
	}
	for _, col := range []string{"model", "price_input", "price_cached", "price_output"} {
		if why := refused(t, d, `UPDATE requests SET `+col+` = '7'`); !strings.Contains(why, "only a restart") {
			t.Errorf("%s: %q", col, why)
		}
	}
	for _, set := range []string{"context = NULL", "context = '1 2'", "context_dropped = 1", "placed = 0", "parent_seq = 2"} {
		if why := refused(t, d, `UPDATE requests SET `+set+` WHERE attempt > 0`); !strings.Contains(why, "the context is frozen, and the place") {
			t.Errorf("%s: %q", set, why)
		}
	}
}

// Each row of requests is only what a request in its state is.
func TestAStateAndItsColumnsAgree(t *testing.T) {
	d := dbtest.Open(t)
	r, _ := dbtest.Claim(t, d, dbtest.Accept(t, d, "session-1", "hello"))
	trigger, err := triggerSQL(d, "requests_edges")
	if err != nil {
		t.Fatal(err)
	}
	for state, bad := range map[chat.State][]string{
		chat.StatePending:      {"owner = 'x'", "lease_until = 1", "acknowledged_at = 1", "completed_at = 1", "failure_code = 'x'", "failure_outcome = 'none'", "stop_attempt = 1"},
		chat.StateGenerating:   {"owner = NULL", "lease_until = NULL", "retry_at = 1", "context = NULL", "placed = 0", "stop_requested_at = 1", "completed_at = 1"},
		chat.StateAcknowledged: {"acknowledged_at = NULL", "completed_at = 1", "owner = 'x', lease_until = 1", "retry_at = 1"},
		chat.StateCommitted:    {"acknowledged_at = NULL", "completed_at = NULL", "failure_code = 'x', failure_outcome = 'none', failure_retry = 'never'"},
		chat.StateFailed:       {"failure_code = NULL", "failure_outcome = NULL", "failure_retry = NULL", "failure_outcome = 'ok'", "failure_retry = 'new-id'", "completed_at = NULL", "acknowledged_at = 1"},
	} {
		into := fmt.Sprintf(`UPDATE requests SET %s WHERE id = %d`, as[state], r.ID)
		if why := refused(t, d, `DROP TRIGGER requests_edges`, into, trigger); why != "" {
			t.Fatalf("%s: %s", state, why)
		}
		for _, set := range bad {
			why := refused(t, d, `DROP TRIGGER requests_edges`, `DROP TRIGGER requests_context`, into, `UPDATE requests SET `+set)
			if !strings.Contains(why, "CHECK constraint failed") {
				t.Errorf("%s with %s: %q", state, set, why)
			}
		}
	}
}

func TestOneRequestOfAConversationGeneratesAtATime(t *testing.T) {
	d := dbtest.Open(t)
	first, second := dbtest.Accept(t, d, "session-1", "one"), dbtest.Accept(t, d, "session-1", "two")
	other := dbtest.Accept(t, d, "session-2", "three")
	claim := func(r chat.Request) string {
		return fmt.Sprintf(`UPDATE requests SET %s, steps = 2, attempt = attempt + 1, placed = 1, context = '1' WHERE id = %d`, as[chat.StateGenerating], r.ID)
	}
	if why := refused(t, d, claim(first), claim(second)); !strings.Contains(why, "UNIQUE constraint failed: requests.conversation_id") {
		t.Errorf("two generate in one conversation: %q", why)
	}
	if why := refused(t, d, claim(first), claim(other)); why != "" {
		t.Errorf("two conversations cannot generate at once: %s", why)
	}
}

func TestAKeyIsAcceptedOnceWhateverItsContent(t *testing.T) {
	d := dbtest.Open(t)
	dbtest.Accept(t, d, "session-1", "hello")
	copyRow := `INSERT INTO requests (request_id, conversation_id, user_id, kind, seq, fingerprint, state, model, params, system_prompt, price_input, price_cached,
		price_output, accepted_tx, created_at, updated_at) SELECT request_id, conversation_id, user_id, 'edit', 99, zeroblob(80), 'pending', 'x', '{}', '', 0, 0, 0, 1, 1, 1 FROM requests`
	if why := refused(t, d, copyRow); !strings.Contains(why, "UNIQUE constraint failed: requests.request_id, requests.conversation_id, requests.user_id") {
		t.Errorf("a key was accepted twice: %q", why)
	}
}

// The readers cannot write, whatever a bug tells them.
func TestAReadingConnectionCannotWrite(t *testing.T) {
	d := healthyWithMoney(t)
	if _, err := db.Int(context.Background(), d, `UPDATE instance SET tx = 7 RETURNING tx`); err == nil || !strings.Contains(err.Error(), "readonly") {
		t.Errorf("a reading connection wrote: %v", err)
	}
}
