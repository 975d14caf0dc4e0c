package db

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"time"

	"semel/chat"
)

// Record returns the request with this key as the API shows it. Errors as Find.
func (d *DB) Record(ctx context.Context, k chat.Key) (rec chat.Record, err error) {
	err = d.read(ctx, func(c *conn) error {
		r, err := c.find(k)
		if err != nil {
			return err
		}
		rec, err = c.record(r)
		return err
	})
	return rec, err
}

// RecordOf returns the request with this internal id as the API shows it.
func (d *DB) RecordOf(ctx context.Context, id int64) (rec chat.Record, err error) {
	err = d.read(ctx, func(c *conn) error {
		var r chat.Request
		found, err := c.queryRow(sqlLoadRequest, []any{id}, append(requestDest(&r), new(bool))...)
		if err != nil || !found {
			return orNotFound(err)
		}
		rec, err = c.record(r)
		return err
	})
	return rec, err
}

func orNotFound(err error) error {
	if err != nil {
		return err
	}
	return ErrNotFound
}

func (c *conn) record(r chat.Request) (chat.Record, error) {
	q := "?sessionId=" + url.QueryEscape(r.Key.SessionID)
	rec := chat.Record{
		RequestID: r.Key.RequestID, SessionID: r.Key.SessionID, Kind: r.Kind,
		Status: r.State.Status(), State: r.State, Attempt: r.Attempt, Model: r.Model,
		Seq: r.Seq, ParentSeq: r.ParentSeq,
		ContextDropped: r.ContextDropped, Effects: []chat.Effect{},
		CreatedAt: chat.Stamp{Time: r.CreatedAt}, CompletedAt: chat.Stamp{Time: r.CompletedAt},
		StatusURL: "/api/chat/status/" + r.Key.RequestID + q,
		StreamURL: "/api/chat/stream/" + r.Key.RequestID + q,
	}
	if r.State.Answered() {
		return rec, c.addAnswer(r, &rec)
	}
	p, err := c.partial(r.ID, r.Attempt)
	if err != nil {
		return rec, err
	}
	rec.Content, rec.Reasoning = p.Text, p.Reasoning
	if r.State == chat.StateFailed {
		problem := r.Failure.Problem(r.Key.RequestID)
		problem.Partial = len(p.Text)
		rec.Error = &problem
	}
	return rec, nil
}

func (c *conn) addAnswer(r chat.Request, rec *chat.Record) error {
	m := chat.RecordMessage{Role: "assistant", Seq: AnswerSeq(r)}
	var u chat.Usage
	var micros int64
	var asked, sound bool
	found, err := c.queryRow(sqlSelectAnswer, []any{r.ID}, &sound, &m.Content, &m.Reasoning, &m.Finish, &m.CreatedAt.Time,
		&u.InputTokens, &u.CachedTokens, &u.OutputTokens, &u.Estimated, &micros, &asked)
	if err != nil {
		return err
	}
	if !found {
		return fmt.Errorf("request %d is %s without a snapshot: run semel verify", r.ID, r.State)
	}
	if !sound {
		return unsound("answer of request", r.Key.RequestID)
	}
	m.ID = chat.MessageID(r.Key.SessionID, m.Seq)
	m.ParentID = chat.MessageID(r.Key.SessionID, r.ParentSeq)
	if r.Kind.WritesQuestion() {
		m.ParentID = chat.MessageID(r.Key.SessionID, r.Seq)
	}
	rec.Content, rec.Message, rec.Usage = m.Content, &m, &u
	rec.Cost = &chat.Money{Micros: micros}
	if asked {
		rec.Effects, err = c.effects(r.ID)
	}
	return err
}

// unsound is the error of whoever reads what is not what was stored: a bit has flipped,
// or somebody wrote into the file. It is shown and sent to nobody.
func unsound(what string, id any) error {
	return fmt.Errorf("%w: the %s %v is not what was stored: run semel verify", ErrDamaged, what, id)
}

// AttemptReason returns why attempt n of a request was allowed, "" when there is
// no such attempt.
func (d *DB) AttemptReason(ctx context.Context, id, n int64) (reason string, err error) {
	err = d.readOne(ctx, func(c *conn) error {
		_, err := c.queryRow(sqlSelectAttemptReason, []any{id, n}, &reason)
		return err
	})
	return reason, err
}

// CutShort reports whether a request that is over was ended by somebody else than
// its worker: what is kept of its text then may be less than what was streamed.
func (d *DB) CutShort(ctx context.Context, id int64) (cut bool, err error) {
	err = d.readOne(ctx, func(c *conn) error {
		_, err := c.queryRow(sqlSelectCutShort, []any{id}, &cut)
		return err
	})
	return cut, err
}

// A Receipt is everything that happened to one intent.
type Receipt struct {
	Request     chat.Request
	Record      chat.Record
	Arrivals    []Arrival
	Transitions []Transition
	Attempts    []Attempt
	Snapshot    []byte // its SHA-256; nil when there is none
	Ledger      []LedgerRow
	Decisions   []Decided
	Sent        []Sent     // in order of their writing
	Deeds       []AuditRow // what was done to it by hand
	Pruned      bool       // repeats among the arrivals may be gone
}

