package engine

import (
	"cmp"
	"slices"
	"time"

	"semel/chat"
)

// A scheduler decides who runs next: one answer at a time in a conversation, in
// order; a model's slots shared in turn between users. It only proposes: the
// claim in the database decides. e.mu is held in all its methods.
type scheduler struct {
	e             *Engine
	conversations map[int64]*conversation
	running       map[int64]int // by user
	waiting       int           // jobs that are not running
	perUser       int           // that one user may have running; 0 is no limit
	stopped       bool
}

// A conversation's jobs: at most one runs, the others wait in order.
type conversation struct {
	waiting []*job // by seq
	running *job
	timer   *time.Timer // wakes a retry
}

// A job is a request on its way to an attempt.
type job struct {
	id, conversation, user, seq int64 // never change

	live    *Live
	model   *model       // under e.mu while it waits; a job that runs keeps it
	r       chat.Request // as last stored; the worker's while it runs, else under e.mu
	strikes int          // claims that failed
	queued  bool         // in its model's ready list
	run     string       // the provider's name of a run to follow; "" is a call of its own
}

func (e *Engine) newJob(r chat.Request, l *Live) *job {
	return &job{id: r.ID, conversation: r.ConversationID, user: r.Key.UserID, seq: r.Seq, live: l, model: e.modelOf(r), r: r}
}

// modelOf returns the model that a request names, or the one that stands for those
// that are gone.
func (e *Engine) modelOf(r chat.Request) *model {
	if m := e.model(r.Model); m != nil {
		return m
	}
	return e.gone
}

// add lets a pending request wait for its turn, unless it does. The caller has
// put live into e.lives.
func (s *scheduler) add(j *job) {
	if s.waits(j.conversation, j.id) {
		return
	}
	j.model = s.e.modelOf(j.r) // the models may have changed since the job was made
	c := s.conversations[j.conversation]
	if c == nil {
		c = &conversation{}
		s.conversations[j.conversation] = c
	}
	at, _ := slices.BinarySearchFunc(c.waiting, j, func(a, b *job) int { return cmp.Compare(a.seq, b.seq) })
	c.waiting = slices.Insert(c.waiting, at, j)
	s.waiting++
	s.promote(c)
}

// waits reports whether a request waits for its turn.
func (s *scheduler) waits(conversation, id int64) bool {
	c := s.conversations[conversation]
	return c != nil && slices.ContainsFunc(c.waiting, func(j *job) bool { return j.id == id })
}

// holds reports whether a request waits for its turn or runs.
func (s *scheduler) holds(r chat.Request) bool {
	c := s.conversations[r.ConversationID]
	return s.waits(r.ConversationID, r.ID) || (c != nil && c.running != nil && c.running.id == r.ID)
}

// remove takes a waiting request out, if it is waiting.
func (s *scheduler) remove(r chat.Request) {
	c := s.conversations[r.ConversationID]
	if c == nil {
		return
	}
	for i, j := range c.waiting {
		if j.id == r.ID {
			c.waiting = slices.Delete(c.waiting, i, i+1)
			s.waiting--
			s.promote(c)
			s.forget(r.ConversationID)
			return
		}
	}
}

// promote makes the first job of a conversation ready when nothing of it runs.
func (s *scheduler) promote(c *conversation) {
	if c.timer != nil {
		c.timer.Stop()
		c.timer = nil
	}
	if c.running != nil || len(c.waiting) == 0 || s.stopped {
		return
	}
	j := c.waiting[0]
	if !j.r.RetryAt.IsZero() && time.Until(j.r.RetryAt) > longestRetry {
		j.r.RetryAt = time.Now().Add(longestRetry) // the clock was set back since it was stored
	}
	if wait := time.Until(j.r.RetryAt); !j.r.RetryAt.IsZero() && wait > 0 && j.model != s.e.gone {
		c.timer = time.AfterFunc(wait, func() {
			s.e.mu.Lock()
			defer s.e.mu.Unlock()
			s.promote(c)
		})
		return
	}
	if !j.queued {
		j.queued = true
		m, user := j.model, j.user
		if len(m.ready[user]) == 0 {
			m.turn = append(m.turn, user)
		}
		m.ready[user] = append(m.ready[user], j)
	}
	s.dispatch(j.model)
}

