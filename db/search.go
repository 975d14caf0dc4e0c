package db

import (
	"context"
	"errors"
	"math"
	"strconv"

	"semel/search"
)

// A Hit is where a query was found.
type Hit struct {
	Seq     int64 // of the message; 0 is the title
	Snippet []search.Part
}

const (
	// tailLength is how many of the newest messages are read one by one where they
	// are not in the index yet. Normally those are none, or what came this second.
	tailLength = 2000

	// How many candidates one search looks at, and of how many it reads the text,
	// before it gives back what it has, with a next page: a query may be found in
	// everything, or its parts everywhere and nowhere together. What is on earlier
	// pages does not count, or no page would get further than the first.
	maxLooks = 20_000
	maxReads = 1000
)

// A searcher is one search under way.
type searcher struct {
	*conn
	q      search.Query
	list   List
	before int64          // hits from here on are on earlier pages
	taken  map[int64]bool // conversations that were found, on this page or before
	looks  int
	reads  int
	last   int64 // the newest hit that was looked at and is older than all so far
	found  []Listed
	next   string
}

// search looks for conversations whose title or a message of which matches. Those
// with the newest hit come first; of each the newest hit is shown. The index finds
// candidates, package search decides; what is not indexed yet is read. So a message
// is found from the moment it is stored.
func (c *conn) search(user int64, l List) ([]Listed, string, error) {
	s := searcher{conn: c, q: search.Parse(l.Query), list: l, before: math.MaxInt64, taken: map[int64]bool{}}
	if l.Before != "" {
		n, err := strconv.ParseInt(l.Before, 10, 64)
		if err != nil {
			return nil, "", ErrNotFound
		}
		s.before = n
	}
	if s.q.Empty() {
		return nil, "", nil
	}
	var mark int64
	if _, err := c.queryRow(sqlSelectIndexed, nil, &mark); err != nil {
		return nil, "", err
	}
	err := c.query(sqlSearchTail, []any{mark, user, l.Archived, tailLength}, s.look)
	if err == nil {
		err = c.query(sqlSearch, []any{s.q.Expression(user), user, l.Archived}, s.look)
	}
	if err != nil && !errors.Is(err, errEnough) {
		return nil, "", err
	}
	return s.found, s.next, nil
}

// look takes the conversation of one candidate where its text matches. It returns
// errEnough when the page is full.
func (s *searcher) look(r row) error {
	var at, conversation, seq int64
	if err := r.scan(&at, &conversation, &seq); err != nil {
		return err
	}
	taken := s.taken[conversation]
	if at < s.before {
		s.looks++
		if !taken {
			s.reads++
		}
		if s.looks > maxLooks || s.reads > maxReads {
			s.next = strconv.FormatInt(at+1, 10)
			return errEnough
		}
	}
	if taken {
		return nil
	}
	text, sound := "", true
	var err error
	if seq == 0 {
		_, err = s.queryRow(sqlSelectTitle, []any{conversation}, &text)
	} else {
		_, err = s.queryRow(sqlSelectTurn, []any{conversation, seq}, &sound, new(string), &text)
	}
	if err != nil {
		return err
	}
	if !sound {
		return unsound("message", seq)
	}
	snippet, ok := s.q.Snippet(text)
	if !ok {
		return nil
	}
	if len(s.found) == s.list.Limit {
		s.next = strconv.FormatInt(s.last, 10)
		return errEnough
	}
	s.taken[conversation] = true
	if at >= s.before {
		return nil
	}
	v := Listed{Hit: &Hit{Seq: seq, Snippet: snippet}}
	if _, err := s.queryRow(sqlLoadConversation, []any{conversation}, conversationDest(&v.Conversation)...); err != nil {
		return err
	}
	s.found, s.last = append(s.found, v), at
	return nil
}

const (
	sliceMessages = 16     // messages that one slice of the index takes
	sliceBytes    = 32_000 // text after which it takes no more of them
)

