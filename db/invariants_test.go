package db_test

import (
	"context"
	"database/sql"
	"os"
	"slices"
	"strings"
	"testing"

	"semel/db"
	"semel/db/dbtest"
)

func TestAHealthyFileRaisesNoAlarm(t *testing.T) {
	d := dbtest.OpenAt(t, copyHealthy(t), nil)
	dbtest.Check(t, d)
	// It is what it says it is: each state, each kind, each way to end.
	for what, want := range map[string]string{
		`SELECT count(DISTINCT state) FROM requests`:                             "pending, generating, acknowledged, committed, failed",
		`SELECT count(DISTINCT kind) FROM requests`:                              "message, edit, regenerate, continue",
		`SELECT count(DISTINCT outcome) FROM attempts WHERE outcome <> 'fenced'`: "ok, definite, unknown, stopped",
		`SELECT count(DISTINCT reason) FROM attempts`:                            "accepted, rerun, explicit",
	} {
		got, err := db.Int(context.Background(), d, what)
		if err != nil || int(got) != len(strings.Split(want, ", ")) {
			t.Errorf("%s is %d, %v, want all of %s", what, got, err, want)
		}
	}
	for _, what := range []string{
		`SELECT count(*) FROM requests WHERE placed = 0 AND state = 'failed'`,
		`SELECT count(*) FROM ledger WHERE request_id NOT IN (SELECT id FROM requests)`,
		`SELECT count(*) FROM tombstones`,
		`SELECT count(*) FROM requests WHERE retry_at IS NOT NULL`,
		`SELECT count(*) FROM requests WHERE stop_attempt IS NOT NULL`,
		`SELECT count(*) FROM conversations WHERE deleted_at IS NOT NULL`,
		`SELECT count(*) FROM partials`,
	} {
		if got, err := db.Int(context.Background(), d, what); err != nil || got == 0 {
			t.Errorf("%s is %d, %v, want some", what, got, err)
		}
	}
}

// A damage is what a bug, a bad disk or a hand could do to a file, past every
// guard. each statement runs on the healthy file with triggers dropped (and put
// back afterwards), CHECKs and foreign keys off.
type damage struct {
	id   string
	do   []string
	deep func(t *testing.T, path string) // instead of do
}

const (
	aCommitted = `(SELECT min(id) FROM requests WHERE state = 'committed')`
	aFailed    = `(SELECT min(id) FROM requests WHERE state = 'failed' AND placed = 1 AND attempt > 0)`
	twoRuns    = `(SELECT min(id) FROM requests WHERE state = 'committed' AND attempt = 2)`
	aRerun     = `(SELECT min(id) FROM requests WHERE state = 'generating' AND attempt = 2)`
	running    = `(SELECT min(id) FROM requests WHERE state = 'generating')`
)

