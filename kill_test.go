package main

import (
	"cmp"
	"database/sql"
	"flag"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"semel/chat"
)

var (
	seedFlag  = flag.Uint64("seed", 0, "what the random tests do; 0 is something new each time")
	killsFlag = flag.Int("kills", 110, "how often the server is killed")
)

// randomly returns a source of chance and tells how to have the same again.
func randomly(t *testing.T) *rand.Rand {
	t.Helper()
	seed := *seedFlag
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("to try the same again: go test -run '^%s$' . -seed=%d", t.Name(), seed)
	return rand.New(rand.NewPCG(seed, 0))
}

func upTo(rng *rand.Rand, d time.Duration) time.Duration { return time.Duration(rng.Int64N(int64(d))) }

// What a kill left in the file: how many requests in which state.
type remains struct {
	waiting, retrying               int // pending
	withoutText, withText, stopping int // generating; stopping ones are in one of the first two, too
	failed, committed               int
	stopped                         map[string]int64 // the attempt of each request that is stopping
	owners                          map[string]bool  // of what is generating
	taken                           int              // what recoveries have written
}

func (r remains) unfinished() int { return r.waiting + r.retrying + r.withoutText + r.withText }

func look(t testing.TB, d *sql.DB) remains {
	t.Helper()
	r := remains{stopped: map[string]int64{}, owners: map[string]bool{}}
	rowsOf(t, d, `SELECT count(*) FROM transitions WHERE actor LIKE 'recovery:%'`, func(scan func(...any)) { scan(&r.taken) })
	rowsOf(t, d, `SELECT request_id, state, attempt, coalesce(owner, ''), retry_at IS NOT NULL, stop_requested_at IS NOT NULL,
		EXISTS (SELECT 1 FROM partials p WHERE p.request_id = requests.id AND p.attempt = requests.attempt AND p.text <> '')
		FROM requests`, func(scan func(...any)) {
		var id, owner string
		var state chat.State
		var attempt int64
		var retry, stop, text bool
		scan(&id, &state, &attempt, &owner, &retry, &stop, &text)
		switch {
		case state == chat.StatePending && retry:
			r.retrying++
		case state == chat.StatePending:
			r.waiting++
		case state == chat.StateGenerating && text:
			r.withText++
		case state == chat.StateGenerating:
			r.withoutText++
		case state == chat.StateFailed:
			r.failed++
		case state == chat.StateCommitted:
			r.committed++
		default:
			t.Errorf("request %s is %s: with no effects nobody may ever find it so", id, state)
		}
		if owner != "" {
			r.owners[owner] = true
		}
		if stop && state == chat.StateGenerating {
			r.stopping++
			r.stopped[id] = attempt
		}
	})
	return r
}

const killConfig = `
[limits]
per_user_per_minute = 0
running_per_user = 0

[[models]]
name = "demo"
provider = "demo"
max_crash_reruns = 4
first_token_timeout = "1s"

[[models]]
name = "ask"
provider = "demo"
on_unknown = "ask"
first_token_timeout = "1s"
`

