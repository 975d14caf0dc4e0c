package db

import (
	"context"
	"encoding/json"
	"os"
	"time"

	"semel/chat"
)

// Examined is how many of the newest requests a look with a filter examines: the file
// may have millions.
const Examined = 10_000

// A RequestFilter chooses requests of all users.
type RequestFilter struct {
	State    chat.State    // "" is any
	Decision chat.Decision // of one of their arrivals; "" is any
	// View is one of Views, "" for none.
	View   string
	ID     string // a part of their id, or of their conversation's
	Before int64  // requests with a smaller internal id; 0 is from the newest
	Limit  int
}

// Views are filters that people ask for by name.
var Views = []string{"stuck", "repeated", "conflicts", "unknown", "waiting"}

// StuckAfter is when a request that waits for its answer is called stuck.
const StuckAfter = 10 * time.Minute

// A Summary is a request as a list of many shows it.
type Summary struct {
	Request    chat.Request
	Arrivals   map[chat.Decision]int // by decision; of old requests repeats may be pruned
	FirstToken time.Duration         // from the dispatch of the last attempt; 0: none came
	Total      time.Duration         // from the acceptance to the end of the answer, or the failure; 0 while it waits
	Usage      chat.Usage            // of the answer
	Micros     int64                 // its charge
	Waste      int64                 // micros of attempts that were not used
	Open       int                   // effects that are not settled
	Troubled   int                   // those of them that wait for a person
}

// Requests returns the newest requests that f chooses, and whether there may be older
// ones. With a filter it examines the newest Examined from f.Before on, and next is
// where the next look goes on; it is 0 where nothing is left.
func (d *DB) Requests(ctx context.Context, f RequestFilter) (list []Summary, next int64, err error) {
	if f.Before == 0 {
		f.Before = 1 << 62
	}
	examine := Examined
	if f.State == "" && f.Decision == "" && f.View == "" && f.ID == "" {
		examine = f.Limit
	}
	err = d.read(ctx, func(c *conn) error {
		var last int64
		examined := 0
		if _, err := c.queryRow(sqlSelectExamined, []any{f.Before, examine}, &last, &examined); err != nil || examined == 0 {
			return err
		}
		if examined == examine {
			next = last
		}
		stuck := time.Now().Add(-StuckAfter)
		return c.query(sqlSelectSummaries, []any{f.Before, last, f.State, f.Decision, f.View, f.ID, stuck, f.Limit}, func(r row) error {
			var s Summary
			var arrivals string
			var dispatched, first time.Time
			err := r.scan(append(requestDest(&s.Request), new(bool), &arrivals, &dispatched, &first,
				&s.Usage.InputTokens, &s.Usage.CachedTokens, &s.Usage.OutputTokens, &s.Usage.Estimated, &s.Micros, &s.Waste, &s.Open, &s.Troubled)...)
			if err != nil {
				return err
			}
			if arrivals != "" {
				if err := json.Unmarshal([]byte(arrivals), &s.Arrivals); err != nil {
					return err
				}
			}
			if !first.IsZero() && !dispatched.IsZero() {
				s.FirstToken = first.Sub(dispatched)
			}
			end := s.Request.AcknowledgedAt
			if end.IsZero() {
				end = s.Request.CompletedAt
			}
			if !end.IsZero() {
				s.Total = end.Sub(s.Request.CreatedAt)
			}
			if list = append(list, s); len(list) == f.Limit {
				next = s.Request.ID
			}
			return nil
		})
	})
	return list, next, err
}

// Totals are numbers about the whole file that cost no walk through it.
type Totals struct {
	Waiting  int       // requests without their answer
	Running  int       // those of them that a model is answering
	Oldest   time.Time // the acceptance of the oldest of them; zero without one
	Outbox   int       // effects on their way
	Awaiting int       // callbacks
	Troubled int       // effects that wait for a person
	Dead     int       // those of them that were given up
	Overdue  time.Time // since when the oldest effect on its way is due; zero without one
	Bytes    int64     // of the file, without what is free
	Free     int64     // bytes of it that are free
	WAL      int64     // bytes beside it that are not in it yet
}

// Totals returns them as of one moment.
func (d *DB) Totals(ctx context.Context) (t Totals, err error) {
	err = d.read(ctx, func(c *conn) error {
		if _, err := c.queryRow(sqlCountOpen, nil, &t.Waiting, &t.Running, &t.Oldest); err != nil {
			return err
		}
		for _, q := range []struct {
			sql  string
			dest []any
		}{
			{sqlCountDue, []any{&t.Outbox, &t.Overdue}},
			{sqlCountAwaiting, []any{&t.Awaiting}},
			{sqlCountTroubled, []any{&t.Troubled, &t.Dead}},
		} {
			if _, err := c.queryRow(q.sql, nil, q.dest...); err != nil {
				return err
			}
		}
		var pages, free, size int64
		if _, err := c.queryRow(sqlSelectPages, nil, &pages, &free, &size); err != nil {
			return err
		}
		t.Bytes, t.Free = (pages-free)*size, free*size
		return nil
	})
	if fi, serr := os.Stat(d.path + "-wal"); serr == nil {
		t.WAL = fi.Size()
	}
	return t, err
}

