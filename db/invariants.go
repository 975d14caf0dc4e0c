package db

import (
	"bytes"
	"context"
	"crypto/sha256"
	"database/sql/driver"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"modernc.org/sqlite"

	"semel/chat"
)

// An Invariant is a statement that always holds, as a query that must find
// nothing. Each has its own deliberate damage in a test.
type Invariant struct {
	ID   string
	Name string
	SQL  string
}

// A Check is the result of one invariant: it holds when Count is 0.
type Check struct {
	Invariant
	Count   int64    // rows found
	Samples []string // the first few, as they came
	Took    time.Duration
}

// Verify runs every invariant in one read transaction, so the answer is about
// one moment, beside live traffic too. An error means that it could not run,
// which says nothing about the file.
func (d *DB) Verify(ctx context.Context) (checks []Check, err error) {
	err = d.read(ctx, func(c *conn) error {
		if err := c.touchSearch(); err != nil {
			return err
		}
		for _, inv := range Invariants {
			k, err := c.check(ctx, inv)
			if err != nil {
				return err
			}
			checks = append(checks, k)
		}
		return nil
	})
	return checks, err
}

// Check runs one invariant, in a read transaction of its own. It ends when ctx does.
func (d *DB) Check(ctx context.Context, inv Invariant) (k Check, err error) {
	err = d.read(ctx, func(c *conn) error {
		if err := c.touchSearch(); err != nil {
			return err
		}
		k, err = c.check(ctx, inv)
		return err
	})
	return k, err
}

// touchSearch is for the check of a full-text index, which goes by what this connection
// remembers of it, however old; opening it for a look brings that up to date.
func (c *conn) touchSearch() error {
	if _, err := c.queryRow(sqlTouchSearch, nil, new(int)); err != nil && !isDamaged(err) {
		return err
	}
	return nil
}

func (c *conn) check(ctx context.Context, inv Invariant) (Check, error) {
	k := Check{Invariant: inv}
	if err := ctx.Err(); err != nil {
		return k, err
	}
	started := time.Now()
	err := c.queryUntil(ctx, inv.SQL, nil, func(r row) error {
		if k.Count++; len(k.Samples) < 5 {
			k.Samples = append(k.Samples, strings.TrimSuffix(fmt.Sprintln(r.values), "\n"))
		}
		return ctx.Err()
	})
	switch {
	case ctx.Err() != nil:
		return k, ctx.Err()
	case isDamaged(err): // that is an answer too
		k.Count++
		k.Samples = append(k.Samples, err.Error())
	case err != nil:
		return k, fmt.Errorf("%s %s: %w", inv.ID, inv.Name, err)
	}
	k.Took = time.Since(started)
	return k, nil
}

const sqlTouchSearch = `SELECT 1 FROM search LIMIT 1`

var registerOnce sync.Once

// registerFunctions gives every connection opened later the digests that
// invariants recompute. Open calls it first.
func registerFunctions() {
	registerOnce.Do(func() {
		// Of any number of blobs. The driver would cut a text at its first NUL.
		sqlite.MustRegisterDeterministicScalarFunction("digest", -1, func(_ *sqlite.FunctionContext, args []driver.Value) (driver.Value, error) {
			parts := make([][]byte, len(args))
			for i, a := range args {
				parts[i], _ = a.([]byte)
			}
			sum := sha256.Sum256(bytes.Join(parts, []byte{0}))
			return sum[:], nil
		})
		// Of a text as a blob: what the fingerprint of its request has of it.
		sqlite.MustRegisterDeterministicScalarFunction("question_digest", 1, func(_ *sqlite.FunctionContext, args []driver.Value) (driver.Value, error) {
			content, _ := args[0].([]byte)
			return []byte(chat.Fields{Content: string(content)}.Fingerprint().Field("content")), nil
		})
		sqlite.MustRegisterDeterministicScalarFunction("attachment_id", 3, func(_ *sqlite.FunctionContext, args []driver.Value) (driver.Value, error) {
			user, _ := args[0].(int64)
			name, _ := args[1].(string)
			sha, _ := args[2].([]byte)
			return chat.AttachmentID(user, name, hex.EncodeToString(sha)), nil
		})
		// Of SHA-256s in hexadecimal with spaces between them: what a fingerprint has of
		// these attachments.
		sqlite.MustRegisterDeterministicScalarFunction("attachments_digest", 1, func(_ *sqlite.FunctionContext, args []driver.Value) (driver.Value, error) {
			hashes, _ := args[0].(string)
			return []byte(chat.Fields{Attachments: strings.Fields(hashes)}.Fingerprint().Field("attachments")), nil
		})
		sqlite.MustRegisterDeterministicScalarFunction("tombstone_digest", 3, func(_ *sqlite.FunctionContext, args []driver.Value) (driver.Value, error) {
			user, _ := args[0].(int64)
			session, _ := args[1].(string)
			request, _ := args[2].(string)
			return tombstone(chat.Key{UserID: user, SessionID: session, RequestID: request}), nil
		})
	})
}

