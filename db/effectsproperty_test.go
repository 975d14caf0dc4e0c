package db_test

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"semel/chat"
	"semel/db"
	"semel/db/dbtest"
)

// Whatever happens to effects, in whatever order, and wherever the process dies: the
// database does what its model says, and its invariants hold. More of
// it: -rapid.checks=10000 -timeout 0. To have the same again: -rapid.seed=….
func TestEffectsDoWhatTheirModelSays(t *testing.T) {
	moderately(t)
	dir := t.TempDir()
	empty := filepath.Join(dir, "empty.db")
	if err := dbtest.OpenAt(t, empty, nil).Close(); err != nil {
		t.Fatal(err)
	}
	met := map[string]int{}
	rapid.Check(t, func(rt *rapid.T) {
		r := &effectsRig{
			TB: t, rt: rt, met: met, dir: filepath.Join(dir, fmt.Sprint("case-", met["case"])),
			m: &model{deleted: map[string]time.Time{}, disabled: map[string]bool{}},
		}
		r.happens("case")
		if err := errors.Join(os.Mkdir(r.dir, 0o700), copyTo(empty, r.file())); err != nil {
			r.Fatal(err)
		}
		defer os.RemoveAll(r.dir)
		// What rapid fails with leaves the bubble by hand: a panic in it ends the process.
		var failed any
		synctest.Test(t, func(*testing.T) { // rows are in milliseconds, and waits take hours
			defer func() { failed = recover() }()
			r.run(rt)
		})
		if failed != nil {
			panic(failed)
		}
	})
	var list []string
	for what, n := range met {
		list = append(list, fmt.Sprintf("%s: %d", what, n))
	}
	slices.Sort(list)
	t.Logf("what happened: %s", strings.Join(list, ", "))
}

func (r *effectsRig) run(rt *rapid.T) {
	r.d = r.reopen()
	defer func() { r.d.Close() }()
	r.ask(rt)
	steps := []func(*rapid.T){
		r.ask, r.decide, r.decide, r.start, r.start, r.start, r.end, r.end, r.giveUp, r.callBack, r.callBack,
		r.resolve, r.resolve, r.delete, r.wait, r.wait, r.die, r.takeOver,
	}
	rt.Repeat(map[string]func(*rapid.T){"": r.compare, "step": func(rt *rapid.T) {
		defer func() {
			if v := recover(); v != nil {
				if _, ok := v.(nothing); !ok {
					panic(v)
				}
			}
		}()
		one(rt, steps, "step")(rt)
	}})
	dbtest.Check(r, r.d)
}

// nothing says why a step is none. Steps that are skipped count against rapid's patience.
type nothing string

// checks is how many cases a run tries where no flag says.
var checks = "15"

// moderately does less than rapid would, unless a flag says how much.
func moderately(t *testing.T) {
	t.Helper()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "rapid.checks" || f.Name == "rapid.failfile" })
	if given {
		return
	}
	for name, value := range map[string]string{"rapid.checks": checks, "rapid.steps": "160", "rapid.nofailfile": "true"} {
		if err := flag.Set(name, value); err != nil {
			t.Fatal(err)
		}
	}
}

func copyTo(from, to string) error {
	b, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, b, 0o600)
}

// effectsRig does every step with the database and with the model. It is the
// [testing.TB] of the factories: what fails, fails the case.
type effectsRig struct {
	testing.TB
	rt    *rapid.T
	dir   string
	n     int // of the file: a new one after each death
	steps int
	d     *db.DB
	m     *model
	ids   map[*effect]string
	met   map[string]int

	shown  map[*effect]string // digests
	seen   []sight            // pending, as the relay saw them
	flying []sight            // as their deliveries began
	life   int
	asked  map[*askedFor]chat.Request
}

type sight struct {
	e       *effect
	o       db.Outgoing
	changes int64
}