// Counts are running counts of the whole file, purged or not, and how far retention
// has come. Reading them costs the same however large the file is.
type Counts struct {
	Epoch int64
	// Intents were accepted, imported ones among them.
	Intents                                         int64
	Joined, Replayed, Conflicts, Restarted, Expired int64 // arrivals of theirs, after the first
	Attempts                                        int64 // calls to models that were allowed here
	Answers, Charges                                int64
	Charged                                         int64 // micros, of all charges
	Saved                                           int64 // micros that arrivals which joined or were replayed would have cost
	Pruned                                          int64 // evidence of as many intents, the oldest, is pruned
	PrunedUntil                                     time.Time
	PurgeHorizon                                    time.Time
}

// Counts returns them as of one moment.
func (d *DB) Counts(ctx context.Context) (n Counts, err error) {
	err = d.readOne(ctx, func(c *conn) error {
		_, err := c.queryRow(sqlSelectCounts, nil, &n.Epoch, &n.Joined, &n.Replayed, &n.Conflicts, &n.Restarted, &n.Expired, &n.Attempts,
			&n.Answers, &n.Charges, &n.Charged, &n.Saved, &n.Pruned, &n.PurgeHorizon, &n.Intents, &n.PrunedUntil)
		return err
	})
	return n, err
}

const (
	sqlSelectExamined = `SELECT min(id), count(*) FROM (SELECT id FROM requests WHERE id < ?1 ORDER BY id DESC LIMIT ?2)`

	sqlSelectSummaries = sqlSummaryColumns + ` WHERE r.id < ?1 AND r.id >= ?2 AND (?3 = '' OR r.state = ?3)
		AND (?4 = '' OR EXISTS (SELECT 1 FROM arrivals a WHERE a.request_id = r.id AND a.decision = ?4))
		AND (?6 = '' OR instr(upper(r.request_id), upper(?6)) > 0 OR instr(upper(c.session_id), upper(?6)) > 0)
		AND CASE ?5 WHEN '' THEN 1
			WHEN 'stuck' THEN r.state IN ('pending', 'generating') AND r.created_at < ?7
			WHEN 'repeated' THEN EXISTS (SELECT 1 FROM arrivals a WHERE a.request_id = r.id AND a.n > 1)
			WHEN 'conflicts' THEN EXISTS (SELECT 1 FROM arrivals a WHERE a.request_id = r.id AND a.decision = 'conflict')
			WHEN 'unknown' THEN r.failure_outcome IS 'unknown'
			WHEN 'waiting' THEN r.state = 'acknowledged' AND (EXISTS (SELECT 1 FROM outbox o WHERE o.request_id = r.id AND (o.state IN ('dead', 'timed_out') OR o.state = 'refused'))
				OR EXISTS (SELECT 1 FROM decisions d WHERE d.request_id = r.id AND d.verdict = 'ask' AND NOT EXISTS (
					SELECT 1 FROM verdicts v WHERE v.request_id = d.request_id AND v.position = d.position)))
			ELSE 0 END
		ORDER BY r.id DESC LIMIT ?8`

	sqlSummaryColumns = `SELECT ` + sqlRequestFields + `,
	(SELECT json_group_object(decision, n) FROM (SELECT decision, count(*) AS n FROM arrivals WHERE request_id = r.id GROUP BY 1)),
	y.dispatched_at, y.first_token_at, s.input_tokens, s.cached_tokens, s.output_tokens, s.estimated, l.micros,
	(SELECT coalesce(sum(w.micros), 0) FROM ledger w WHERE w.request_id = r.id AND w.kind = 'waste'),
	(SELECT count(*) FROM decisions d WHERE d.request_id = r.id AND d.verdict = 'ask' AND NOT EXISTS (
		SELECT 1 FROM verdicts v WHERE v.request_id = d.request_id AND v.position = d.position))
		+ (SELECT count(*) FROM outbox o WHERE o.request_id = r.id AND o.kind <> 'compensation' AND o.settled_at IS NULL),
	(SELECT count(*) FROM outbox o WHERE o.request_id = r.id AND (o.state IN ('dead', 'timed_out') OR o.state = 'refused'))
	FROM requests r JOIN conversations c ON c.id = r.conversation_id
	LEFT JOIN attempts y ON y.request_id = r.id AND y.n = r.attempt
	LEFT JOIN snapshots s ON s.request_id = r.id
	LEFT JOIN ledger l ON l.request_id = r.id AND l.kind = 'charge'`

	sqlCountOpen = `SELECT count(*), count(*) FILTER (WHERE r.state = 'generating'), min(r.created_at) FROM requests r WHERE true` + sqlOpen

	sqlCountDue = `SELECT count(*), min(next_at) FROM outbox WHERE state = 'pending'`

	sqlCountAwaiting = `SELECT count(*) FROM outbox WHERE state = 'awaiting'`

	sqlCountTroubled = `SELECT count(*), count(*) FILTER (WHERE state = 'dead') FROM outbox WHERE state IN ('dead', 'timed_out') OR state = 'refused'`

	sqlSelectCounts = `SELECT epoch, joined, replayed, conflicts, restarts, expired, attempts, answers, charges, charged_micros, saved_micros,
		pruned_id, nullif(purge_horizon, 0), (SELECT seq FROM sqlite_sequence WHERE name = 'requests'),
		(SELECT created_at FROM requests WHERE id <= pruned_id ORDER BY id DESC LIMIT 1) FROM instance WHERE one = 1`

	sqlSelectPages = `SELECT (SELECT page_count FROM pragma_page_count), (SELECT freelist_count FROM pragma_freelist_count), (SELECT page_size FROM pragma_page_size)`
)