// CountsInvariant is the id of the one that says whether the running counts are right.
const CountsInvariant = "I84"

// Invariants are all that verify checks at this stage. The ids are those of the
// worked list of invariants; S are SQLite's own checks.
var Invariants = slices.Concat(requestInvariants, effectInvariants)

var requestInvariants = []Invariant{
	{"S1", "the file's structure is sound", `SELECT * FROM pragma_quick_check WHERE quick_check <> 'ok'`},
	{"S2", "every reference points at a row", `SELECT "table", rowid, parent FROM pragma_foreign_key_check`},

	{"I01", "one request a key (asked without the index)",
		`SELECT user_id, conversation_id, request_id, count(*) FROM requests NOT INDEXED GROUP BY 1, 2, 3 HAVING count(*) > 1`},
	{"I02", "every request id is in canonical form",
		`SELECT id, request_id FROM requests WHERE length(request_id) NOT BETWEEN 8 AND 64 OR request_id GLOB '*[^0-9A-Za-z._:-]*'
		 OR (length(request_id) = 26 AND upper(request_id) NOT GLOB '*[^0-9A-HJKMNP-TV-Z]*' AND (request_id <> upper(request_id) OR request_id > '8'))
		 OR (request_id GLOB '????????-????-????-????-????????????' AND lower(request_id) NOT GLOB '*[^0-9a-f-]*' AND request_id <> lower(request_id))`},
	{"I03", "a request is in a conversation of its own user",
		`SELECT r.id FROM requests r LEFT JOIN conversations c ON c.id = r.conversation_id WHERE c.user_id IS NOT r.user_id`},
	{"I04", "every transition is an allowed edge",
		`SELECT request_id, n FROM transitions WHERE from_state || '>' || to_state NOT IN ('new>pending', 'pending>generating', 'pending>failed',
		 'generating>pending', 'generating>failed', 'generating>acknowledged', 'acknowledged>committed', 'failed>pending')`},
	{"I05", "the transitions of a request are one unbroken path from new",
		`SELECT request_id, n FROM (SELECT request_id, n, from_state,
		 coalesce(lag(to_state) OVER w, 'new') AS want, row_number() OVER w AS k
		 FROM transitions WINDOW w AS (PARTITION BY request_id ORDER BY n)) WHERE from_state <> want OR n <> k`},
	{"I06", "the state of a request is the end of its path",
		`SELECT r.id FROM requests r LEFT JOIN transitions t ON t.request_id = r.id AND t.n = r.steps
		 WHERE t.to_state IS NOT r.state OR r.steps <> (SELECT count(*) FROM transitions x WHERE x.request_id = r.id)`},
	{"I07", "nothing follows committed, and only a restart by a client follows failed",
		`SELECT t.request_id, t.n FROM transitions t JOIN transitions p ON p.request_id = t.request_id AND p.n = t.n - 1
		 WHERE p.to_state = 'committed' OR (p.to_state = 'failed' AND (t.to_state <> 'pending' OR t.reason NOT IN ('explicit', 'restarted') OR t.actor NOT LIKE 'user:%'))`},
	{"I08", "only a claim raises the attempt, by one",
		`SELECT request_id, n FROM (SELECT request_id, n, to_state, attempt, coalesce(lag(attempt) OVER (PARTITION BY request_id ORDER BY n), 0) AS before FROM transitions)
		 WHERE attempt <> before + (to_state = 'generating')`},
	{"I09", "the attempt of a request is the highest of its path",
		`SELECT r.id FROM requests r WHERE r.attempt IS NOT (SELECT max(attempt) FROM transitions t WHERE t.request_id = r.id)`},
	{"I10", "a lease is held exactly while generating",
		`SELECT id FROM requests WHERE (state = 'generating') <> (owner IS NOT NULL) OR (owner IS NULL) <> (lease_until IS NULL)`},
	{"I11", "attempts are numbered 1 to the request's attempt",
		`SELECT r.id FROM requests r LEFT JOIN attempts a ON a.request_id = r.id GROUP BY r.id
		 HAVING count(a.n) <> r.attempt OR (count(a.n) > 0 AND (min(a.n) <> 1 OR max(a.n) <> count(a.n)))`},
	{"I12", "an attempt is open exactly while its request is generating it",
		`SELECT a.request_id, a.n FROM attempts a LEFT JOIN requests r ON r.id = a.request_id
		 WHERE (a.outcome IS NULL) <> (r.state IS 'generating' AND r.attempt = a.n)`},
	{"I13", "every attempt was claimed, in the transaction that opened it, for the reason the request waited",
		`SELECT a.request_id, a.n FROM attempts a WHERE NOT EXISTS (SELECT 1 FROM transitions t JOIN transitions p ON p.request_id = t.request_id AND p.n = t.n - 1
		 WHERE t.request_id = a.request_id AND t.to_state = 'generating' AND t.attempt = a.n AND t.tx = a.tx AND p.reason = a.reason)`},
	{"I15", "a snapshot comes from a closed attempt that answered, of the same request",
		`SELECT s.request_id FROM snapshots s LEFT JOIN attempts a ON a.request_id = s.request_id AND a.n = s.attempt
		 WHERE a.outcome IS NULL OR a.outcome NOT IN ('ok', 'stopped') OR (a.outcome = 'stopped') <> (s.finish = 'stopped') OR a.tx >= s.tx`},
	{"I16", "a snapshot still has its digest",
		`SELECT request_id FROM snapshots WHERE sha256 <> digest(CAST(content AS BLOB), CAST(reasoning AS BLOB), CAST(tool_calls AS BLOB))`},
	{"I17", "a request has a snapshot exactly when its answer is final",
		`SELECT r.id FROM requests r LEFT JOIN snapshots s ON s.request_id = r.id
		 WHERE (r.state IN ('acknowledged', 'committed')) <> (s.request_id IS NOT NULL)`},
	{"I18", "the snapshot was written under the attempt that acknowledged it",
		`SELECT s.request_id FROM snapshots s JOIN requests r ON r.id = s.request_id LEFT JOIN transitions t ON t.request_id = s.request_id AND t.to_state = 'acknowledged'
		 WHERE t.attempt IS NOT s.attempt OR t.tx IS NOT s.tx OR r.attempt <> s.attempt`},
	{"I19", "one question a request that writes one, with its acceptance",
		`SELECT r.id FROM requests r LEFT JOIN messages m ON m.conversation_id = r.conversation_id AND m.seq = r.seq AND m.role = 'user'
		 WHERE (r.kind IN ('message', 'edit')) <> (m.seq IS NOT NULL) OR (m.seq IS NOT NULL AND (m.request_id <> r.id OR m.tx <> r.accepted_tx))`},
	{"I20", "one answer in the history exactly when it is final",
		`SELECT r.id FROM requests r LEFT JOIN messages m ON m.conversation_id = r.conversation_id AND m.role = 'assistant'
		 AND m.seq = r.seq + (r.kind IN ('message', 'edit'))
		 WHERE (r.state IN ('acknowledged', 'committed')) <> (m.seq IS NOT NULL) OR (m.seq IS NOT NULL AND m.request_id <> r.id)`},
	{"I22", "every message belongs to a request of its conversation, at the number reserved for it",
		`SELECT m.conversation_id, m.seq FROM messages m LEFT JOIN requests r ON r.id = m.request_id
		 WHERE r.conversation_id IS NOT m.conversation_id OR m.seq <> r.seq + (m.role = 'assistant' AND r.kind IN ('message', 'edit'))`},
	{"I23", "one charge exactly when the answer is final",
		`SELECT r.id FROM requests r LEFT JOIN ledger l ON l.request_id = r.id AND l.kind = 'charge' GROUP BY r.id
		 HAVING count(l.id) <> (r.state IN ('acknowledged', 'committed'))`},
	{"I24", "a charge is for its snapshot's tokens, its user, at the frozen price, rounded up once",
		`SELECT l.id FROM ledger l JOIN requests r ON r.id = l.request_id JOIN snapshots s ON s.request_id = r.id WHERE l.kind = 'charge' AND
		 (l.user_id <> r.user_id OR l.attempt <> s.attempt OR l.input_tokens <> s.input_tokens OR l.cached_tokens <> s.cached_tokens OR l.output_tokens <> s.output_tokens
		 OR l.micros <> ((s.input_tokens - s.cached_tokens) * r.price_input + s.cached_tokens * r.price_cached + s.output_tokens * r.price_output + 999999) / 1000000)`},
	{"I25", "waste is of a closed attempt of its user that was not used",
		`SELECT l.id FROM ledger l JOIN requests r ON r.id = l.request_id LEFT JOIN attempts a ON a.request_id = l.request_id AND a.n = l.attempt
		 WHERE l.kind = 'waste' AND (a.outcome IS NULL OR a.outcome IN ('ok', 'none') OR l.user_id <> r.user_id)`},
	{"I27", "one dedupe mark exactly when the answer is final, with the key and fingerprint of its request",
		`SELECT r.id FROM requests r LEFT JOIN processed p ON p.request_id = r.request_id AND p.conversation_id = r.conversation_id AND p.user_id = r.user_id
		 WHERE (r.state IN ('acknowledged', 'committed')) <> (p.request IS NOT NULL) OR (p.request IS NOT NULL AND (p.request <> r.id OR p.fingerprint <> r.fingerprint))
		 UNION ALL SELECT request FROM processed p WHERE NOT EXISTS (SELECT 1 FROM requests r WHERE r.id = p.request)`},
	{"I28", "snapshot, answer, charge and dedupe mark were written in the transaction that acknowledged",
		`SELECT t.request_id FROM transitions t JOIN requests r ON r.id = t.request_id WHERE t.to_state = 'acknowledged' AND (
		 t.tx IS NOT (SELECT s.tx FROM snapshots s WHERE s.request_id = r.id)
		 OR t.tx IS NOT (SELECT m.tx FROM messages m WHERE m.conversation_id = r.conversation_id AND m.seq = r.seq + (r.kind IN ('message', 'edit')))
		 OR t.tx IS NOT (SELECT l.tx FROM ledger l WHERE l.request_id = r.id AND l.kind = 'charge')
		 OR t.tx IS NOT (SELECT p.tx FROM processed p WHERE p.request_id = r.request_id AND p.conversation_id = r.conversation_id AND p.user_id = r.user_id))`},
	{"I34", "with nothing to settle, committed comes in the transaction that acknowledged",
		`SELECT a.request_id FROM transitions a LEFT JOIN transitions c ON c.request_id = a.request_id AND c.to_state = 'committed'
		 WHERE a.to_state = 'acknowledged' AND c.tx IS NOT a.tx AND NOT EXISTS (SELECT 1 FROM outbox o WHERE o.request_id = a.request_id)
		 AND NOT EXISTS (SELECT 1 FROM decisions d WHERE d.request_id = a.request_id AND d.verdict = 'ask')`},
	{"I44", "acceptance wrote request, first transition and first arrival together",
		`SELECT r.id FROM requests r LEFT JOIN transitions t ON t.request_id = r.id AND t.n = 1 LEFT JOIN arrivals a ON a.request_id = r.id AND a.n = 1
		 WHERE t.tx IS NOT r.accepted_tx OR a.decision IS NOT 'first'`},
	{"I48", "a failed request has a reason and the others have none",
		`SELECT id FROM requests WHERE (state = 'failed') <> (failure_code IS NOT NULL) OR (state IN ('committed', 'failed')) <> (completed_at IS NOT NULL)`},
	{"I49", "no row is ahead of the transaction counter",
		`SELECT 'requests', id FROM requests WHERE accepted_tx > (SELECT tx FROM instance)
		 UNION ALL SELECT 'transitions', request_id FROM transitions WHERE tx > (SELECT tx FROM instance)
		 UNION ALL SELECT 'ledger', id FROM ledger WHERE tx > (SELECT tx FROM instance)
		 UNION ALL SELECT 'decisions', request_id FROM decisions WHERE tx > (SELECT tx FROM instance)
		 UNION ALL SELECT 'outbox', id FROM outbox WHERE tx > (SELECT tx FROM instance)
		 UNION ALL SELECT 'deliveries', outbox_id FROM deliveries WHERE tx > (SELECT tx FROM instance)
		 UNION ALL SELECT 'conversations', id FROM conversations WHERE max(named_tx, ended_tx) > (SELECT tx FROM instance)
		 UNION ALL SELECT 'instance', one FROM instance WHERE indexed_tx > tx`},
	{"I50", "the guards are in the schema, and refuse",
		`SELECT x.name FROM (SELECT 'requests_edges' AS name UNION ALL SELECT 'requests_identity' UNION ALL SELECT 'requests_attempt' UNION ALL SELECT 'requests_context'
		 UNION ALL SELECT 'requests_price' UNION ALL SELECT 'requests_no_delete' UNION ALL SELECT 'transitions_no_update' UNION ALL SELECT 'transitions_no_delete'
		 UNION ALL SELECT 'attempts_closed' UNION ALL SELECT 'attempts_no_delete' UNION ALL SELECT 'snapshots_no_update' UNION ALL SELECT 'snapshots_no_delete'
		 UNION ALL SELECT 'messages_no_update' UNION ALL SELECT 'messages_no_delete' UNION ALL SELECT 'ledger_no_update' UNION ALL SELECT 'ledger_no_delete'
		 UNION ALL SELECT 'requests_generating' UNION ALL SELECT 'ledger_charge' UNION ALL SELECT 'ledger_waste'
		 UNION ALL SELECT 'declarations_no_update' UNION ALL SELECT 'declarations_no_delete' UNION ALL SELECT 'decisions_no_update' UNION ALL SELECT 'decisions_no_delete'
		 UNION ALL SELECT 'verdicts_no_update' UNION ALL SELECT 'verdicts_no_delete' UNION ALL SELECT 'outbox_edges' UNION ALL SELECT 'outbox_identity'
		 UNION ALL SELECT 'outbox_attempt' UNION ALL SELECT 'outbox_no_delete' UNION ALL SELECT 'deliveries_closed' UNION ALL SELECT 'deliveries_no_delete'
		 UNION ALL SELECT 'callbacks_no_update' UNION ALL SELECT 'callbacks_no_delete' UNION ALL SELECT 'callbacks_first' UNION ALL SELECT 'audit_no_update' UNION ALL SELECT 'audit_no_delete'
		 UNION ALL SELECT 'contents_no_update' UNION ALL SELECT 'attachments_identity' UNION ALL SELECT 'carried_no_update' UNION ALL SELECT 'carried_no_delete' UNION ALL SELECT 'audit_key'
		 UNION ALL SELECT 'restores_no_update' UNION ALL SELECT 'restores_no_delete'
		 UNION ALL SELECT 'api_keys_identity' UNION ALL SELECT 'api_keys_revoked') x
		 LEFT JOIN sqlite_schema s ON s.name = x.name AND (s.type = 'trigger' AND s.sql LIKE '%RAISE(ABORT%' OR s.type = 'index' AND s.sql LIKE '%UNIQUE%') WHERE s.name IS NULL`},
	{"I52", "who is signed in has a password, is not disabled, and will be signed out",
		`SELECT l.id FROM logins l LEFT JOIN users u ON u.id = l.user_id WHERE u.password IS NULL OR u.disabled_at IS NOT NULL OR l.expires_at <= l.created_at OR length(l.digest) <> 32`},
	{"I57", "after an unknown outcome the model was called again only because a person or the policy said so",
		`SELECT a.request_id, a.n FROM attempts a JOIN attempts p ON p.request_id = a.request_id AND p.n = a.n - 1
		 WHERE p.outcome IN ('unknown', 'fenced') AND a.reason NOT IN ('explicit', 'rerun')`},
	{"I58", "one request of a conversation generates at a time, and no earlier one waits",
		`SELECT g.id FROM requests g JOIN requests e ON e.conversation_id = g.conversation_id AND e.id <> g.id
		 WHERE g.state = 'generating' AND (e.state = 'generating' OR (e.state = 'pending' AND e.seq < g.seq AND e.steps = 1))`},
	{"I59", "the head is a message of the conversation that has its place",
		`SELECT c.id FROM conversations c WHERE c.head_seq <> 0 AND c.purging = 0 AND NOT EXISTS (SELECT 1 FROM messages m JOIN requests r ON r.id = m.request_id
		 WHERE m.conversation_id = c.id AND m.seq = c.head_seq AND r.placed = 1)`},
	{"I60", "a request hangs under an earlier message that has its place, or under none; a continuation under an answer",
		`SELECT r.id FROM requests r JOIN conversations c ON c.id = r.conversation_id WHERE c.purging = 0 AND (r.parent_seq <> 0 OR r.kind IN ('regenerate', 'continue')) AND NOT EXISTS (
		 SELECT 1 FROM messages m JOIN requests p ON p.id = m.request_id WHERE m.conversation_id = r.conversation_id AND m.seq = r.parent_seq AND m.seq < r.seq
		 AND p.placed = 1 AND (r.kind <> 'continue' OR m.role = 'assistant'))`},
	{"I61", "no number of a message is above what the conversation gave out",
		`SELECT r.id FROM requests r JOIN conversations c ON c.id = r.conversation_id WHERE r.seq + (r.kind IN ('message', 'edit')) >= c.next_seq`},
	{"I62", "no purged id lives",
		`SELECT r.id FROM requests r JOIN conversations c ON c.id = r.conversation_id JOIN tombstones t
		 ON t.digest = tombstone_digest(r.user_id, c.session_id, r.request_id)`},
	{"I63", "a frozen context names messages of the conversation, oldest first, and ends with what is answered",
		`SELECT r.id FROM requests r JOIN conversations c ON c.id = r.conversation_id WHERE r.context <> '' AND c.purging = 0 AND (
		 EXISTS (SELECT 1 FROM (SELECT value, lag(value, 1, 0) OVER (ORDER BY key) AS before FROM json_each('[' || replace(r.context, ' ', ',') || ']')) j
			LEFT JOIN messages m ON m.conversation_id = r.conversation_id AND m.seq = j.value WHERE m.seq IS NULL OR j.value <= j.before)
		 OR ' ' || r.context NOT LIKE '% ' || CASE WHEN r.kind IN ('message', 'edit') THEN r.seq ELSE r.parent_seq END)`},
	{"I64", "stored partial text is of an attempt that was made, and that gave no answer",
		`SELECT p.request_id, p.attempt FROM partials p LEFT JOIN requests r ON r.id = p.request_id
		 WHERE p.attempt NOT BETWEEN 1 AND coalesce(r.attempt, 0) OR (p.attempt = r.attempt AND r.state IN ('acknowledged', 'committed'))`},
	{"I65", "each caller's transaction has its own number: none accepted two intents or gave two answers",
		`SELECT 'accepted', accepted_tx FROM requests GROUP BY 2 HAVING count(*) > 1 UNION ALL SELECT 'answered', tx FROM snapshots GROUP BY 2 HAVING count(*) > 1`},
	{"I66", "a stop means an attempt that was made, or the wait for the first",
		`SELECT id FROM requests WHERE stop_attempt > attempt OR (stop_attempt IS NULL) <> (stop_requested_at IS NULL)`},
	{"I67", "a conversation knows which of its requests ended last, unless a person stopped it, and nobody has seen more",
		`SELECT c.id FROM conversations c LEFT JOIN (SELECT r.conversation_id AS id, max(t.tx) AS tx FROM requests r JOIN transitions t ON t.request_id = r.id
		 WHERE t.to_state = 'acknowledged' OR (t.to_state = 'failed' AND t.reason <> 'stopped') GROUP BY 1) e ON e.id = c.id
		 WHERE c.purging = 0 AND (c.ended_tx <> coalesce(e.tx, 0) OR c.seen_tx > c.ended_tx)`},
	{"I68", "the search index has every message and given title that it says it has, and nothing else",
		`SELECT 'missing', tx FROM (SELECT tx FROM messages UNION ALL SELECT named_tx FROM conversations WHERE named_tx > 0)
		 WHERE tx <= (SELECT indexed_tx FROM instance) AND tx NOT IN (SELECT rowid FROM search)
		 UNION ALL SELECT 'left over', rowid FROM search WHERE rowid > (SELECT indexed_tx FROM instance)
		 OR rowid NOT IN (SELECT tx FROM messages UNION ALL SELECT named_tx FROM conversations WHERE named_tx > 0)`},
	{"I70", "the epoch is that of the last restore, and each raised it",
		`SELECT 'instance', epoch FROM instance WHERE epoch <> coalesce((SELECT max(epoch) FROM restores), 1)
		 UNION ALL SELECT 'restore', r.epoch FROM restores r WHERE r.tx > (SELECT tx FROM instance) OR EXISTS (SELECT 1 FROM restores p WHERE p.epoch < r.epoch AND p.tx >= r.tx)`},
	{"I71", "what a restore may have lost the end of, only a person begins again",
		`SELECT 'failed', r.id FROM requests r JOIN transitions t ON t.request_id = r.id AND t.n = r.steps
		 WHERE r.state = 'failed' AND r.failure_retry = 'auto' AND t.tx < (SELECT max(tx) FROM restores)
		 UNION ALL SELECT 'unfinished', r.id FROM requests r JOIN transitions t ON t.request_id = r.id AND t.n = r.steps
		 WHERE r.state IN ('pending', 'generating') AND t.tx < (SELECT max(tx) FROM restores WHERE settled_at IS NOT NULL)
		 UNION ALL SELECT 'outbox', o.id FROM outbox o WHERE o.state IN ('pending', 'delivering') AND o.doubted_at IS NULL AND o.tx < (SELECT max(tx) FROM restores)
		 AND NOT EXISTS (SELECT 1 FROM audit a WHERE a.action = 'redrive' AND a.object = o.webhook_id AND a.tx > (SELECT max(tx) FROM restores))`},
	{"I69", "what was imported called no model here and cost nothing, and only a person starts it again",
		`SELECT 'mark', r.id FROM requests r JOIN arrivals f ON f.request_id = r.id AND f.n = 1 JOIN transitions t ON t.request_id = r.id AND t.n = 1
		 WHERE (f.source = 'import') <> (t.reason = 'imported')
		 UNION ALL SELECT 'call', a.request_id FROM attempts a LEFT JOIN arrivals f ON f.request_id = a.request_id AND f.n = 1
		 WHERE a.reason = 'imported' AND (a.n <> 1 OR f.source IS NOT 'import')
		 UNION ALL SELECT 'money', l.id FROM attempts a JOIN ledger l ON l.request_id = a.request_id AND l.attempt = a.n
		 WHERE a.reason = 'imported' AND (l.kind <> 'charge' OR l.micros <> 0)
		 UNION ALL SELECT 'context', r.id FROM requests r WHERE r.context = '' AND NOT EXISTS (
		 SELECT 1 FROM attempts a WHERE a.request_id = r.id AND a.n = 1 AND a.reason = 'imported')
		 UNION ALL SELECT 'retry', r.id FROM requests r JOIN arrivals f ON f.request_id = r.id AND f.n = 1
		 WHERE f.source = 'import' AND r.failure_retry <> 'explicit' AND NOT EXISTS (
		 SELECT 1 FROM transitions t WHERE t.request_id = r.id AND t.from_state = 'failed')`},
	{"I80", "a file still has its digest",
		`SELECT hex(sha256) FROM contents WHERE sha256 <> digest(content)`},
	{"I81", "an upload has the id that its user, its bytes and its name make, and no file is left that nobody has uploaded",
		`SELECT id FROM attachments WHERE id <> attachment_id(user_id, name, sha256)
		 UNION ALL SELECT hex(sha256) FROM contents k WHERE NOT EXISTS (SELECT 1 FROM attachments a WHERE a.sha256 = k.sha256)`},
	{"I82", "a question carries what its own user has uploaded, numbered from 1, since its acceptance",
		`SELECT k.conversation_id, k.seq FROM carried k LEFT JOIN messages m ON m.conversation_id = k.conversation_id AND m.seq = k.seq
		 LEFT JOIN attachments a ON a.id = k.attachment_id LEFT JOIN conversations c ON c.id = k.conversation_id
		 WHERE m.role IS NOT 'user' OR m.tx IS NOT k.tx OR a.user_id IS NULL OR a.user_id IS NOT c.user_id
		 UNION ALL SELECT conversation_id, seq FROM carried GROUP BY 1, 2 HAVING min(n) <> 1 OR max(n) <> count(*)`},
	{"I86", "where there are accounts, an admin can sign in, and the first has what was the local user's",
		`SELECT 'nobody' WHERE EXISTS (SELECT 1 FROM users WHERE password IS NOT NULL)
		 AND NOT EXISTS (SELECT 1 FROM users WHERE password IS NOT NULL AND role = 'admin' AND disabled_at IS NULL)
		 UNION ALL SELECT name FROM users WHERE id = 1 AND password IS NULL AND EXISTS (SELECT 1 FROM users WHERE password IS NOT NULL)`},
	{"I87", "a key is of an account, and what is stored of it opens nothing",
		`SELECT k.id FROM api_keys k LEFT JOIN users u ON u.id = k.user_id WHERE u.password IS NULL OR length(k.digest) <> 32`},
	{"I83", "the fingerprint of a request is of the files that its question carries, in their order",
		`SELECT r.id FROM requests r WHERE substr(r.fingerprint, 73, 8) <> attachments_digest((SELECT group_concat(lower(hex(a.sha256)), ' ' ORDER BY k.n)
		 FROM carried k JOIN attachments a ON a.id = k.attachment_id WHERE k.conversation_id = r.conversation_id AND k.seq = r.seq))`},
	{"I88", "a question still has the text that its request was accepted with",
		`SELECT m.conversation_id, m.seq FROM messages m JOIN requests r ON r.id = m.request_id
		 WHERE m.role = 'user' AND substr(r.fingerprint, 41, 8) <> question_digest(CAST(m.content AS BLOB))`},
	{"I84", "the running counts are those of the rows, and of what was purged",
		`SELECT 'attempts' FROM instance WHERE attempts < (SELECT count(*) FROM attempts WHERE reason <> 'imported')
		 UNION ALL SELECT 'answers' FROM instance WHERE answers <> (SELECT count(*) FROM transitions WHERE to_state = 'acknowledged')
		 + (SELECT count(*) FROM ledger l WHERE l.kind = 'charge' AND NOT EXISTS (SELECT 1 FROM requests r WHERE r.id = l.request_id))
		 UNION ALL SELECT 'charges' FROM instance, (SELECT count(*) AS n, coalesce(sum(micros), 0) AS micros FROM ledger WHERE kind = 'charge') c
		 WHERE charges <> c.n OR charged_micros <> c.micros
		 UNION ALL SELECT a.decision FROM instance, (SELECT decision, count(*) AS n FROM arrivals WHERE n > 1 GROUP BY 1) a WHERE a.n >
		 CASE a.decision WHEN 'joined' THEN joined WHEN 'replayed' THEN replayed WHEN 'conflict' THEN conflicts WHEN 'restarted' THEN restarts ELSE expired END
		 UNION ALL SELECT 'saved' FROM instance WHERE saved_micros < (SELECT coalesce(sum(l.micros), 0) FROM arrivals a
		 JOIN ledger l ON l.request_id = a.request_id AND l.kind = 'charge' WHERE a.decision IN ('joined', 'replayed'))`},
}