// IndexSlice takes the next messages and titles into the search index, one slice a
// call, and reports whether there may be more. Whoever asks or answers meanwhile
// waits for one slice at the most. If we die before its commit, the next call takes
// the same ones.
func (d *DB) IndexSlice(ctx context.Context) (more bool, err error) {
	type entry struct {
		at     int64
		tokens string
	}
	var slice []entry
	var mark int64
	size := 0
	err = d.readOne(ctx, func(c *conn) error {
		return c.query(sqlSelectUnindexed, []any{sliceMessages}, func(r row) error {
			var at, user int64
			var text string
			if err := r.scan(&at, &mark, &user, &text); err != nil {
				return err
			}
			slice = append(slice, entry{at, search.Tokens(user, text)})
			if size += len(text); size >= sliceBytes {
				return errEnough
			}
			return nil
		})
	})
	if err != nil && !errors.Is(err, errEnough) || len(slice) == 0 {
		return false, err
	}
	err = d.write(ctx, func(tx *Tx) error {
		n, err := tx.exec(sqlMoveIndexed, slice[len(slice)-1].at, mark)
		if err != nil || n == 0 { // another call took them
			return err
		}
		for _, e := range slice {
			if _, err := tx.exec(sqlIndex, e.at, e.tokens); err != nil {
				return err
			}
		}
		return nil
	})
	return len(slice) == sliceMessages || size >= sliceBytes, err
}

const (
	sqlSelectIndexed = `SELECT indexed_tx FROM instance`

	sqlMoveIndexed = `UPDATE instance SET indexed_tx = ? WHERE indexed_tx = ?`

	sqlSelectUnindexed = `SELECT m.tx, (SELECT indexed_tx FROM instance), c.user_id, coalesce(m.content, s.content)
		FROM messages m JOIN conversations c ON c.id = m.conversation_id
		LEFT JOIN snapshots s ON s.request_id = m.request_id AND m.role = 'assistant' WHERE m.tx > (SELECT indexed_tx FROM instance)
		UNION ALL SELECT named_tx, (SELECT indexed_tx FROM instance), user_id, title FROM conversations
		WHERE named_tx > 0 AND named_tx > (SELECT indexed_tx FROM instance)
		ORDER BY 1 LIMIT ?`

	// Unless it was purged, or named anew, since it was read.
	sqlIndex = `INSERT INTO search (rowid, tokens) SELECT ?1, ?2 WHERE EXISTS (SELECT 1 FROM messages WHERE tx = ?1)
		OR EXISTS (SELECT 1 FROM conversations WHERE named_tx = ?1 AND named_tx > 0)`

	sqlUnindexMessages = `DELETE FROM search WHERE rowid IN (SELECT tx FROM messages WHERE conversation_id = ? AND seq BETWEEN ? AND ? AND request_id = ?)`

	sqlUnindexTitle = `DELETE FROM search WHERE rowid = (SELECT named_tx FROM conversations WHERE id = ? AND named_tx > 0)`

	// In the order of the index, which is that of time, so that it can stop where
	// the page is full.
	sqlSearch = `SELECT s.rowid, c.id, coalesce(m.seq, 0) FROM search s LEFT JOIN messages m ON m.tx = s.rowid
		LEFT JOIN conversations t ON t.named_tx = s.rowid AND t.named_tx > 0
		CROSS JOIN conversations c ON c.id = coalesce(m.conversation_id, t.id)
		WHERE s.search MATCH ? AND c.user_id = ? AND c.deleted_at IS NULL AND (c.archived_at IS NOT NULL) = ? ORDER BY s.rowid DESC`

	sqlSearchTail = `SELECT m.tx, m.conversation_id, m.seq FROM messages m JOIN conversations c ON c.id = m.conversation_id
		WHERE m.tx > ?1 AND c.user_id = ?2 AND c.deleted_at IS NULL AND (c.archived_at IS NOT NULL) = ?3
		UNION ALL SELECT named_tx, id, 0 FROM conversations
		WHERE named_tx > 0 AND named_tx > ?1 AND user_id = ?2 AND deleted_at IS NULL AND (archived_at IS NOT NULL) = ?3
		ORDER BY 1 DESC LIMIT ?4`

	sqlSelectTitle = `SELECT title FROM conversations WHERE id = ?`

	sqlLoadConversation = sqlConversationColumns + ` WHERE c.id = ?`
)