func (r *effectsRig) Helper()                   { r.rt.Helper() }
func (r *effectsRig) Errorf(f string, a ...any) { r.rt.Helper(); r.rt.Errorf(f, a...) }
func (r *effectsRig) Fatalf(f string, a ...any) { r.rt.Helper(); r.rt.Fatalf(f, a...) }
func (r *effectsRig) Fatal(a ...any)            { r.rt.Helper(); r.rt.Fatal(a...) }
func (r *effectsRig) Cleanup(func())            {} // the case closes what is open

func (r *effectsRig) happens(what string) { r.met[what]++ }

func (r *effectsRig) file() string { return filepath.Join(r.dir, fmt.Sprintf("%d.db", r.n)) }

func (r *effectsRig) reopen() *db.DB {
	r.life++
	return dbtest.OpenAt(r, r.file(), nil)
}

// one draws one of list; without any the step is none.
func one[T any](rt *rapid.T, list []T, what string) T {
	if len(list) == 0 {
		panic(nothing("nothing to " + what))
	}
	return list[fair(rt, len(list), what)]
}

func sometimes(rt *rapid.T, oneIn int, what string) bool {
	return fair(rt, oneIn, what) == oneIn-1
}

// fair draws from 0 to n-1. rapid's own integers are mostly small ones.
func fair(rt *rapid.T, n int, what string) int { return tenBits.Draw(rt, what) % n }

var tenBits = rapid.Custom(func(t *rapid.T) (n int) {
	for range 10 {
		n *= 2
		if rapid.Bool().Draw(t, "bit") {
			n++
		}
	}
	return n
})

// same compares what the database answered with what the model says.
func (r *effectsRig) same(what string, got, want error) {
	r.Helper()
	if !errors.Is(got, want) {
		r.Fatalf("%s: %v, want %v", what, got, want)
	}
	if want != nil {
		what = fmt.Sprintf("%s: %v", what, want)
	}
	r.happens(what)
}

// session draws a conversation: one of two, and of one more for each that is deleted.
func (r *effectsRig) session(rt *rapid.T) string {
	return fmt.Sprint("session-", fair(rt, 2+len(r.m.deleted), "session"))
}

// ask takes a question, or another answer to one, to an answer that asks for actions.
func (r *effectsRig) ask(rt *rapid.T) {
	open := 0
	for _, e := range r.m.rows {
		if !e.state.Settled() {
			open++
		}
	}
	if open > 8 {
		panic(nothing("there is enough to do"))
	}
	var actions []string
	for range fair(rt, 5, "actions") {
		actions = append(actions, one(rt, []string{"sign", "sign", "sign", "note", "note", "hasty", "hasty", "post", "never", "unheard-of"}, "action"))
	}
	a := &askedFor{session: r.session(rt)}
	var before []*askedFor
	for _, b := range r.m.asked {
		if b.session == a.session {
			before = append(before, b)
		}
	}
	s, again := dbtest.Submission(a.session, chat.NewID(), "please"), int64(0)
	if len(before) > 0 && rapid.Bool().Draw(rt, "again") {
		b := one(rt, before, "turn")
		question := r.asked[b].Kind == chat.KindMessage || r.asked[b].Kind == chat.KindEdit
		switch kind := one(rt, []chat.Kind{chat.KindRegenerate, chat.KindEdit, chat.KindContinue}, "kind"); {
		case kind == chat.KindContinue:
			s, a.turn = dbtest.Ask(a.session, kind, "", b.answer), b.answer
		case kind == chat.KindRegenerate && rapid.Bool().Draw(rt, "of the answer"):
			s, a.turn, again = dbtest.Ask(a.session, kind, "", b.answer), b.turn, b.turn
		case kind == chat.KindRegenerate && question:
			s, a.turn, again = dbtest.Ask(a.session, kind, "", b.turn), b.turn, b.turn
		case question:
			s, again = dbtest.Ask(a.session, chat.KindEdit, "rather", b.turn), b.turn
		default: // a question under an answer is a new one
			s = dbtest.Ask(a.session, chat.KindEdit, "and then", b.answer)
		}
	}
	q, err := r.d.Accept(bg, s)
	if !r.m.deleted[a.session].IsZero() {
		r.same("accept", err, db.ErrGone)
		return
	}
	r.same("accept "+string(s.Kind), err, nil)
	if again != 0 {
		r.m.reject(a.session, again)
	}
	r.compare(rt)
	q, _ = dbtest.Claim(r, r.d, q)
	answer := dbtest.Asking(actions...)
	charge := sometimes(rt, 4, "charge")
	if charge {
		answer.ChargeTo, answer.Currency = "books", "USD"
	}
	if q, err = r.d.Finish(bg, q, answer); err != nil {
		r.Fatalf("finish: %v", err)
	}
	if a.answer = db.AnswerSeq(q); a.turn == 0 {
		a.turn = q.Seq
	}
	r.m.answer(a, actions, charge, time.Now())
	if r.asked == nil {
		r.asked, r.ids, r.shown = map[*askedFor]chat.Request{}, map[*effect]string{}, map[*effect]string{}
	}
	r.asked[a] = q
	for i, e := range dbtest.EffectsOf(r, r.d, q) {
		r.ids[a.actions[i]], r.shown[a.actions[i]] = e.WebhookID, e.Digest
	}
	if charge {
		r.ids[a.charge] = r.newest(db.KindCharge)
	}
}