// dispatch starts ready jobs while the model has a free slot, one user after the
// other.
func (s *scheduler) dispatch(m *model) {
	for skipped := 0; m.slots < m.Concurrency && len(m.turn) > skipped && !s.stopped; {
		user := m.turn[0]
		m.turn = m.turn[1:]
		if limit := s.perUser; limit > 0 && s.running[user] >= limit {
			m.turn = append(m.turn, user)
			skipped++
			continue
		}
		j := m.ready[user][0]
		if m.ready[user] = m.ready[user][1:]; len(m.ready[user]) == 0 {
			delete(m.ready, user)
		} else {
			m.turn = append(m.turn, user)
		}
		j.queued = false
		c := s.conversations[j.conversation]
		if c == nil || c.running != nil || len(c.waiting) == 0 || c.waiting[0] != j {
			continue // stopped meanwhile, or an earlier request of it came back
		}
		c.waiting = c.waiting[1:]
		c.running = j
		s.waiting--
		m.slots++
		s.running[user]++
		s.e.workers.Add(1)
		go s.e.work(j)
	}
}

// resume starts a job that runs at its provider already: it takes a slot, whether
// one is free or not.
func (s *scheduler) resume(j *job) {
	c := s.conversations[j.conversation]
	if c == nil {
		c = &conversation{}
		s.conversations[j.conversation] = c
	}
	c.running = j
	j.model.slots++
	s.running[j.user]++
	s.e.workers.Add(1)
	go s.e.work(j)
}

// done gives back what a running job held, once: the worker's and the reaper's
// word may both come. next, when there is one, is the job of the same request that
// takes its place and waits again; a job never runs twice, so that running tells
// one run from another.
func (s *scheduler) done(j, next *job) {
	c := s.conversations[j.conversation]
	mine := c != nil && c.running == j
	if mine {
		c.running = nil
		j.model.slots--
		if s.running[j.user]--; s.running[j.user] == 0 {
			delete(s.running, j.user)
		}
	}
	if next != nil {
		s.add(next)
	} else if mine {
		s.promote(c)
	}
	if !mine {
		return
	}
	s.forget(j.conversation)
	s.dispatchAll() // a user below its cap again may have work for another model
}

func (s *scheduler) dispatchAll() {
	for _, m := range s.e.roster.Load().byName {
		s.dispatch(m)
	}
	s.dispatch(s.e.gone)
}

// forget drops a conversation with nothing to do.
func (s *scheduler) forget(id int64) {
	if c := s.conversations[id]; c != nil && c.running == nil && len(c.waiting) == 0 {
		delete(s.conversations, id)
	}
}

// stop starts nothing any more.
func (s *scheduler) stop() {
	s.stopped = true
	for _, c := range s.conversations {
		if c.timer != nil {
			c.timer.Stop()
		}
	}
}

// CapRunning bounds how many answers of one user run at once, from now on: those that do
// go on. 0 is no limit.
func (e *Engine) CapRunning(n int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.sched.perUser = n
	e.sched.dispatchAll()
}

// track puts a pending request, as it is stored, into the engine's care. Tracking
// one twice is harmless.
func (e *Engine) track(r chat.Request) {
	e.mu.Lock()
	defer e.mu.Unlock()
	l := e.lives[r.ID]
	if l != nil && e.sched.holds(r) {
		return
	}
	if l == nil {
		l = newLive(r)
		e.lives[r.ID] = l
	}
	e.sched.add(e.newJob(r, l))
}

// inCare reports whether somebody here looks after a request.
func (e *Engine) inCare(r chat.Request) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.sched.holds(r)
}

// trackRestarted is track for a request that was failed a moment ago: whoever
// stored that may not have released it yet, and does then what we cannot.
func (e *Engine) trackRestarted(r chat.Request) {
	e.mu.Lock()
	if l := e.lives[r.ID]; l != nil {
		l.restarted = &r
		e.mu.Unlock()
		return
	}
	e.mu.Unlock()
	e.track(r)
}

// release ends a request for the viewers of l: it no longer waits for its answer.
// Only the first release of l does anything: by the second, the request may have
// been restarted and have another.
func (e *Engine) release(l *Live, r chat.Request) {
	e.mu.Lock()
	if l == nil || e.lives[r.ID] != l || l.attempt() > r.Attempt {
		e.mu.Unlock()
		return
	}
	delete(e.lives, r.ID)
	e.sched.remove(r)
	restarted := l.restarted
	e.mu.Unlock()
	l.update(r, true)
	e.publish(r)
	e.noteEnd(r)
	if restarted != nil {
		e.track(*restarted)
	}
}

func (e *Engine) publish(r chat.Request) {
	e.wantIndex()
	e.hub.publish(r.Key.UserID, Event{
		Type: "request", SessionID: r.Key.SessionID, RequestID: r.Key.RequestID, State: r.State, Attempt: r.Attempt,
	})
}