// An Arrival is one time the id came in.
type Arrival struct {
	At       time.Time
	Source   chat.Source
	Decision chat.Decision
	Status   int // 0 while the first has not been answered
}

// A Transition is one change of state.
type Transition struct {
	N             int64
	From, To      chat.State
	Attempt       int64
	Actor, Reason string
	At            time.Time
}

// An Attempt is one call to a model.
type Attempt struct {
	N                                            int64
	Reason, Model, Code                          string
	StartedAt, DispatchedAt, FirstToken, EndedAt time.Time
	Outcome                                      chat.Outcome // "" while it runs
	Usage                                        *chat.Usage
}

// A LedgerRow is one movement of money.
type LedgerRow struct {
	Kind    string
	Attempt int64
	Micros  int64
	Usage   chat.Usage
	At      time.Time
}

// Receipt returns everything about the request with this key, of one moment.
// Errors as Find.
func (d *DB) Receipt(ctx context.Context, k chat.Key) (rc Receipt, err error) {
	err = d.read(ctx, func(c *conn) (err error) {
		if rc.Request, err = c.find(k); err != nil {
			return err
		}
		if rc.Record, err = c.record(rc.Request); err != nil {
			return err
		}
		return c.evidence(&rc)
	})
	return rc, err
}

func (c *conn) evidence(rc *Receipt) error {
	id := []any{rc.Request.ID}
	err := c.query(sqlSelectArrivals, id, func(r row) error {
		var a Arrival
		err := r.scan(&a.At, &a.Source, &a.Decision, &a.Status)
		rc.Arrivals = append(rc.Arrivals, a)
		return err
	})
	if err != nil {
		return err
	}
	err = c.query(sqlSelectTransitions, id, func(r row) error {
		var t Transition
		err := r.scan(&t.N, &t.From, &t.To, &t.Attempt, &t.Actor, &t.Reason, &t.At)
		rc.Transitions = append(rc.Transitions, t)
		return err
	})
	if err != nil {
		return err
	}
	err = c.query(sqlSelectAttempts, id, func(r row) error {
		var a Attempt
		var u chat.Usage
		err := r.scan(&a.N, &a.Reason, &a.Model, &a.Code, &a.StartedAt, &a.DispatchedAt, &a.FirstToken, &a.EndedAt,
			&a.Outcome, &u.InputTokens, &u.CachedTokens, &u.OutputTokens, &u.Estimated)
		if a.Outcome != "" {
			a.Usage = &u
		}
		rc.Attempts = append(rc.Attempts, a)
		return err
	})
	if err != nil {
		return err
	}
	err = c.query(sqlSelectLedger, id, func(r row) error {
		var l LedgerRow
		err := r.scan(&l.Kind, &l.Attempt, &l.Micros, &l.Usage.InputTokens, &l.Usage.CachedTokens, &l.Usage.OutputTokens, &l.Usage.Estimated, &l.At, new(int64))
		rc.Ledger = append(rc.Ledger, l)
		return err
	})
	if err != nil {
		return err
	}
	if err = c.followed(rc); err != nil {
		return err
	}
	if err = c.deeds(rc); err != nil {
		return err
	}
	if _, err = c.queryRow(sqlSelectPruned, id, &rc.Pruned); err != nil {
		return err
	}
	_, err = c.queryRow(sqlSelectDigest, id, &rc.Snapshot)
	return err
}

// A Repeat is an arrival of an id that was accepted before, or what the first
// one was answered.
type Repeat struct {
	RequestID int64
	At        time.Time
	Source    chat.Source
	Decision  chat.Decision // first: fill in the status of the first arrival
	Status    int           // 0: not answered yet
	Recorded  bool          // it is stored without a status: fill that in
}

// RecordArrivals stores repeats, in order, in one transaction, and counts them.
func (d *DB) RecordArrivals(ctx context.Context, repeats []Repeat) error {
	return d.write(ctx, func(tx *Tx) error {
		came := map[chat.Decision]int64{}
		absorbed := map[int64]int64{} // by request
		for _, a := range repeats {
			var err error
			var stored int64
			switch {
			case a.Decision == chat.DecisionFirst:
				_, err = tx.exec(sqlFirstArrivalStatus, a.Status, a.RequestID)
			case a.Recorded:
				_, err = tx.exec(sqlRepeatStatus, a.Status, a.RequestID, a.At, a.Source, a.Decision)
			default:
				stored, err = tx.exec(sqlInsertArrival, a.At, a.Source, a.Decision, a.Status, a.RequestID)
			}
			if err != nil {
				return err
			}
			came[a.Decision] += stored
			if a.Decision == chat.DecisionJoined || a.Decision == chat.DecisionReplayed {
				absorbed[a.RequestID] += stored
			}
		}
		return tx.countRepeats(came, absorbed)
	})
}