func (r *effectsRig) newest(kind string) string {
	list, err := r.d.Outbox(bg, db.OutboxFilter{Limit: 1})
	if err != nil || len(list) == 0 || list[0].Kind != kind {
		r.Fatalf("the newest of the outbox is no %s: %+v (%v)", kind, list, err)
	}
	return list[0].WebhookID
}

// some draws an effect: of all, of those that left, mostly of those that are open, or of
// those that can be or are being undone.
func (r *effectsRig) some(rt *rapid.T) *effect {
	list, how := r.m.rows, fair(rt, 6, "how")
	if how > 0 {
		list = slices.DeleteFunc(slices.Clone(list), func(e *effect) bool {
			return e.attempt == 0 || how > 1 && e.state.Settled() || how > 3 && !e.compensates
		})
	}
	return one(rt, list, "effect")
}

// rather draws, every other time, one of those for which yes holds, if there are any:
// they are rare.
func (r *effectsRig) rather(rt *rapid.T, yes func(*effect) bool) *effect {
	var list []*effect
	for _, e := range r.m.rows {
		if yes(e) {
			list = append(list, e)
		}
	}
	if len(list) == 0 || rapid.Bool().Draw(rt, "any") {
		return r.some(rt)
	}
	return one(rt, list, "rare effect")
}

func (r *effectsRig) decide(rt *rapid.T) {
	var list []*effect
	decided := sometimes(rt, 3, "decided")
	for _, e := range r.m.rows {
		if e.kind == db.KindEffect && (decided || e.state == chat.EffectUndecided) {
			list = append(list, e)
		}
	}
	e := one(rt, list, "effect")
	v := db.Verdict{UserID: db.LocalUser, WebhookID: r.ids[e], Digest: r.shown[e], Actor: "user:1"}
	v.Approve = !sometimes(rt, 3, "reject")
	owner, shown := !sometimes(rt, 8, "stranger"), !sometimes(rt, 8, "another digest")
	if !owner {
		v.UserID = 2
	}
	if !shown {
		v.Digest = strings.Repeat("0", 64)
	}
	want := r.m.decide(e, v.Approve, owner, shown, time.Now())
	_, err := r.d.Decide(bg, v)
	r.same("decide", err, want)
}

func (r *effectsRig) delete(rt *rapid.T) {
	session := r.session(rt)
	at, now := r.m.deleted[session], time.Now()
	if at.IsZero() {
		if !slices.ContainsFunc(r.m.asked, func(a *askedFor) bool { return a.session == session }) || !sometimes(rt, 4, "really") {
			panic(nothing("nothing to delete"))
		}
		if _, err := r.d.DeleteConversation(bg, db.LocalUser, session); err != nil {
			r.Fatalf("delete: %v", err)
		}
		r.m.deleted[session] = now
		r.m.reject(session, 0)
		r.happens("delete")
		return
	}
	want := db.ErrGone
	if now.Sub(at) < db.UndoWindow {
		want = nil
		delete(r.m.deleted, session)
	}
	_, err := r.d.RestoreConversation(bg, db.LocalUser, session)
	r.same("restore", err, want)
}

