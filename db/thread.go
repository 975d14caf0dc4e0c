package db

import (
	"context"
	"slices"
	"time"

	"semel/chat"
)

// A Thread is one conversation as it stands at one moment: what a page shows,
// and where its stream goes on.
type Thread struct {
	Conversation chat.Conversation
	Messages     []chat.Message // of the branch, first to last
	// Requests are those that have no answer: failed ones of the branch, the one
	// that runs, and those that wait, in order.
	Requests []chat.Record
	// Coming names the request whose answer this branch leads to and that has no
	// place in Messages yet: an edit, another answer or more of one. "" for none.
	Coming string
	// Beside are the numbers of the answers in whose place that answer will stand.
	Beside []int64
	// End is the number of the last message of the branch that has its place.
	End int64
	// Aside says that the next question would not follow this branch.
	Aside bool
	// Cursor is the event id up to which the running answer is in Requests, ""
	// when nothing runs.
	Cursor string
}

// Thread returns a conversation of a user from one read transaction, on the branch
// that its next question follows. Errors: ErrNotFound, ErrGone.
func (d *DB) Thread(ctx context.Context, user int64, session string) (Thread, error) {
	return d.ThreadAt(ctx, user, session, 0)
}

// ThreadAt is Thread on the branch through the message with number at, down to the
// newest message below it; 0 is the branch that the next question follows. Errors:
// ErrNotFound, also when there is no such message, and ErrGone.
func (d *DB) ThreadAt(ctx context.Context, user int64, session string, at int64) (t Thread, err error) {
	err = d.read(ctx, func(c *conn) (err error) {
		t, err = c.thread(user, session, at)
		return err
	})
	return t, err
}

// A turn is a message and what its request says of it.
type turn struct {
	chat.Message
	request int64
	state   chat.State
	placed  bool
	asked   bool // for actions
}

// A tree is all messages of a conversation.
type tree struct {
	turns    map[int64]*turn
	children map[int64][]int64 // in order of their numbers
	open     []chat.Request    // without an answer, in order
}

func (c *conn) thread(user int64, session string, at int64) (t Thread, err error) {
	if t.Conversation, err = c.conversation(user, session); err != nil {
		return t, err
	}
	tr, err := c.tree(t.Conversation.ID)
	if err != nil {
		return t, err
	}
	end, coming := tr.standing(t.Conversation.HeadSeq)
	if at != 0 {
		asked, other, ok := tr.through(at)
		if !ok {
			return t, ErrNotFound
		}
		t.Aside = asked != end || other != coming
		end, coming = asked, other
	}
	t.End = end
	t.Messages = tr.branch(end)
	for i := range t.Messages {
		if m := tr.turns[t.Messages[i].Seq]; m.asked {
			if t.Messages[i].Effects, err = c.effects(m.request); err != nil {
				return t, err
			}
		}
	}
	return t, c.addUnanswered(&t, tr, coming)
}

func (c *conn) tree(conversation int64) (tree, error) {
	tr := tree{turns: map[int64]*turn{}, children: map[int64][]int64{}}
	err := c.query(sqlSelectThread, []any{conversation}, func(r row) error {
		m := &turn{}
		var thought int64
		var sound bool
		if err := r.scan(&sound, &m.Seq, &m.Role, &m.ParentSeq, &m.Content, &m.Reasoning, &m.Finish, &m.Model, &m.CreatedAt,
			&m.RequestID, &m.request, &m.state, &m.placed, &m.ContextDropped, &m.Usage.InputTokens, &m.Usage.CachedTokens,
			&m.Usage.OutputTokens, &m.Usage.Estimated, &thought, &m.Attempts, &m.Micros, &m.Absorbed, &m.Imported, &m.asked); err != nil {
			return err
		}
		if !sound {
			return unsound("message of request", m.RequestID)
		}
		m.Thought = time.Duration(thought) * time.Millisecond
		tr.turns[m.Seq] = m
		if m.placed {
			tr.children[m.ParentSeq] = append(tr.children[m.ParentSeq], m.Seq)
		}
		return nil
	})
	if err != nil {
		return tr, err
	}
	err = c.query(sqlSelectCarried, []any{conversation}, func(r row) error {
		seq, a, err := scanCarried(r)
		if m := tr.turns[seq]; m != nil {
			m.Attachments = append(m.Attachments, a)
		}
		return err
	})
	if err != nil {
		return tr, err
	}
	err = c.query(sqlSelectUnanswered, []any{conversation}, func(row row) error {
		var r chat.Request
		err := row.scan(append(requestDest(&r), new(bool))...)
		tr.open = append(tr.open, r)
		return err
	})
	return tr, err
}

// standing is where the branch ends that the next question follows: at the head,
// or where the newest answer is still to come that will move the head.
func (tr tree) standing(head int64) (end int64, coming string) {
	for _, r := range slices.Backward(tr.open) {
		waits := r.State.Live() || !r.Placed && r.Kind.WritesQuestion()
		if r.Kind != chat.KindMessage && waits {
			return tr.leadsTo(r)
		}
	}
	return head, ""
}

// leadsTo is where the branch of a request without an answer ends.
func (tr tree) leadsTo(r chat.Request) (end int64, coming string) {
	if r.Kind.WritesQuestion() && r.Placed {
		return r.Seq, ""
	}
	return r.ParentSeq, r.Key.RequestID
}

// through is where the newest branch ends that leads through a message, or to an
// answer that is still to come.
func (tr tree) through(at int64) (end int64, coming string, ok bool) {
	for _, r := range tr.open {
		if AnswerSeq(r) == at && r.State.Live() || r.Seq == at && !r.Placed && r.Kind == chat.KindEdit {
			end, coming = tr.leadsTo(r)
			return end, coming, true
		}
	}
	if m := tr.turns[at]; m == nil || !m.placed {
		return 0, "", false
	}
	return tr.newest(at), "", true
}

