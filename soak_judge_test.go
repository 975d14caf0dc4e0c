package main

import (
	"database/sql"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"semel/chat"
)

// A recorded is an attempt as the file has it.
type recorded struct {
	n                     int64
	reason, outcome, code string
	dispatched, ended     time.Time // ended is zero when it has not
	prompted              bool      // a provider got its prompt
	announced             bool      // a process said that it was about to call
}

func (a *recorded) String() string {
	return fmt.Sprintf("attempt %d: %s, %s %s, %s–%s, prompt %v, announced %v", a.n, a.reason, a.outcome, a.code,
		a.dispatched.Format("05.000"), a.ended.Format("05.000"), a.prompted, a.announced)
}

// A soaked is one request with its attempts.
type soaked struct {
	id, model      string
	state          chat.State
	failedCode     string
	failedOutcome  chat.Outcome
	failedRetry    chat.Retry
	attempts       []*recorded
	wasted, earned int
}

func (s *soak) soaked(d *sql.DB) []*soaked {
	var list []*soaked
	byID := map[int64]*soaked{}
	rowsOf(s.t, d, `SELECT id, request_id, model, state, coalesce(failure_code, ''), coalesce(failure_outcome, ''), coalesce(failure_retry, ''),
		(SELECT count(*) FROM ledger l WHERE l.request_id = requests.id AND l.kind = 'waste'),
		(SELECT count(*) FROM ledger l WHERE l.request_id = requests.id AND l.kind = 'charge')
		FROM requests`, func(scan func(...any)) {
		var id int64
		r := &soaked{}
		scan(&id, &r.id, &r.model, &r.state, &r.failedCode, &r.failedOutcome, &r.failedRetry, &r.wasted, &r.earned)
		list, byID[id] = append(list, r), r
	})
	rowsOf(s.t, d, `SELECT request_id, n, reason, coalesce(outcome, ''), coalesce(code, ''), dispatched_at, coalesce(ended_at, 0)
		FROM attempts ORDER BY request_id, n`, func(scan func(...any)) {
		var id, dispatched, ended int64
		a := &recorded{}
		scan(&id, &a.n, &a.reason, &a.outcome, &a.code, &dispatched, &ended)
		a.dispatched = time.UnixMilli(dispatched)
		if ended != 0 {
			a.ended = time.UnixMilli(ended)
		}
		byID[id].attempts = append(byID[id].attempts, a)
	})
	return list
}

// A soakSum is what came together.
type soakSum struct {
	attempts, prompts, unheard int // unheard attempts reached no provider
	silent                     int // attempts that no process announced: it died in between
	outcomes                   map[string]int
	reattached, asked, rerun   int
}

func (s soakSum) String() string {
	return fmt.Sprintf("%d attempts = %d prompts + %d that no provider got; %d were cut off between their record and their call; outcomes %v; "+
		"%d runs were followed by the next process, %d calls were asked for by a person, %d were reruns",
		s.attempts, s.prompts, s.unheard, s.silent, s.outcomes, s.reattached, s.asked, s.rerun)
}

// missing names what must have happened for the test to mean something.
func (s soakSum) missing() string {
	for _, o := range []string{"ok", "none", "definite", "unknown"} {
		if s.outcomes[o] == 0 {
			return "attempt with the outcome " + o
		}
	}
	switch {
	case s.reattached == 0:
		return "run that the next process followed"
	case s.asked == 0:
		return "call that a person asked for"
	case s.rerun == 0:
		return "rerun"
	}
	return ""
}

// judgeCalls compares what providers got and what processes announced with the
// attempts on record, in a file that no process has.
func (s *soak) judgeCalls(d *sql.DB) soakSum {
	t := s.t
	t.Helper()
	list := s.soaked(d)
	announced := maps.Clone(s.announced)
	sum := soakSum{outcomes: map[string]int{}, reattached: s.reattached}
	prompts := map[string][]time.Time{}
	for _, p := range s.providers {
		for id, at := range p.arrivals() {
			prompts[id] = append(prompts[id], at...)
		}
	}
	for _, r := range list {
		wrong := assign(r, prompts[r.id])
		delete(prompts, r.id)
		for _, a := range r.attempts {
			p := press{r.id, a.n}
			a.announced = announced[p] > 0
			if announced[p] > 1 {
				wrong = fmt.Sprintf("attempt %d was dispatched %d times", a.n, announced[p])
			}
			delete(announced, p)
			sum.add(a)
		}
		if wrong == "" {
			wrong = s.misjudged(r)
		}
		if wrong != "" {
			t.Errorf("%s: %s\n%s", r.id, wrong, s.story(r))
		}
	}
	for id, at := range prompts {
		t.Errorf("a provider got %d prompts of %s, which is not on record", len(at), id)
	}
	for p := range announced {
		t.Errorf("attempt %d of %s was dispatched, and is not on record", p.attempt, p.id)
	}
	return sum
}

func (s *soakSum) add(a *recorded) {
	s.attempts++
	if a.prompted {
		s.prompts++
	} else {
		s.unheard++
	}
	if !a.announced {
		s.silent++
	}
	s.outcomes[a.outcome]++
	switch a.reason {
	case "explicit":
		s.asked++
	case "rerun":
		s.rerun++
	}
}

const (
	// The file has times in whole milliseconds.
	tick = 2 * time.Millisecond
	// A prompt that was written when its attempt ended may be read a little later.
	inFlight = 5 * time.Second
)