// look is what the relay does: it compares what is due, and keeps what it saw.
func (r *effectsRig) look(rt *rapid.T) {
	busy := [][]string{nil, nil, {"note"}, {"sign", "books"}}[fair(rt, 4, "busy")]
	list, next, err := r.d.Due(bg, time.Now(), busy, 100)
	if err != nil {
		r.Fatalf("due: %v", err)
	}
	want, wantNext := r.m.dueAt(time.Now(), busy)
	if !next.Equal(wantNext) {
		r.Fatalf("the next look is at %v, want %v", next, wantNext)
	}
	if !slices.IsSortedFunc(list, func(a, b db.Outgoing) int { return a.NextAt.Compare(b.NextAt) }) {
		r.Fatalf("what is due is not in the order in which it waits: %v", list)
	}
	var got []int
	for _, o := range list {
		i := slices.IndexFunc(r.m.rows, func(e *effect) bool { return r.ids[e] == o.WebhookID })
		got = append(got, i)
		r.seen = append(r.seen, sight{r.m.rows[i], o, r.m.rows[i].changes})
	}
	var due []int
	for _, e := range want {
		due = append(due, slices.Index(r.m.rows, e))
	}
	if slices.Sort(got); !slices.Equal(got, due) {
		r.Fatalf("due is %v, want %v\n%s", got, due, strings.Join(r.expected(), "\n"))
	}
}

func (r *effectsRig) start(rt *rapid.T) {
	s := r.sight(rt)
	want := s.e.start(s.changes)
	o, err := r.d.StartDelivery(bg, s.o, db.Delivery{Owner: r.owner(), Lease: time.Minute, Target: "webhook http://127.0.0.1:9900/"})
	r.same("start", err, want)
	if err == nil {
		r.flying = append(r.flying, sight{s.e, o, s.e.changes})
	}
}

// sight draws what somebody saw: just now, or before.
func (r *effectsRig) sight(rt *rapid.T) sight {
	before := len(r.seen)
	r.look(rt)
	if !sometimes(rt, 5, "seen before") {
		return one(rt, r.seen[before:], "row")
	}
	return one(rt, r.seen, "row")
}

func (r *effectsRig) owner() string { return fmt.Sprint("life-", r.life) }

func (r *effectsRig) giveUp(rt *rapid.T) {
	if !sometimes(rt, 3, "really") {
		panic(nothing("goes on"))
	}
	s := r.sight(rt)
	want := s.e.giveUp(s.changes)
	_, err := r.d.GiveUp(bg, s.o, "destination_gone")
	r.same("give up", err, want)
}

// end ends a delivery, perhaps one that has ended, and perhaps by an owner that is dead.
func (r *effectsRig) end(rt *rapid.T) {
	s := one(rt, r.flying, "delivery")
	if !sometimes(rt, 4, "any") {
		s = one(rt, slices.DeleteFunc(slices.Clone(r.flying), func(s sight) bool { return !s.e.open }), "open delivery")
	}
	end := one(rt, []db.DeliveryEnd{
		dbtest.Sent, dbtest.Sent, dbtest.Sent, dbtest.Sent, dbtest.Sent, dbtest.GaveUp, dbtest.Gone,
		{Outcome: chat.OutcomeUnknown, Status: 500, Code: "receiver_failed", Retry: time.Now()},
		{Outcome: chat.OutcomeDefinite, Status: 503, Code: "receiver_busy", Retry: time.Now().Add(5 * time.Minute)},
		{Outcome: chat.OutcomeNone, Code: "unreachable", Retry: time.Now().Add(5 * time.Second)},
	}, "end")
	r.ends(s, end)
}

func (r *effectsRig) ends(s sight, end db.DeliveryEnd) {
	quicker := s.e.state != chat.EffectDelivering
	end.Actor = "relay:" + r.owner()
	want := r.m.end(s.e, s.o.Attempt, end, time.Now())
	_, err := r.d.EndDelivery(bg, s.o, end)
	r.same("end as "+string(end.Outcome), err, want)
	if want == nil && quicker {
		r.happens("a callback was quicker")
	}
}

