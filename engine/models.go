package engine

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"
)

// A roster is the models of one moment. It never changes: [Engine.SetModels] puts
// another in its place.
type roster struct {
	list   []Model // the first is the default
	byName map[string]*model
}

// A model, and what its requests share.
type model struct {
	Model
	*pool
}

// A pool is the slots of a model and who waits for one, under Engine.mu. A model
// that is changed keeps its pool: what runs, runs on as it began, and counts.
type pool struct {
	slots int              // in use
	ready map[int64][]*job // by user
	turn  []int64          // users with ready jobs, who comes next first
}

func newPool() *pool { return &pool{ready: map[int64][]*job{}} }

// newRoster returns the models of list; what before had of the same name keeps its
// pool.
func newRoster(list []Model, before *roster) (*roster, error) {
	if len(list) == 0 {
		return nil, errors.New("engine: no model")
	}
	r := &roster{list: slices.Clone(list), byName: map[string]*model{}}
	for _, m := range r.list {
		if m.Upstream == "" {
			m.Upstream = m.Name
		}
		m.MaxAttempts = orDefault(m.MaxAttempts, 3)
		m.MaxCrashReruns = orDefault(m.MaxCrashReruns, 20) // negative: none
		m.FirstTokenTimeout = orDefault(m.FirstTokenTimeout, 300*time.Second)
		m.IdleTimeout = orDefault(m.IdleTimeout, 120*time.Second)
		m.Concurrency = orDefault(m.Concurrency, 8)
		if _, twice := r.byName[m.Name]; twice {
			return nil, fmt.Errorf("engine: two models are called %q", m.Name)
		}
		p := newPool()
		if before != nil && before.byName[m.Name] != nil {
			p = before.byName[m.Name].pool
		}
		r.byName[m.Name] = &model{m, p}
	}
	return r, nil
}

// Models returns the models that there are now, the default first.
func (e *Engine) Models() []Model { return e.roster.Load().list }

// model returns the model of that name, nil when there is none.
func (e *Engine) model(name string) *model { return e.roster.Load().byName[name] }

// SetModels puts other models in the place of those that there are; the first is
// the default. It may be called at any time. What runs goes on with the model it
// began with. What waits is asked of the model that now has its model's name; where
// none has, it fails as model_gone when its turn comes (contract, section 4). An
// error changes nothing: the list is empty, or has a name twice.
func (e *Engine) SetModels(list []Model) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	next, err := newRoster(list, e.roster.Load())
	if err != nil {
		return err
	}
	e.roster.Store(next)
	e.sched.reassign()
	return nil
}

// reassign gives every waiting job the model that its request names now.
func (s *scheduler) reassign() {
	var moved []*job
	for _, c := range s.conversations {
		for _, j := range c.waiting {
			m := s.e.modelOf(j.r)
			if m.pool != j.model.pool {
				j.model.drop(j)
				moved = append(moved, j)
			}
			j.model = m
		}
	}
	slices.SortFunc(moved, func(a, b *job) int { return cmp.Compare(a.id, b.id) }) // as they came
	for _, j := range moved {
		s.promote(s.conversations[j.conversation])
	}
	s.dispatchAll() // a model may have more slots
}

// drop takes a job out of the list of those that are ready, if it is in it.
func (p *pool) drop(j *job) {
	if !j.queued {
		return
	}
	j.queued = false
	p.ready[j.user] = slices.DeleteFunc(p.ready[j.user], func(o *job) bool { return o == j })
	if len(p.ready[j.user]) == 0 {
		delete(p.ready, j.user)
		p.turn = slices.DeleteFunc(p.turn, func(user int64) bool { return user == j.user })
	}
}