// F15: the real program is killed while clients talk to it, again and again. Whatever
// a client was told must be true for ever.
func TestKillNineLosesNothingAndDoublesNothing(t *testing.T) {
	rng := randomly(t)
	db := writeConfig(t, killConfig)
	w := newWorld(t)
	enough := make(chan struct{})
	shared := chat.NewID()
	var sharedMu sync.Mutex
	var clients sync.WaitGroup
	defer clients.Wait()
	defer close(w.over)

	l := serveNow(t, db)
	w.begin(l)
	for range 6 {
		c := &client{world: w, rng: rand.New(rand.NewPCG(rng.Uint64(), rng.Uint64())), shared: func() string {
			sharedMu.Lock()
			defer sharedMu.Unlock()
			return shared
		}}
		clients.Go(func() { c.live(enough) })
	}

	k := &killer{world: w, rng: rng, db: db, copy: filepath.Join(t.TempDir(), "copy.db"), stopped: map[string]int64{}}
	began := time.Now()
	for (k.kills < *killsFlag || k.missing() != "" && k.kills < 5**killsFlag) && !t.Failed() {
		if k.kills%8 == 7 { // the old one may have become slow
			sharedMu.Lock()
			shared = chat.NewID()
			sharedMu.Unlock()
		}
		k.killAtSomeMoment(l)
		for rng.IntN(8) == 0 { // again, before it serves
			l = launch(t, db)
			time.Sleep(upTo(rng, 15*time.Millisecond)) // the moment of the kill
			k.kill(l)
		}
		l = serveNow(t, db)
		w.begin(l)
		verifyFile(t, db)
	}
	t.Logf("%d kills in %.0f s; %d of them with unfinished requests; found waiting %d times, waiting to retry %d, generating without text %d, "+
		"with partial text %d, with a stop on its way %d, failed %d, committed %d", k.kills, time.Since(began).Seconds(), k.unfinished,
		k.found.waiting, k.found.retrying, k.found.withoutText, k.found.withText, k.found.stopping,
		k.found.failed, k.found.committed)
	if k.unfinished*10 < k.kills*8 {
		t.Errorf("%d of %d kills found a request unfinished: fewer than 8 in 10, so this proves little", k.unfinished, k.kills)
	}
	if what := k.missing(); what != "" {
		t.Errorf("no kill found a request %s, so this does not prove what becomes of it", what)
	}

	close(enough)
	clients.Wait()
	k.stops.Wait()
	w.settle()
	if t.Failed() {
		return
	}
	l.kill()
	w.end()
	l = serveNow(t, db)
	w.begin(l)
	final := w.collect()
	l.kill()
	verifyFile(t, db)
	w.judge(openSQL(t, copyDatabase(t, db, k.copy)), final, k.stopped)
	t.Logf("%d questions, %d notes in the journal, %.0f s in all", len(w.intents), w.countNotes(), time.Since(began).Seconds())
}

// A killer chooses the moments, and remembers how it found the file.
type killer struct {
	*world
	rng      *rand.Rand
	db, copy string

	stops sync.WaitGroup // under way

	kills, unfinished int
	found             remains          // kills that found one, not requests found
	stopped           map[string]int64 // requests whose stop a kill caught on its way
}

// missing names a state in which no kill has found a request so far, "" when
// there is none.
func (k *killer) missing() string {
	for _, x := range []struct {
		what string
		n    int
	}{
		{"waiting", k.found.waiting}, {"waiting to retry", k.found.retrying}, {"generating without text", k.found.withoutText},
		{"generating with partial text", k.found.withText}, {"with a stop on its way", k.found.stopping},
		{"failed", k.found.failed}, {"committed", k.found.committed},
	} {
		if x.n == 0 {
			return x.what
		}
	}
	return ""
}

// killAtSomeMoment waits for a moment that chance would rarely find, or for a
// random one.
func (k *killer) killAtSomeMoment(l *life) {
	switch k.kills % 9 {
	case 3:
		k.untilPartialText()
		time.Sleep(upTo(k.rng, 150*time.Millisecond)) // the moment of the kill
	case 6:
		k.stopMany()
		time.Sleep(upTo(k.rng, 6*time.Millisecond)) // the moment of the kill
	default:
		time.Sleep(upTo(k.rng, 400*time.Millisecond)) // the moment of the kill
	}
	k.kill(l)
}

// kill is kill -9 and a look at what it left.
func (k *killer) kill(l *life) remains {
	k.t.Helper()
	l.kill()
	if code := l.cmd.ProcessState.ExitCode(); code != -1 && runtime.GOOS != "windows" {
		k.t.Fatalf("the server ended by itself (%s):\n%s", l.cmd.ProcessState, l.log)
	}
	k.end()
	d := openSQL(k.t, copyDatabase(k.t, k.db, k.copy))
	r := look(k.t, d)
	if err := d.Close(); err != nil {
		k.t.Error(err)
	}
	k.kills++
	if r.unfinished() > 0 {
		k.unfinished++
	}
	for _, x := range []struct {
		sum *int
		n   int
	}{
		{&k.found.waiting, r.waiting}, {&k.found.retrying, r.retrying}, {&k.found.withoutText, r.withoutText}, {&k.found.withText, r.withText},
		{&k.found.stopping, r.stopping}, {&k.found.failed, r.failed}, {&k.found.committed, r.committed},
	} {
		if x.n > 0 {
			*x.sum++
		}
	}
	for id, attempt := range r.stopped {
		k.stopped[id] = attempt
	}
	return r
}