func (r *effectsRig) callBack(rt *rapid.T) {
	e := r.rather(rt, func(e *effect) bool { return e.state == chat.EffectCompensating && e.verdict == nil })
	cb := db.Callback{WebhookID: r.ids[e], MessageID: fmt.Sprint("cb-", fair(rt, 3, "message")), OK: !sometimes(rt, 3, "no"), Reason: "because"}
	right := true
	switch fair(rt, 6, "names") {
	case 0:
		cb.RequestID, right = chat.NewID(), false
	case 1:
		cb.RequestID = r.asked[e.of].Key.RequestID
	}
	before := e.state
	want, wantErr := r.m.callback(e, cb.MessageID, cb.OK, right, time.Now())
	got, _, err := r.d.Callback(bg, cb)
	r.same("callback", err, wantErr)
	if got != want {
		r.Fatalf("a callback to what was %s is %s, want %s", before, got, want)
	}
	if got == db.CallbackFirst {
		r.happens("a callback to what was " + string(before))
	} else if got != "" {
		r.happens("a callback that is " + string(got))
	}
	r.named(e)
}

// named learns the id of what undoes e.
func (r *effectsRig) named(e *effect) {
	if e.undoneBy != nil && r.ids[e.undoneBy] == "" {
		r.ids[e.undoneBy] = r.newest(db.KindCompensation)
	}
}

func (r *effectsRig) wait(rt *rapid.T) {
	time.Sleep(one(rt, []time.Duration{time.Millisecond, 10 * time.Second, 7 * time.Minute, 7 * time.Minute, time.Hour}, "time"))
	if slices.ContainsFunc(r.m.rows, func(e *effect) bool { return e.state == chat.EffectAwaiting && e.due.After(time.Now()) }) {
		r.happens("waited for less than its receiver may take")
	}
	list, more, err := r.d.TimeOut(bg)
	if want := r.m.timeOut(time.Now()); err != nil || more || len(list) != want {
		r.Fatalf("%d timed out (%t, %v), want %d", len(list), more, err, want)
	}
	r.met["timed out"] += len(list)
}

func (r *effectsRig) resolve(rt *rapid.T) {
	do := one(rt, []string{db.Redrive, db.Abandon, db.Compensate, db.Compensate}, "do")
	e := r.rather(rt, func(e *effect) bool {
		return do == db.Compensate && e.compensates && e.attempt > 0 && !e.state.Settled() && e.state != chat.EffectDelivering
	})
	before := e.state
	want := r.m.resolve(e, do, time.Now())
	_, err := r.d.Resolve(bg, db.Resolution{WebhookID: r.ids[e], Do: do, Actor: "user:1", Reason: "it must be"})
	r.same(fmt.Sprintf("%s what is %s", do, before), err, want)
	r.named(e)
}

// die is what a kill -9 leaves to the next life: the file and its log, as they are.
func (r *effectsRig) die(rt *rapid.T) {
	if !sometimes(rt, 3, "really") {
		panic(nothing("lives on"))
	}
	before := r.file()
	r.n++
	err := copyTo(before, r.file())
	if wal := copyTo(before+"-wal", r.file()+"-wal"); !errors.Is(wal, os.ErrNotExist) {
		err = errors.Join(err, wal)
	}
	if err = errors.Join(err, r.d.Close()); err != nil {
		r.Fatal(err)
	}
	r.d = r.reopen()
	r.happens("die")
	if rapid.Bool().Draw(rt, "take over at once") {
		r.takeOver(rt)
	}
}