// judgeAnswers compares what clients were told with the file and with what is served
// at last.
func (s *soak) judgeAnswers(d *sql.DB, final map[*intent]*told) {
	all := fates(s.t, d)
	if len(all) != len(s.intents) {
		s.t.Errorf("%d requests in the file, and clients asked %d", len(all), len(s.intents))
	}
	for _, in := range s.intents {
		f := all[in.session+" "+in.id]
		if f == nil {
			s.t.Errorf("not in the file\n%s", s.journal(in))
			continue
		}
		for _, wrong := range []string{f.wrong(in), changed(s.notes[in], final[in]), strayed(s.notes[in], f.steps)} {
			if wrong != "" {
				s.t.Errorf("%s: %+v\n%s", wrong, *f, s.journal(in))
			}
		}
		if attempt, ok := s.stopped[in.id]; ok && f.attempt > attempt && !s.pressed[press{in.id, attempt}] {
			s.t.Errorf("attempt %d was stopped, nobody asked for another, and there were %d\n%s", attempt, f.attempt, s.journal(in))
		}
	}
	s.judgeOrder(all)
}

// assign finds for each prompt the attempt that sent it, and says what is wrong when
// there is none left.
func assign(r *soaked, prompts []time.Time) string {
	slices.SortFunc(prompts, time.Time.Compare)
	for _, at := range prompts {
		var sent *recorded
		for _, a := range slices.Backward(r.attempts) {
			open := a.ended.IsZero() || at.Before(a.ended.Add(inFlight))
			if !a.prompted && a.outcome != "none" && !at.Before(a.dispatched.Add(-tick)) && open {
				sent = a
				break
			}
		}
		if sent == nil {
			return fmt.Sprintf("a prompt that arrived at %s belongs to no attempt, or is its second", at.Format("05.000"))
		}
		sent.prompted = true
	}
	return ""
}

// misjudged says what of one request is not as the rules have it.
func (s *soak) misjudged(r *soaked) string {
	ask := true
	for _, m := range soakModels {
		if m.name == r.model {
			ask = m.ask
		}
	}
	since, crashed := 0, 0 // attempts since a person asked last
	for i, a := range r.attempts {
		if a.reason == "explicit" { // a repeat that restarts has no more tries than were left
			since, crashed = 0, 0
		}
		if a.code == "interrupted" {
			crashed++
		} else {
			since++
		}
		switch {
		case (a.outcome == "ok" || a.outcome == "definite") && !a.prompted:
			return fmt.Sprintf("attempt %d ended as only a provider can end it, and no provider got it", a.n)
		case !a.announced && a.outcome != "" && a.code != "interrupted" && a.outcome != "stopped":
			return fmt.Sprintf("attempt %d ended %s %s, and nobody said that it was dispatched", a.n, a.outcome, a.code)
		case i == 0:
			continue
		}
		before := r.attempts[i-1]
		s.mu.Lock()
		pressed := s.pressed[press{r.id, before.n}]
		s.mu.Unlock()
		mayGoOn := before.outcome == "none" || before.outcome == "definite" && before.code == "provider_busy" || before.outcome == "unknown" && !ask
		switch {
		case !pressed && !mayGoOn:
			return fmt.Sprintf("attempt %d follows %s %s, and nobody asked for it", a.n, before.outcome, before.code)
		case a.reason == "explicit" && !pressed:
			return fmt.Sprintf("attempt %d says that a person asked for it", a.n)
		case a.reason == "rerun" && (ask || before.outcome != "unknown"):
			return fmt.Sprintf("attempt %d is a rerun after %s", a.n, before.outcome)
		}
	}
	answered := 0
	if r.state == chat.StateCommitted {
		answered = 1
	}
	last := ""
	if len(r.attempts) > 0 {
		last = r.attempts[len(r.attempts)-1].outcome
	}
	switch {
	case r.earned != answered:
		return fmt.Sprintf("%s, and charged %d times", r.state, r.earned)
	case r.state == chat.StateCommitted && last != "ok" && last != "stopped":
		return "answered by an attempt that ended " + last
	case r.state != chat.StateFailed || r.failedOutcome != chat.OutcomeUnknown:
		return ""
	case r.failedRetry != chat.RetryExplicit:
		return fmt.Sprintf("nobody knows what came of it, and asking again is %s", r.failedRetry)
	case r.failedCode == "stopped":
		return ""
	case !ask && since < soakAttempts && crashed <= soakCrashes:
		return fmt.Sprintf("it failed after %d attempts and %d deaths, and should have been called again", since, crashed)
	}
	return ""
}

// story is everything that is known of a request.
func (s *soak) story(r *soaked) string {
	var b strings.Builder
	fmt.Fprintf(&b, "model %s, %s %s %s %s", r.model, r.state, r.failedCode, r.failedOutcome, r.failedRetry)
	for _, a := range r.attempts {
		fmt.Fprintf(&b, "\n  %s", a)
	}
	for _, p := range s.providers {
		for _, at := range p.arrivals()[r.id] {
			fmt.Fprintf(&b, "\n  a prompt at %s", at.Format("05.000"))
		}
	}
	for i, l := range s.lives {
		for line := range strings.Lines(l.log.String()) {
			if strings.Contains(line, r.id) {
				fmt.Fprintf(&b, "\n  life %d: %s", i, strings.TrimSpace(line))
			}
		}
	}
	s.world.mu.Lock()
	defer s.world.mu.Unlock()
	for _, in := range s.intents {
		if in.id == r.id {
			for _, n := range s.notes[in] {
				fmt.Fprintf(&b, "\n  %s", n)
			}
		}
	}
	return b.String()
}