// untilPartialText asks a long question and returns when some of its answer is
// stored.
func (k *killer) untilPartialText() {
	in := k.newIntent(intent{session: chat.NewID(), content: "Write. [[tokens 400]] [[rate 200]]"})
	k.post(in, 0)
	if !eventually(func() bool { a := k.status(in); return a == nil || a.Content != "" || !a.State.Live() }) {
		k.t.Errorf("no partial text of %s is stored", in.id)
	}
}

// stopMany has many answers under way and begins to stop all of them at once.
func (k *killer) stopMany() {
	const many = 16
	var asked sync.WaitGroup
	list := make([]*intent, many)
	for i := range list {
		list[i] = k.newIntent(intent{session: chat.NewID(), content: "Write. [[tokens 400]] [[rate 200]]"})
		asked.Go(func() {
			k.post(list[i], 0)
			eventually(func() bool { a := k.status(list[i]); return a == nil || a.State != chat.StatePending })
		})
	}
	asked.Wait()
	for _, in := range list {
		k.stops.Go(func() { k.stop(in, 0) })
	}
}

// settle lets every question come to its end: those of which nobody has heard are
// asked again, with the same id.
func (w *world) settle() {
	w.each(func(in *intent) {
		if !w.wasAccepted(in) {
			if a := w.post(in, 0); a == nil || !a.accepted() {
				w.t.Errorf("asked again, it is not accepted\n%s", w.journal(in))
				return
			}
		}
		if !eventually(func() bool { a := w.status(in); return a == nil || !a.State.Live() }) {
			w.t.Errorf("it does not come to its end\n%s", w.journal(in))
		}
	})
}

// collect asks how every question stands at last.
func (w *world) collect() map[*intent]*told {
	var mu sync.Mutex
	final := map[*intent]*told{}
	w.each(func(in *intent) {
		a := w.status(in)
		mu.Lock()
		defer mu.Unlock()
		final[in] = a
	})
	return final
}

// each calls do with every intent, several at a time.
func (w *world) each(do func(*intent)) {
	var all sync.WaitGroup
	slots := make(chan struct{}, 16)
	for _, in := range w.intents {
		slots <- struct{}{}
		all.Go(func() {
			defer func() { <-slots }()
			do(in)
		})
	}
	all.Wait()
}

func (w *world) wasAccepted(in *intent) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.ContainsFunc(w.notes[in], func(n note) bool { return n.accepted })
}

func (w *world) countNotes() (n int) {
	for _, notes := range w.notes {
		n += len(notes)
	}
	return n
}

// A fate is what the file says of one request at last.
type fate struct {
	rows, questions, answers, charges, marks, snapshots, attempts, seq int64
	state                                                              chat.State
	attempt                                                            int64
	steps                                                              []step // its transitions
}

// A step is a state and the attempt it was entered with.
type step struct {
	state   chat.State
	attempt int64
}

func fates(t testing.TB, d *sql.DB) map[string]*fate {
	t.Helper()
	all := map[string]*fate{}
	rowsOf(t, d, `SELECT c.session_id || ' ' || r.request_id, r.state, r.attempt, r.seq,
		(SELECT count(*) FROM messages m WHERE m.request_id = r.id AND m.role = 'user'),
		(SELECT count(*) FROM messages m WHERE m.request_id = r.id AND m.role = 'assistant'),
		(SELECT count(*) FROM ledger l WHERE l.request_id = r.id AND l.kind = 'charge'),
		(SELECT count(*) FROM processed p WHERE p.request = r.id),
		(SELECT count(*) FROM snapshots s WHERE s.request_id = r.id),
		(SELECT count(*) FROM attempts a WHERE a.request_id = r.id)
		FROM requests r JOIN conversations c ON c.id = r.conversation_id`, func(scan func(...any)) {
		var key string
		f := &fate{}
		scan(&key, &f.state, &f.attempt, &f.seq, &f.questions, &f.answers, &f.charges, &f.marks, &f.snapshots, &f.attempts)
		if g := all[key]; g != nil {
			f = g
		}
		f.rows++
		all[key] = f
	})
	rowsOf(t, d, `SELECT c.session_id || ' ' || r.request_id, t.to_state, t.attempt
		FROM transitions t JOIN requests r ON r.id = t.request_id JOIN conversations c ON c.id = r.conversation_id
		ORDER BY t.request_id, t.n`, func(scan func(...any)) {
		var key string
		var s step
		scan(&key, &s.state, &s.attempt)
		all[key].steps = append(all[key].steps, s)
	})
	return all
}