// takeOver ends the deliveries of lives before this one: what became of them is unknown.
func (r *effectsRig) takeOver(rt *rapid.T) {
	list, err := r.d.Delivering(bg)
	if err != nil {
		r.Fatal(err)
	}
	n := 0
	for _, e := range r.m.rows {
		if e.state == chat.EffectDelivering {
			n++
		}
	}
	if len(list) != n {
		r.Fatalf("%d are being delivered, want %d", len(list), n)
	}
	taken := false
	for _, o := range list {
		if o.Owner == r.owner() {
			continue
		}
		taken = true
		i := slices.IndexFunc(r.m.rows, func(e *effect) bool { return r.ids[e] == o.WebhookID })
		end := db.DeliveryEnd{Outcome: chat.OutcomeUnknown, Code: "interrupted", Retry: time.Now()}
		if sometimes(rt, 3, "for good") {
			end.Retry, end.GiveUp = time.Time{}, "outcome_unknown"
		}
		r.ends(sight{r.m.rows[i], o, 0}, end)
		r.happens("taken over")
	}
	if !taken {
		panic(nothing("nobody died while it delivered"))
	}
}

func (r *effectsRig) line(e *effect, state chat.EffectState, attempt, tries int64, next, due time.Time, unknown bool) string {
	ms := func(at time.Time) int64 {
		if at.IsZero() {
			return 0
		}
		return at.UnixMilli()
	}
	return fmt.Sprintf("%d: %s to %s is %s, attempt %d, try %d, next %d, due %d, unknown %t",
		slices.Index(r.m.rows, e), e.kind, e.to, state, attempt, tries, ms(next), ms(due), unknown)
}

func (r *effectsRig) expected() (list []string) {
	for _, e := range r.m.rows {
		list = append(list, r.line(e, e.state, e.attempt, e.tries, e.next, e.due, e.unknown))
	}
	return list
}

// compare is what holds after each step.
func (r *effectsRig) compare(*rapid.T) {
	r.Helper()
	if r.steps++; r.steps%4 == 0 { // what is broken stays broken, and this is most of the time
		dbtest.Check(r, r.d)
	}
	byID := map[string]*effect{}
	for e, id := range r.ids {
		byID[id] = e
	}
	outbox, err := r.d.Outbox(bg, db.OutboxFilter{Limit: 1000})
	if err != nil {
		r.Fatal(err)
	}
	got := map[*effect]string{}
	for _, o := range outbox {
		e := byID[o.WebhookID]
		if e == nil {
			r.Fatalf("nobody asked for %+v", o)
		}
		got[e] = r.line(e, o.State, o.Attempt, o.Tries, o.NextAt, o.DueAt, o.Unknown)
	}
	for _, a := range r.m.asked {
		rec, err := r.d.RecordOf(bg, r.asked[a].ID)
		if err != nil {
			r.Fatal(err)
		}
		want := chat.StateAcknowledged
		if a.committed() {
			want = chat.StateCommitted
		}
		if rec.State != want {
			r.Fatalf("a request is %s, want %s\n%s", rec.State, want, strings.Join(r.expected(), "\n"))
		}
		for i, e := range a.actions {
			switch state := rec.Effects[i].State; {
			case got[e] == "":
				got[e] = r.line(e, state, rec.Effects[i].Attempts, 0, time.Time{}, time.Time{}, false)
			case state != e.state:
				r.Fatalf("its record says that effect %d is %s, want %s", i, state, e.state)
			}
		}
	}
	var is []string
	for _, e := range slices.SortedFunc(func(yield func(*effect) bool) {
		for e := range got {
			if !yield(e) {
				return
			}
		}
	}, func(a, b *effect) int { return cmp.Compare(slices.Index(r.m.rows, a), slices.Index(r.m.rows, b)) }) {
		is = append(is, got[e])
	}
	if want := r.expected(); !slices.Equal(is, want) {
		r.Fatalf("effects are\n%s\nwant\n%s", strings.Join(is, "\n"), strings.Join(want, "\n"))
	}
	audits, err := db.Int(bg, r.d, `SELECT count(*) FROM audit`)
	if err != nil || audits != r.m.audits {
		r.Fatalf("the audit has %d rows (%v), want %d", audits, err, r.m.audits)
	}
	disabled, err := db.Int(bg, r.d, `SELECT count(*) FROM disabled_destinations`)
	if err != nil || int(disabled) != len(r.m.disabled) {
		r.Fatalf("%d destinations are disabled (%v), want %v", disabled, err, r.m.disabled)
	}
}