var damages = []damage{
	{id: "S1", do: []string{`PRAGMA writable_schema = ON`, `UPDATE sqlite_schema SET rootpage = (SELECT rootpage FROM sqlite_schema WHERE name = 'partials') WHERE name = 'tombstones'`}},
	{id: "S1", deep: flipAByte},
	{id: "S2", do: []string{`INSERT INTO partials VALUES (1, 1, 1, '', '', 1)`, `INSERT INTO arrivals VALUES (9999, 2, 1, 'api', 'joined', 200)`}},
	{id: "I01", deep: acceptTwice},
	{id: "I02", do: []string{`UPDATE requests SET request_id = lower(request_id) WHERE id = ` + running}},
	{id: "I02", do: []string{`UPDATE requests SET request_id = '8' || substr(request_id, 2) WHERE id = ` + running}},
	{id: "I02", do: []string{`UPDATE requests SET request_id = 'F47AC10B-58CC-4372-A567-0E02B2C3D479' WHERE id = ` + running}},
	{id: "I02", do: []string{`UPDATE requests SET request_id = 'not an id' WHERE id = ` + running}},
	{id: "I03", do: []string{`UPDATE requests SET user_id = 2 WHERE id = ` + running}},
	{id: "I03", do: []string{`DELETE FROM conversations WHERE id = 2`}},
	{id: "I04", do: []string{`UPDATE transitions SET from_state = 'committed', to_state = 'pending' WHERE request_id = ` + running + ` AND n = 2`}},
	{id: "I05", do: []string{`UPDATE transitions SET n = n + 1 WHERE request_id = ` + running + ` AND n = 2`, `UPDATE requests SET steps = steps + 1 WHERE id = ` + running}},
	{id: "I05", do: []string{`DELETE FROM transitions WHERE n = 1 AND request_id = ` + running}},
	{id: "I06", do: []string{`UPDATE requests SET state = 'failed', failure_code = 'x', failure_outcome = 'none', failure_retry = 'never', completed_at = 1
		WHERE id = (SELECT min(id) FROM requests WHERE state = 'pending' AND attempt = 0)`}},
	{id: "I06", do: []string{`UPDATE requests SET steps = steps + 1 WHERE id = ` + aCommitted}},
	{id: "I07", do: []string{`UPDATE transitions SET actor = 'worker:life' WHERE from_state = 'failed'`}},
	{id: "I07", do: []string{`UPDATE transitions SET reason = 'engine_retry' WHERE from_state = 'failed'`}},
	{id: "I08", do: []string{`UPDATE transitions SET attempt = 0 WHERE request_id = ` + aCommitted + ` AND n = 3`}},
	{id: "I09", do: []string{`UPDATE requests SET attempt = attempt + 1 WHERE id = ` + aFailed}},
	{id: "I10", do: []string{`UPDATE requests SET owner = NULL WHERE id = ` + running}},
	{id: "I10", do: []string{`UPDATE requests SET owner = 'x', lease_until = 1 WHERE id = ` + aFailed}},
	{id: "I11", do: []string{`DELETE FROM attempts WHERE n = 1 AND request_id = ` + twoRuns}},
	{id: "I11", do: []string{`DELETE FROM attempts WHERE request_id = ` + running}},
	{id: "I12", do: []string{`UPDATE attempts SET outcome = NULL, ended_at = NULL WHERE request_id = ` + aFailed}},
	{id: "I12", do: []string{`UPDATE attempts SET outcome = 'fenced', ended_at = 1 WHERE request_id = ` + running}},
	{id: "I13", do: []string{`UPDATE attempts SET tx = tx - 1 WHERE request_id = ` + running}},
	{id: "I13", do: []string{`UPDATE attempts SET reason = 'engine_retry' WHERE request_id = ` + running}},
	{id: "I15", do: []string{`UPDATE attempts SET outcome = 'definite' WHERE request_id = ` + aCommitted}},
	{id: "I15", do: []string{`UPDATE snapshots SET finish = 'stopped' WHERE request_id = ` + aCommitted}},
	{id: "I16", do: []string{`UPDATE snapshots SET content = 'another answer' WHERE request_id = ` + aCommitted}},
	{id: "I16", do: []string{`UPDATE snapshots SET reasoning = '', content = content || reasoning WHERE request_id = ` + aCommitted}},
	{id: "I17", do: []string{`DELETE FROM snapshots WHERE request_id = ` + aCommitted}},
	{id: "I18", do: []string{`UPDATE snapshots SET attempt = 1 WHERE request_id = ` + twoRuns}},
	{id: "I19", do: []string{`DELETE FROM messages WHERE role = 'user' AND request_id = ` + running}},
	{id: "I19", do: []string{`UPDATE messages SET tx = tx + 1 WHERE role = 'user' AND request_id = ` + aCommitted}},
	{id: "I20", do: []string{`DELETE FROM messages WHERE role = 'assistant' AND request_id = ` + aCommitted}},
	{id: "I20", do: []string{`INSERT INTO messages SELECT conversation_id, seq + 1, id, 'assistant', NULL, 1, 1, 0 FROM requests WHERE id = ` + running}},
	{id: "I22", do: []string{`UPDATE messages SET request_id = 9999 WHERE role = 'assistant' AND request_id = ` + aCommitted}},
	{id: "I22", do: []string{`UPDATE messages SET seq = 500 WHERE role = 'assistant' AND request_id = ` + aCommitted}},
	{id: "I23", do: []string{`DELETE FROM ledger WHERE kind = 'charge' AND request_id = ` + aCommitted}},
	{id: "I23", do: []string{`UPDATE ledger SET kind = 'charge' WHERE kind = 'waste' AND request_id = ` + aFailed}},
	{id: "I24", do: []string{`UPDATE ledger SET micros = micros + 1 WHERE kind = 'charge' AND request_id = ` + aCommitted}},
	{id: "I24", do: []string{`UPDATE ledger SET user_id = 2 WHERE kind = 'charge' AND request_id = ` + aCommitted}},
	{id: "I24", do: []string{`UPDATE requests SET price_output = price_output * 1000 WHERE id = ` + aCommitted}},
	{id: "I25", do: []string{`UPDATE ledger SET attempt = 9 WHERE kind = 'waste' AND request_id = ` + aFailed}},
	{id: "I25", do: []string{`UPDATE ledger SET attempt = 2 WHERE kind = 'waste' AND request_id = ` + twoRuns}},
	{id: "I25", do: []string{`UPDATE ledger SET user_id = 2 WHERE kind = 'waste' AND request_id = ` + aFailed}},
	{id: "I27", do: []string{`DELETE FROM processed WHERE request = ` + aCommitted}},
	{id: "I27", do: []string{`UPDATE processed SET fingerprint = zeroblob(80) WHERE request = ` + aCommitted}},
	{id: "I27", do: []string{`INSERT INTO processed VALUES ('request-x', 1, 1, 9999, zeroblob(80), 1, 1)`}},
	{id: "I28", do: []string{`UPDATE ledger SET tx = tx - 1 WHERE kind = 'charge' AND request_id = ` + aCommitted}},
	{id: "I28", do: []string{`UPDATE processed SET tx = tx - 1 WHERE request = ` + aCommitted}},
	{id: "I34", do: []string{`UPDATE transitions SET tx = tx - 1 WHERE to_state = 'committed' AND request_id = ` + aCommitted}},
	{id: "I44", do: []string{`DELETE FROM arrivals WHERE request_id = ` + aCommitted}},
	{id: "I44", do: []string{`UPDATE requests SET accepted_tx = accepted_tx + 1 WHERE id = ` + aCommitted}},
	{id: "I48", do: []string{`UPDATE requests SET failure_code = NULL WHERE id = ` + aFailed}},
	{id: "I48", do: []string{`UPDATE requests SET completed_at = NULL WHERE id = ` + aCommitted}},
	{id: "I49", do: []string{`UPDATE instance SET tx = 3`}},
	{id: "I49", do: []string{`UPDATE instance SET indexed_tx = tx + 1`}},
	{id: "I49", do: []string{`UPDATE conversations SET named_tx = (SELECT tx + 1 FROM instance) WHERE session_id = '` + branches + `'`}},
	{id: "I52", do: []string{`UPDATE users SET disabled_at = 1 WHERE name = 'ada'`}},
	{id: "I52", do: []string{`UPDATE users SET password = NULL WHERE name = 'ada'`}},
	{id: "I52", do: []string{`UPDATE logins SET expires_at = created_at`}},
	{id: "I52", do: []string{`UPDATE logins SET digest = x'746f6b656e' WHERE user_id = 1`}},
	{id: "I86", do: []string{`UPDATE users SET role = 'operator' WHERE name = 'ada'`}},
	{id: "I86", do: []string{`UPDATE users SET disabled_at = 1 WHERE name = 'ada'`}},
	{id: "I86", do: []string{`UPDATE users SET password = NULL WHERE name = 'ada'`}},
	{id: "I87", do: []string{`UPDATE api_keys SET user_id = (SELECT id FROM users WHERE name = 'other')`}},
	{id: "I87", do: []string{`UPDATE api_keys SET digest = x'6b6579' WHERE id = 1`}},
	{id: "I57", do: []string{`UPDATE attempts SET reason = 'engine_retry' WHERE n = 2 AND request_id = ` + aRerun}},
	{id: "I58", do: []string{`UPDATE requests SET seq = 0 WHERE state = 'pending' AND attempt = 0 AND conversation_id = (SELECT conversation_id FROM requests WHERE id = ` + running + `)`}},
	{id: "I59", do: []string{`UPDATE conversations SET head_seq = 999 WHERE session_id = '` + branches + `'`}},
	{id: "I59", do: []string{`UPDATE conversations SET head_seq = 3 WHERE session_id = '` + busy + `'`}},
	{id: "I60", do: []string{`UPDATE requests SET parent_seq = 999 WHERE id = ` + running}},
	{id: "I60", do: []string{`UPDATE requests SET parent_seq = seq + 1 WHERE id = ` + aCommitted}},
	{id: "I60", do: []string{`UPDATE requests SET parent_seq = 1 WHERE kind = 'continue'`}},
	{id: "I61", do: []string{`UPDATE conversations SET next_seq = 1 WHERE session_id = '` + branches + `'`}},
	{id: "I62", do: []string{`INSERT INTO tombstones SELECT tombstone_digest(r.user_id, c.session_id, r.request_id), NULL, 1
		FROM requests r JOIN conversations c ON c.id = r.conversation_id WHERE r.id = ` + running}},
	{id: "I63", do: []string{`UPDATE requests SET context = '1 2 999 ' || seq WHERE id = ` + running}},
	{id: "I63", do: []string{`UPDATE requests SET context = '2 1' WHERE kind = 'regenerate'`}},
	{id: "I64", do: []string{`INSERT INTO partials VALUES (` + running + `, 7, 1, 'x', '', 1)`}},
	{id: "I64", do: []string{`INSERT INTO partials VALUES (` + aCommitted + `, 1, 1, 'x', '', 1)`}},
	{id: "I65", do: []string{`UPDATE requests SET accepted_tx = (SELECT accepted_tx FROM requests WHERE id = 1) WHERE id = 2`}},
	{id: "I65", do: []string{`UPDATE snapshots SET tx = 1`}},
	{id: "I66", do: []string{`UPDATE requests SET stop_attempt = attempt + 1, stop_requested_at = 1 WHERE id = ` + running}},
	{id: "I67", do: []string{`UPDATE conversations SET ended_tx = ended_tx - 1 WHERE session_id = '` + branches + `'`}},
	{id: "I67", do: []string{`UPDATE conversations SET ended_tx = 0, seen_tx = 0 WHERE session_id = '` + revived + `'`}},
	{id: "I67", do: []string{`UPDATE conversations SET ended_tx = 1 WHERE session_id = '` + busy + `'`}},
	{id: "I67", do: []string{`UPDATE conversations SET seen_tx = ended_tx + 1 WHERE session_id = '` + branches + `'`}},
	{id: "I68", do: []string{`DELETE FROM search WHERE rowid = (SELECT min(tx) FROM messages)`}},
	{id: "I68", do: []string{`DELETE FROM search WHERE rowid = (SELECT named_tx FROM conversations WHERE session_id = '` + branches + `')`}},
	{id: "I68", do: []string{`UPDATE instance SET indexed_tx = tx`}},
	{id: "I68", do: []string{`INSERT INTO search (rowid, tokens) SELECT max(tx), 'x' FROM messages`}},
	{id: "I68", do: []string{`INSERT INTO search (rowid, tokens) SELECT dispatched.tx, 'x' FROM attempts dispatched WHERE request_id = ` + aCommitted}},
	{id: "I70", do: []string{`UPDATE instance SET epoch = 2`}},
	{id: "I70", do: []string{`INSERT INTO restores VALUES (2, 1, 2, NULL, 1), (3, 1, 2, NULL, 1)`, `UPDATE instance SET epoch = 3`}},
	{id: "I71", do: []string{`INSERT INTO restores SELECT 2, 1, 2, NULL, tx FROM instance`, `UPDATE requests SET failure_retry = 'auto' WHERE id = ` + aFailed,
		`UPDATE outbox SET doubted_at = 1`}},
	{id: "I71", do: []string{`INSERT INTO restores SELECT 2, 1, 2, 3, tx FROM instance`, `UPDATE requests SET failure_retry = 'explicit' WHERE state = 'failed'`,
		`UPDATE outbox SET doubted_at = 1`}},
	{id: "I71", do: []string{`INSERT INTO restores SELECT 2, 1, 2, NULL, tx FROM instance`, `UPDATE requests SET failure_retry = 'explicit' WHERE state = 'failed'`}},
	{id: "I69", do: []string{`UPDATE arrivals SET source = 'import' WHERE n = 1 AND request_id = ` + aCommitted}},
	{id: "I69", do: []string{`UPDATE attempts SET reason = 'imported' WHERE request_id = ` + aCommitted}},
	{id: "I69", do: []string{`UPDATE arrivals SET source = 'import' WHERE n = 1 AND request_id = ` + aCommitted,
		`UPDATE transitions SET reason = 'imported' WHERE n < 3 AND request_id = ` + aCommitted, `UPDATE attempts SET reason = 'imported' WHERE request_id = ` + aCommitted}},
	{id: "I69", do: []string{`UPDATE requests SET context = '' WHERE id = ` + aCommitted}},
	{id: "I69", do: []string{`UPDATE arrivals SET source = 'import' WHERE n = 1 AND request_id = ` + aFailed, `UPDATE transitions SET reason = 'imported' WHERE n = 1 AND request_id = ` + aFailed,
		`UPDATE requests SET failure_retry = 'auto' WHERE id = ` + aFailed}},
	{id: "I80", do: []string{`UPDATE contents SET content = CAST(content || 'x' AS BLOB) WHERE media_type = 'text/plain'`}},
	{id: "I81", do: []string{`UPDATE attachments SET name = 'other.txt' WHERE name = 'note.txt'`}},
	{id: "I81", do: []string{`UPDATE attachments SET user_id = 2 WHERE name = 'not sent.txt'`}},
	{id: "I81", do: []string{`DELETE FROM attachments WHERE name = 'not sent.txt'`}},
	{id: "I82", do: []string{`UPDATE carried SET seq = seq + 1 WHERE seq = 1`}},
	{id: "I82", do: []string{`UPDATE carried SET tx = tx + 1 WHERE n = 2`}},
	{id: "I82", do: []string{`DELETE FROM carried WHERE n = 1`}},
	{id: "I82", do: []string{`UPDATE attachments SET user_id = 2 WHERE name = 'note.txt'`}},
	{id: "I82", do: []string{`DELETE FROM attachments WHERE name = 'again.txt'`}},
	{id: "I83", do: []string{`DELETE FROM carried WHERE n = 2`}},
	{id: "I83", do: []string{`UPDATE carried SET n = 4 - n WHERE seq = 1`}},
	{id: "I83", do: []string{`UPDATE requests SET fingerprint = (SELECT fingerprint FROM requests WHERE id = 1) WHERE id = (SELECT m.request_id FROM messages m JOIN carried k USING (conversation_id, seq) WHERE k.n = 2)`}},
	{id: "I88", do: []string{`UPDATE messages SET content = content || '!' WHERE role = 'user' AND request_id = ` + aCommitted}},
	{id: "I88", do: []string{`UPDATE messages SET content = '' WHERE role = 'user' AND request_id = ` + running}},
	{id: "I89", do: []string{`UPDATE outbox SET payload = payload || ' ' WHERE kind = 'effect'`}},
	{id: "I89", do: []string{`UPDATE outbox SET payload = payload || ' ' WHERE kind = 'charge'`}},
	{id: "I89", do: []string{`UPDATE outbox SET destination = destination || 'x' WHERE id = (SELECT min(id) FROM outbox)`}},
	{id: "I89", do: []string{`UPDATE outbox SET sha256 = NULL WHERE id = (SELECT min(id) FROM outbox)`}},
	{id: "I84", do: []string{`UPDATE instance SET attempts = 0`}},
	{id: "I84", do: []string{`UPDATE instance SET answers = answers + 1`}},
	{id: "I84", do: []string{`DELETE FROM ledger WHERE kind = 'charge' AND request_id = ` + aCommitted}},
	{id: "I84", do: []string{`UPDATE ledger SET micros = micros + 1 WHERE kind = 'charge' AND request_id = ` + aCommitted}},
	{id: "I84", do: []string{`UPDATE instance SET joined = 0`, `INSERT INTO arrivals VALUES (` + aCommitted + `, 99, 1, 'api', 'joined', 202)`}},
	{id: "I84", do: []string{`UPDATE instance SET saved_micros = 0`, `INSERT INTO arrivals VALUES (` + aCommitted + `, 99, 1, 'api', 'replayed', 200)`,
		`UPDATE instance SET replayed = replayed + 1`}},
}