// judge compares the journal with the file and with what is served at last.
func (w *world) judge(d *sql.DB, final map[*intent]*told, stopped map[string]int64) {
	t := w.t
	t.Helper()
	all := fates(t, d)
	if len(all) != len(w.intents) {
		t.Errorf("%d requests in the file, and clients asked %d", len(all), len(w.intents))
	}
	answered := 0
	for _, in := range w.intents {
		f := all[in.session+" "+in.id]
		if f == nil {
			t.Errorf("not in the file\n%s", w.journal(in))
			continue
		}
		if f.state == chat.StateCommitted {
			answered++
		}
		if wrong := f.wrong(in); wrong != "" {
			t.Errorf("%s: %+v\n%s", wrong, *f, w.journal(in))
		}
		if wrong := changed(w.notes[in], final[in]); wrong != "" {
			t.Errorf("%s\n%s", wrong, w.journal(in))
		}
		if wrong := strayed(w.notes[in], f.steps); wrong != "" {
			t.Errorf("%s; in the file it went %v\n%s", wrong, f.steps, w.journal(in))
		}
		if attempt, ok := stopped[in.id]; ok && f.attempt > attempt && !w.retried[in] {
			t.Errorf("attempt %d was stopped, nobody asked for another, and there were %d\n%s", attempt, f.attempt, w.journal(in))
		}
	}
	if answered == 0 {
		t.Error("nothing was answered")
	}
	w.judgeOrder(all)
	w.judgeCalls(d)
}

// wrong says what one request may not be at last.
func (f *fate) wrong(in *intent) string {
	answer := int64(0)
	if f.state == chat.StateCommitted {
		answer = 1
	}
	question := int64(1)
	if !in.kind.WritesQuestion() {
		question = 0
	}
	switch {
	case f.rows != 1:
		return "it is there more than once"
	case f.state != chat.StateCommitted && f.state != chat.StateFailed:
		return "it has not ended"
	case f.questions != question:
		return "the wrong number of questions"
	case f.answers != answer || f.snapshots != answer || f.charges != answer || f.marks != answer:
		return "not one answer with one snapshot, one charge and one mark, or none of them"
	case f.attempts != f.attempt || f.attempt < answer:
		return "an answer without a recorded call, or a call without a record"
	}
	return ""
}

// changed says which answer a client saw is not the one that is served at last.
func changed(notes []note, final *told) string {
	if final == nil {
		return "nobody says how it stands at last"
	}
	want := final.digest()
	for _, n := range notes {
		if n.message != "" && n.message != want {
			return "the answer has changed, or is lost"
		}
		if n.state.Answered() && n.message == "" {
			return "answered, and no answer given"
		}
	}
	return ""
}

// strayed says where what clients saw is not a walk along steps. Two notes whose
// times overlap may have been true in either order.
func strayed(notes []note, steps []step) string {
	notes = slices.DeleteFunc(slices.Clone(notes), func(n note) bool { return n.state == "" })
	slices.SortFunc(notes, func(a, b note) int { return cmp.Compare(a.began, b.began) })
	at := make([]int, len(notes)) // the earliest step each can have seen
	for i, n := range notes {
		for j := range i {
			if notes[j].ended < n.began {
				at[i] = max(at[i], at[j])
			}
		}
		for at[i] < len(steps) && steps[at[i]] != (step{n.state, n.attempt}) {
			at[i]++
		}
		if at[i] == len(steps) {
			return fmt.Sprintf("a client was told what was not true then: %s", n)
		}
	}
	return ""
}