// newest returns the newest message at or below a message. A parent has a smaller
// number than its children, so the greatest number is it.
func (tr tree) newest(at int64) int64 {
	found := at
	for todo := []int64{at}; len(todo) > 0; {
		seq := todo[len(todo)-1]
		todo = append(todo[:len(todo)-1], tr.children[seq]...)
		found = max(found, seq)
	}
	return found
}

// branch returns the messages from the first one to end.
func (tr tree) branch(end int64) (list []chat.Message) {
	below := "" // the role of the message under this one
	for at := end; at != 0 && tr.turns[at] != nil; at = tr.turns[at].ParentSeq {
		m := tr.turns[at].Message
		if m.Role == "user" && below == "user" {
			// Asked again after the branch went on: its answer hangs under it, beside
			// what followed.
			if late := tr.siblings(m.Seq, "assistant"); len(late) > 0 {
				list = append(list, tr.told(tr.turns[late[len(late)-1]].Message))
			}
		}
		below = m.Role
		list = append(list, tr.told(m))
	}
	slices.Reverse(list)
	return list
}

// told returns a message with what stands beside it.
func (tr tree) told(m chat.Message) chat.Message {
	m.Siblings = tr.siblings(m.ParentSeq, m.Role)
	for _, r := range tr.open {
		if m.Role == "assistant" && !r.Kind.WritesQuestion() && r.State.Live() && r.ParentSeq == m.ParentSeq {
			m.Coming = append(m.Coming, r.Seq)
		}
	}
	return m
}

// siblings are the messages of one role under one parent: an answer that is
// continued has an answer under it, which is no sibling of a question there.
func (tr tree) siblings(parent int64, role string) (list []int64) {
	for _, s := range tr.children[parent] {
		if tr.turns[s].Role == role {
			list = append(list, s)
		}
	}
	return list
}

// addUnanswered adds the requests without an answer that the branch shows: those
// whose own question, or whose parent, is on it, and those that wait for their
// place after it.
func (c *conn) addUnanswered(t *Thread, tr tree, coming string) error {
	onBranch := map[int64]bool{}
	for _, m := range t.Messages {
		onBranch[m.Seq] = true
	}
	t.Coming = coming
	first := int64(0) // the number after which requests follow this branch
	for _, r := range tr.open {
		if r.Key.RequestID == coming {
			first = r.Seq
		}
	}
	for _, r := range tr.open {
		mine := r.Key.RequestID == coming
		waits := !r.Placed && !t.Aside && r.Kind == chat.KindMessage && r.Seq > first
		if !mine && !waits && !onBranch[r.Seq] && (r.Kind.WritesQuestion() || !onBranch[r.ParentSeq]) {
			continue
		}
		rec, err := c.record(r)
		if err != nil {
			return err
		}
		t.Requests = append(t.Requests, rec)
		if r.State == chat.StateGenerating {
			t.Cursor = EventID(r.Attempt, len(rec.Content))
		}
		if mine && !r.Kind.WritesQuestion() {
			t.Beside = tr.siblings(r.ParentSeq, "assistant")
		}
		if (mine || waits) && r.Kind.WritesQuestion() {
			m := tr.turns[r.Seq].Message
			if m.Siblings = []int64{r.Seq}; r.Kind == chat.KindEdit {
				m.Siblings = append(tr.siblings(r.ParentSeq, "user"), r.Seq)
			}
			t.Messages = append(t.Messages, m)
		}
	}
	return nil
}

const (
	sqlSelectThread = `SELECT ` + sqlSoundMessage + `, m.seq, m.role,
		CASE WHEN ` + sqlAnswersQuestion + ` THEN r.seq ELSE r.parent_seq END,
		coalesce(m.content, s.content), s.reasoning, s.finish, r.model, m.created_at, r.request_id, r.id, r.state, r.placed, r.context_dropped,
		coalesce(s.input_tokens, 0), coalesce(s.cached_tokens, 0), coalesce(s.output_tokens, 0), coalesce(s.estimated, 0),
		coalesce(s.thought_ms, 0), r.attempt,
		CASE WHEN m.role = 'assistant' THEN coalesce((SELECT l.micros FROM ledger l WHERE l.request_id = r.id AND l.kind = 'charge'), 0) ELSE 0 END,
		CASE WHEN m.role = 'assistant' THEN (SELECT count(*) FROM arrivals a WHERE a.request_id = r.id AND a.decision IN ('joined', 'replayed')) ELSE 0 END,
		CASE WHEN m.role = 'assistant' THEN (SELECT a.reason = 'imported' FROM attempts a WHERE a.request_id = r.id AND a.n = r.attempt) ELSE 0 END,
		s.declarations_id IS NOT NULL
		FROM messages m JOIN requests r ON r.id = m.request_id
		LEFT JOIN snapshots s ON s.request_id = m.request_id AND m.role = 'assistant'
		WHERE m.conversation_id = ? ORDER BY m.seq`

	// Unanswered requests of a conversation: with a question they are found
	// through it, without one through their own index.
	sqlSelectUnanswered = sqlRequestColumns + ` WHERE r.id IN (
		SELECT m.request_id FROM messages m WHERE m.conversation_id = ?1 AND m.role = 'user'
		UNION SELECT w.id FROM requests w WHERE w.conversation_id = ?1 AND w.kind IN ('regenerate', 'continue'))
		AND r.state IN ('pending', 'generating', 'failed') ORDER BY r.seq`
)
