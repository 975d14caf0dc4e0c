package engine

import (
	"context"
	"sync"
	"time"

	"semel/chat"
)

// A spending knows what each user has spent today, by UTC. It reads of the ledger what
// is new since it last looked.
type spending struct {
	mu    sync.Mutex
	day   time.Time       // under mu; its first moment
	begin int64           // under mu; ledger rows after this one are of the day
	users map[int64]spent // under mu
}

type spent struct{ last, micros int64 }

// overspent returns why a user may not ask today, nil when the user may. What runs is
// not counted until it ends.
func (e *Engine) overspent(ctx context.Context, user int64, requestID string) (*chat.Problem, error) {
	limit := e.o.SpendPerUserPerDay
	if limit <= 0 {
		return nil, nil
	}
	s := &e.spending
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now().UTC()
	day := now.Truncate(24 * time.Hour)
	if !day.Equal(s.day) {
		begin, err := e.db.LedgerBefore(ctx, day)
		if err != nil {
			return nil, err
		}
		s.day, s.begin, s.users = day, begin, map[int64]spent{}
	}
	u, ok := s.users[user]
	if !ok {
		u.last = s.begin
	}
	micros, last, err := e.db.Spent(ctx, user, u.last)
	if err != nil {
		return nil, err
	}
	u = spent{last, u.micros + micros}
	s.users[user] = u
	if u.micros < limit {
		return nil, nil
	}
	p := problem(429, "spend_cap", chat.RetrySameID, requestID,
		"limits.spend_per_user_per_day: %d of %d micros are spent today. Nothing was stored; ask again with the same id tomorrow (UTC).", u.micros, limit)
	p.RetryAfter = day.Add(24 * time.Hour).Sub(now).Round(time.Second)
	return p, nil
}
