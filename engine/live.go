package engine

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"semel/chat"
)

// A Live is a request that waits for its answer, as the engine sees it. Any
// number of viewers share its text: one append-only buffer an attempt, each
// viewer with its own cursor, so that a slow one costs nobody else anything.
type Live struct {
	mu        sync.Mutex
	request   *chat.Request // as last stored; replaced, never changed
	text      []byte        // of the current attempt; only ever appended to
	reasoning []byte        // likewise
	sealed    bool          // the call has ended: what a client still says is not heard
	over      bool          // no longer waiting: read the database
	frame     *Frame        // of this buffer
	changed   chan struct{} // closed and replaced when viewers are woken
	viewed    bool          // somebody holds changed
	wokenAt   time.Time     // when text of this buffer last woke the viewers
	pace      *time.Timer   // wakes viewers of text that came soon after; nil before the first time
	paced     bool          // pace runs
	done      chan struct{} // closed when over
	cancel    context.CancelCauseFunc
	early     int64         // the attempt that was stopped before it began
	earlyWhy  error         // why
	begunAt   time.Time     // when this attempt began
	firstAt   time.Time     // first piece of this attempt
	textAt    time.Time     // first piece of it that is text
	lastAt    time.Time     // last sign of life, or the dispatch
	beatAt    time.Time     // last proof of life of the worker; monotonic
	restarted *chat.Request // under Engine.mu: it is pending again, track it when this is released
}

// A View is a Live at one moment. What it points to may be read but not changed.
type View struct {
	Request         *chat.Request
	Text, Reasoning []byte
	Frame           *Frame // of Text
	Over            bool
	Changed         <-chan struct{} // closed after the next change
}

// wakeEvery is how long text gathers before it wakes the viewers again: at 40
// tokens a second three share one write to each of them. What comes after a pause
// wakes them at once, and so does all that is not text.
const wakeEvery = 75 * time.Millisecond

// A Frame holds the newest piece of a text as a stream sends it, so that of the
// viewers that are equally far only the first encodes it. It belongs to one
// buffer: of that, a piece is known by where it begins and ends.
type Frame struct{ last atomic.Pointer[piece] }

type piece struct {
	from, to int
	encoded  []byte
}

// Encoded returns what encode returns for the text between from and to, which it
// may have returned to another viewer: nobody may change it, and appending to it
// copies it.
func (f *Frame) Encoded(from, to int, encode func() []byte) []byte {
	if p := f.last.Load(); p != nil && p.from == from && p.to == to {
		return p.encoded
	}
	p := &piece{from, to, slices.Clip(encode())}
	f.last.Store(p)
	return p.encoded
}

func newLive(r chat.Request) *Live {
	return &Live{request: &r, frame: &Frame{}, changed: make(chan struct{}), done: make(chan struct{})}
}

// View returns how it stands now.
func (l *Live) View() View {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.viewed = true
	return View{
		Request: l.request, Over: l.over, Frame: l.frame, Changed: l.changed,
		Text:      l.text[:len(l.text):len(l.text)],
		Reasoning: l.reasoning[:len(l.reasoning):len(l.reasoning)],
	}
}

// notify wakes the viewers. l.mu is held.
func (l *Live) notify() {
	if l.viewed {
		close(l.changed)
		l.changed = make(chan struct{})
		l.viewed = false
	}
}

// notifyOfText wakes the viewers now, or when text has gathered for long enough,
// all at the same moment: then they are equally far. l.mu is held.
func (l *Live) notifyOfText(now time.Time) {
	gathered := now.Sub(l.wokenAt)
	switch {
	case l.paced:
	case gathered >= wakeEvery:
		l.wokenAt = now
		l.notify()
	case l.pace == nil:
		l.pace = time.AfterFunc(wakeEvery-gathered, l.wake)
		l.paced = true
	default:
		l.pace.Reset(wakeEvery - gathered)
		l.paced = true
	}
}

func (l *Live) wake() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.paced { // else it was set for the text of another attempt
		l.paced = false
		l.wokenAt = time.Now()
		l.notify()
	}
}

// begin starts the buffers of a new attempt, and cancels it at once when it was
// stopped between its claim and now.
func (l *Live) begin(r chat.Request, cancel context.CancelCauseFunc) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.request, l.cancel = &r, cancel
	if l.early == r.Attempt {
		cancel(l.earlyWhy)
	}
	l.text, l.reasoning, l.frame, l.wokenAt, l.sealed = nil, nil, &Frame{}, time.Time{}, false
	l.paced = false
	l.firstAt, l.textAt = time.Time{}, time.Time{}
	l.begunAt = time.Now()
	l.lastAt, l.beatAt = l.begunAt, l.begunAt
	l.notify()
}

// add appends a piece of the given attempt; one of an attempt that is over is
// dropped.
func (l *Live) add(attempt int64, text, reasoning string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.over || l.sealed || l.request.Attempt != attempt || l.request.State != chat.StateGenerating {
		return
	}
	now := time.Now()
	l.lastAt = now
	if text == "" && reasoning == "" {
		return // a sign of life
	}
	if l.firstAt.IsZero() {
		l.firstAt = now
	}
	if text != "" && l.textAt.IsZero() {
		l.textAt = now
	}
	l.text = append(l.text, text...)
	l.reasoning = append(l.reasoning, reasoning...)
	l.notifyOfText(now)
}

// thought returns how long the current attempt reasoned before its first word, 0
// when it did not.
func (l *Live) thought() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case len(l.reasoning) == 0:
		return 0
	case l.textAt.IsZero():
		return time.Since(l.begunAt)
	}
	return l.textAt.Sub(l.begunAt)
}

// firstToken is how long the first piece of this attempt took; 0 where none came.
func (l *Live) firstToken() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.firstAt.IsZero() || l.begunAt.IsZero() {
		return 0
	}
	return max(l.firstAt.Sub(l.begunAt), time.Nanosecond)
}

// seal ends the text of the given attempt: what is decided about it and what
// viewers have seen stay the same.
func (l *Live) seal(attempt int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.request.Attempt == attempt {
		l.sealed = true
	}
}

// update stores how the request stands now; over ends it for all viewers.
func (l *Live) update(r chat.Request, over bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if r.Attempt < l.request.Attempt {
		return // late word of a worker that was fenced
	}
	l.request = &r
	if over && !l.over {
		l.over = true
		close(l.done)
	}
	l.notify()
}

// stop cancels the call of the given attempt, also when its claim is stored and
// its worker has not begun.
func (l *Live) stop(attempt int64, cause error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case attempt > l.request.Attempt, attempt == l.request.Attempt && l.cancel == nil:
		l.early, l.earlyWhy = attempt, cause
	case attempt == l.request.Attempt:
		l.cancel(cause)
	}
}

func (l *Live) beat() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.beatAt = time.Now()
}

// attempt returns the attempt of the request as last stored.
func (l *Live) attempt() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.request.Attempt
}

// silence returns how long the worker has given no sign of life, and the request
// it holds.
func (l *Live) silence() (time.Duration, chat.Request) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return time.Since(l.beatAt), *l.request
}

// Live returns the request with this internal id while it waits for its answer,
// and nil when it does not: then the database has what there is.
func (e *Engine) Live(id int64) *Live {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.lives[id]
}

// Wait returns when the request with this internal id no longer waits for its
// answer, or when ctx ends.
func (e *Engine) Wait(ctx context.Context, id int64) error {
	l := e.Live(id)
	if l == nil {
		return nil
	}
	select {
	case <-l.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