// Every guard of the schema is a damage when it is missing, or there and empty.
func init() {
	for _, g := range strings.Fields(`requests_edges requests_identity requests_attempt requests_context requests_price requests_no_delete transitions_no_update
		transitions_no_delete attempts_closed attempts_no_delete snapshots_no_update snapshots_no_delete messages_no_update messages_no_delete ledger_no_update ledger_no_delete
		declarations_no_update declarations_no_delete decisions_no_update decisions_no_delete verdicts_no_update verdicts_no_delete outbox_edges outbox_identity outbox_attempt outbox_no_delete
		deliveries_closed deliveries_no_delete callbacks_no_update callbacks_no_delete audit_no_update audit_no_delete
		contents_no_update attachments_identity carried_no_update carried_no_delete api_keys_identity api_keys_revoked`) {
		damages = append(damages, damage{id: "I50", deep: func(t *testing.T, path string) { execRaw(t, path, `DROP TRIGGER `+g) }})
		table, _, _ := strings.Cut(strings.Replace(g, "api_keys", "api keys", 1), "_")
		table = strings.Replace(table, " ", "_", 1)
		damages = append(damages, damage{id: "I50", deep: func(t *testing.T, path string) {
			execRaw(t, path, `DROP TRIGGER `+g, `CREATE TRIGGER `+g+` BEFORE UPDATE ON `+table+` BEGIN SELECT 1; END`)
		}})
	}
	for _, index := range []string{"requests_generating", "ledger_charge", "ledger_waste", "callbacks_first", "audit_key"} {
		damages = append(damages, damage{id: "I50", deep: func(t *testing.T, path string) { execRaw(t, path, `DROP INDEX `+index) }})
	}
}