// countRepeats adds to the running counts what came. Of a request that has no charge
// yet, the charge itself counts what was saved when it is written.
func (tx *Tx) countRepeats(came map[chat.Decision]int64, absorbed map[int64]int64) error {
	tx.sum.joined += came[chat.DecisionJoined]
	tx.sum.replayed += came[chat.DecisionReplayed]
	tx.sum.conflicts += came[chat.DecisionConflict]
	tx.sum.restarts += came[chat.DecisionRestarted]
	tx.sum.expireds += came[chat.DecisionExpired]
	if len(absorbed) == 0 {
		return nil
	}
	list, err := json.Marshal(absorbed)
	if err != nil {
		return err
	}
	var saved int64
	if _, err := tx.queryRow(sqlSelectSaved, []any{string(list)}, &saved); err != nil {
		return fmt.Errorf("count repeats: %w", err)
	}
	tx.sum.saved += saved
	return nil
}

const (
	sqlSelectSaved = `SELECT coalesce(sum(j.value * l.micros), 0) FROM json_each(?) j
		CROSS JOIN ledger l ON l.request_id = CAST(j.key AS INTEGER) AND l.kind = 'charge'`

	// sqlSound is whether the text of snapshot s is the one that was stored. The driver
	// cuts a text at its first NUL, so it gets bytes.
	sqlSound = `(s.sha256 IS NULL OR s.sha256 = digest(CAST(s.content AS BLOB), CAST(s.reasoning AS BLOB), CAST(s.tool_calls AS BLOB)))`

	// sqlSoundQuestion is the same of the text of message m of request r, of which the
	// fingerprint has a digest.
	sqlSoundQuestion = `(m.content IS NULL OR substr(r.fingerprint, 41, 8) = question_digest(CAST(m.content AS BLOB)))`

	sqlSoundMessage = `(` + sqlSound + ` AND ` + sqlSoundQuestion + `)`

	sqlSelectAnswer = `SELECT ` + sqlSound + `, s.content, s.reasoning, s.finish, s.created_at, s.input_tokens, s.cached_tokens, s.output_tokens,
		s.estimated, l.micros, s.declarations_id IS NOT NULL FROM snapshots s JOIN ledger l ON l.request_id = s.request_id AND l.kind = 'charge'
		WHERE s.request_id = ?`

	sqlSelectAttemptReason = `SELECT reason FROM attempts WHERE request_id = ? AND n = ?`

	sqlSelectCutShort = `SELECT actor LIKE 'recovery:%' OR actor LIKE 'reaper:%' FROM transitions WHERE request_id = ? ORDER BY n DESC LIMIT 1`

	sqlSelectArrivals = `SELECT at, source, decision, status FROM arrivals WHERE request_id = ? ORDER BY n`

	sqlSelectTransitions = `SELECT n, from_state, to_state, attempt, actor, reason, at FROM transitions WHERE request_id = ? ORDER BY n`

	sqlSelectAttempts = `SELECT n, reason, model, code, started_at, dispatched_at, first_token_at, ended_at, outcome,
		input_tokens, cached_tokens, output_tokens, estimated FROM attempts WHERE request_id = ? ORDER BY n`

	// In parts, because each has its own partial index.
	sqlSelectLedger = `SELECT kind, attempt, micros, input_tokens, cached_tokens, output_tokens, estimated, at, id
		FROM ledger WHERE request_id = ?1 AND kind = 'charge'
		UNION ALL SELECT kind, attempt, micros, input_tokens, cached_tokens, output_tokens, estimated, at, id
		FROM ledger WHERE request_id = ?1 AND kind = 'waste'
		UNION ALL SELECT kind, attempt, micros, input_tokens, cached_tokens, output_tokens, estimated, at, id
		FROM ledger WHERE request_id = ?1 AND kind IN ('adjustment', 'refund') ORDER BY 9`

	sqlSelectPruned = `SELECT ? <= pruned_id FROM instance`

	sqlSelectDigest = `SELECT sha256 FROM snapshots WHERE request_id = ?`

	sqlFirstArrivalStatus = `UPDATE arrivals SET status = ? WHERE request_id = ? AND n = 1 AND status IS NULL`

	// Of repeats that look the same any one will do.
	sqlRepeatStatus = `UPDATE arrivals SET status = ?1 WHERE request_id = ?2 AND n = (SELECT min(n) FROM arrivals
		WHERE request_id = ?2 AND at = ?3 AND source = ?4 AND decision = ?5 AND status IS NULL)`

	// A repeat of a request that was purged meanwhile is dropped with it; so is one
	// of a request whose evidence is pruned, or it would stay for ever.
	sqlInsertArrival = `INSERT INTO arrivals (request_id, n, at, source, decision, status)
		SELECT id, (SELECT coalesce(max(n), 0) + 1 FROM arrivals a WHERE a.request_id = requests.id), ?, ?, ?, nullif(?, 0)
		FROM requests WHERE id = ? AND id > (SELECT pruned_id FROM instance)`
)