// judgeOrder: who was told of the acceptance before another began to ask in the
// same conversation comes before it.
func (w *world) judgeOrder(all map[string]*fate) {
	type question struct {
		in   *intent
		told time.Duration // of its acceptance, for the first time
		seq  int64
	}
	conversations := map[string][]question{}
	for _, in := range w.intents {
		f := all[in.session+" "+in.id]
		if f == nil {
			continue
		}
		q := question{in, 1 << 62, f.seq}
		for _, n := range w.notes[in] {
			if n.accepted {
				q.told = min(q.told, n.ended)
			}
		}
		conversations[in.session] = append(conversations[in.session], q)
	}
	for _, list := range conversations {
		for _, a := range list {
			for _, b := range list {
				if a.told < w.asked[b.in] && a.seq > b.seq {
					w.t.Errorf("accepted before the other was asked, and behind it in the conversation:\n%s\n%s", w.journal(a.in), w.journal(b.in))
				}
			}
		}
	}
}

// judgeCalls: the demo model numbers its calls and says the number. No process
// may have made more calls than it recorded attempts, and no call may have
// answered twice.
func (w *world) judgeCalls(d *sql.DB) {
	rowsOf(w.t, d, `SELECT owner, count(*),
		max(coalesce((SELECT CAST(substr(s.upstream_id, 6) AS INTEGER) FROM snapshots s
			WHERE s.request_id = a.request_id AND s.attempt = a.n AND s.upstream_id <> ''), 0)),
		count(s.upstream_id), count(DISTINCT s.upstream_id)
		FROM attempts a LEFT JOIN snapshots s ON s.request_id = a.request_id AND s.attempt = a.n AND s.upstream_id <> ''
		GROUP BY owner`, func(scan func(...any)) {
		var owner string
		var attempts, newest, answers, distinct int
		scan(&owner, &attempts, &newest, &answers, &distinct)
		if newest > attempts {
			w.t.Errorf("process %s called the model %d times and recorded %d", owner, newest, attempts)
		}
		if answers != distinct {
			w.t.Errorf("process %s: %d answers came of %d calls", owner, answers, distinct)
		}
	})
}

// The next process is killed as well while it takes over what the one before
// left, several times in a row.
func TestKillNineDuringRecovery(t *testing.T) {
	rng := randomly(t)
	db := writeConfig(t, killConfig)
	copy := filepath.Join(t.TempDir(), "copy.db")
	w := newWorld(t)
	k := &killer{world: w, rng: rng, db: db, copy: copy, stopped: map[string]int64{}}

	l := serveNow(t, db)
	w.begin(l)
	live := openSQL(t, "file:"+filepath.ToSlash(db)+"?mode=ro&_pragma=busy_timeout(5000)")
	slowest := 20 * time.Millisecond // from launch to ready
	middle, early := 0, 0
	for series := 0; series < 4 || (middle == 0 && series < 60); series++ {
		w.askMany(40)
		before := k.kill(l)
		for range 4 {
			l = launch(t, db)
			time.Sleep(upTo(rng, slowest+slowest/4)) // the moment of the kill
			now := k.kill(l)
			left := false // something that an earlier process owned
			for owner := range now.owners {
				left = left || before.owners[owner]
			}
			switch {
			case left && now.taken > before.taken:
				middle++
			case left:
				early++
			}
			before = now
		}
		started := time.Now()
		l = serveNow(t, db)
		slowest = time.Since(started)
		w.begin(l)
		for owner := range look(t, live).owners {
			if before.owners[owner] {
				t.Errorf("the server serves, and something still belongs to %s, which is dead", owner)
			}
		}
		verifyFile(t, db)
	}
	t.Logf("%d kills, %d of them before anything was taken over, %d in the middle", k.kills, early, middle)
	if middle == 0 {
		t.Error("no kill came in the middle of a recovery, so this proves nothing")
	}
	w.settle()
	final := w.collect()
	l.kill()
	verifyFile(t, db)
	w.judge(openSQL(t, copyDatabase(t, db, copy)), final, k.stopped)
}

// askMany has n answers under way in as many conversations.
func (w *world) askMany(n int) {
	var asked sync.WaitGroup
	for range n {
		in := w.newIntent(intent{session: chat.NewID(), content: "Write. [[tokens 60]] [[rate 60]]"})
		asked.Go(func() {
			w.post(in, 0)
			if !eventually(func() bool { a := w.status(in); return a == nil || a.State != chat.StatePending }) {
				w.t.Errorf("nobody begins to answer\n%s", w.journal(in))
			}
		})
	}
	asked.Wait()
}