func TestEachInvariantFindsTheDamageMadeForIt(t *testing.T) {
	tried := map[string]bool{}
	for _, dm := range damages {
		tried[dm.id] = true
		t.Run(dm.id, func(t *testing.T) {
			t.Parallel()
			path := copyHealthy(t)
			if dm.deep != nil {
				dm.deep(t, path)
			} else {
				breakFile(t, path, dm.do)
			}
			if dm.id == "S1" {
				verifyFinds(t, path, dm.id)
				return
			}
			i := slices.IndexFunc(db.Invariants, func(inv db.Invariant) bool { return inv.ID == dm.id })
			if i < 0 {
				t.Fatalf("there is no invariant %s", dm.id)
			}
			var found int
			row := raw(t, path, "").QueryRowContext(context.Background(), `SELECT count(*) FROM (`+db.Invariants[i].SQL+`)`)
			if err := row.Scan(&found); err != nil || found == 0 {
				t.Errorf("%s (%s) finds %d rows (%v) after %s", dm.id, db.Invariants[i].Name, found, err, dm.do)
			}
		})
	}
	for _, inv := range db.Invariants {
		if !tried[inv.ID] {
			t.Errorf("no damage proves that %s (%s) finds anything", inv.ID, inv.Name)
		}
	}
}

// breakFile runs statements past every guard, and puts the triggers back.
func breakFile(t *testing.T, path string, statements []string) {
	t.Helper()
	ctx := context.Background()
	c := raw(t, path, "&_pragma=foreign_keys(0)&_pragma=ignore_check_constraints(1)")
	rows, err := c.QueryContext(ctx, `SELECT name, sql FROM sqlite_schema WHERE type = 'trigger'`)
	if err != nil {
		t.Fatal(err)
	}
	triggers := map[string]string{}
	for rows.Next() {
		var name, text string
		if err := rows.Scan(&name, &text); err != nil {
			t.Fatal(err)
		}
		triggers[name] = text
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	for name := range triggers {
		mustExec(t, c, `DROP TRIGGER `+name)
	}
	var changed int64
	for _, s := range statements {
		changed += mustExec(t, c, s)
	}
	if changed == 0 {
		t.Errorf("the damage changes nothing: %s", statements)
	}
	for _, text := range triggers {
		mustExec(t, c, text)
	}
}

func execRaw(t *testing.T, path string, statements ...string) {
	t.Helper()
	c := raw(t, path, "")
	for _, s := range statements {
		mustExec(t, c, s)
	}
}

func mustExec(t *testing.T, c *sql.Conn, text string) int64 {
	t.Helper()
	res, err := c.ExecContext(context.Background(), text)
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	n, err := res.RowsAffected()
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// acceptTwice gives a request a twin with its key, as a damaged unique index
// would let happen: the index is taken out of the schema and put back.
func acceptTwice(t *testing.T, path string) {
	const index = `name = 'sqlite_autoindex_requests_1'`
	execRaw(t, path, `CREATE TABLE kept AS SELECT * FROM sqlite_schema WHERE `+index+` OR name = 'requests'`, `PRAGMA writable_schema = ON`,
		`UPDATE sqlite_schema SET sql = replace(sql, 'UNIQUE (request_id, conversation_id, user_id),', '') WHERE name = 'requests'`,
		`DELETE FROM sqlite_schema WHERE `+index)
	execRaw(t, path, `INSERT INTO requests (request_id, conversation_id, user_id, kind, seq, fingerprint, state, model, params, system_prompt, price_input,
		price_cached, price_output, accepted_tx, created_at, updated_at) SELECT request_id, conversation_id, user_id, kind, 90, fingerprint, 'pending', model, params,
		system_prompt, 0, 0, 0, 1, 1, 1 FROM requests WHERE id = 1`, `PRAGMA writable_schema = ON`,
		`INSERT INTO sqlite_schema SELECT * FROM kept WHERE `+index,
		`UPDATE sqlite_schema SET sql = (SELECT sql FROM kept WHERE name = 'requests') WHERE name = 'requests'`)
	execRaw(t, path, `DROP TABLE kept`)
}

// flipAByte damages the root page of the table of snapshots, as a disk does.
func flipAByte(t *testing.T, path string) {
	var page int64
	if err := raw(t, path, "").QueryRowContext(context.Background(), `SELECT rootpage FROM sqlite_schema WHERE name = 'messages'`).Scan(&page); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt([]byte{0xff, 0xff}, (page-1)*4096+3); err != nil { // the number of its cells
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

// verifyFinds opens a file as `semel verify` does.
func verifyFinds(t *testing.T, path, id string) {
	t.Helper()
	d, err := db.Open(db.Options{Path: path, ReadOnly: true, Readers: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	}()
	checks, err := d.Verify(context.Background())
	if err != nil || len(checks) != len(db.Invariants) {
		t.Fatalf("%d of %d checks ran: %v", len(checks), len(db.Invariants), err)
	}
	if !slices.ContainsFunc(checks, func(c db.Check) bool { return c.ID == id && c.Count > 0 && len(c.Samples) > 0 }) {
		t.Errorf("%s finds nothing", id)
	}
}

func TestVerifyNamesWhatItFound(t *testing.T) {
	path := copyHealthy(t)
	breakFile(t, path, []string{`UPDATE ledger SET micros = micros + 1 WHERE kind = 'charge' AND request_id = ` + aCommitted})
	verifyFinds(t, path, "I24")
}
