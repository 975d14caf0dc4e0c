package handlers

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/go-chi/chi/v5"

	"semel/chat"
	"semel/db"
)

// A conversationJSON is a conversation in the API.
type conversationJSON struct {
	ID           string          `json:"id"`
	Title        string          `json:"title"`
	Named        bool            `json:"named"` // a person gave the title
	Pinned       bool            `json:"pinned"`
	Archived     bool            `json:"archived"`
	Running      bool            `json:"running"` // an answer is on its way
	News         bool            `json:"news"`    // one has come, or failed to, and nobody has looked
	Model        string          `json:"model"`
	SystemPrompt string          `json:"systemPrompt"`
	Params       json.RawMessage `json:"params"`
	Head         string          `json:"head"`
	CreatedAt    chat.Stamp      `json:"createdAt"`
	UpdatedAt    chat.Stamp      `json:"updatedAt"`
}

func conversationOf(c chat.Conversation) conversationJSON {
	return conversationJSON{
		ID: c.SessionID, Title: c.Title, Named: c.Named, Pinned: c.Pinned, Archived: !c.ArchivedAt.IsZero(), Running: c.Running, News: c.News, Model: c.Model, SystemPrompt: c.SystemPrompt,
		Params: json.RawMessage(c.Params), Head: chat.MessageID(c.SessionID, c.HeadSeq),
		CreatedAt: chat.Stamp{Time: c.CreatedAt}, UpdatedAt: chat.Stamp{Time: c.UpdatedAt},
	}
}

// A messageJSON is a message of the visible branch with its sibling counts.
type messageJSON struct {
	chat.RecordMessage
	RequestID   string            `json:"requestId"`
	Model       string            `json:"model,omitempty"`
	Sibling     int               `json:"sibling"`               // which of them this is, from 1
	Siblings    []string          `json:"siblings"`              // ids of all messages with this parent and role
	Attachments []chat.Attachment `json:"attachments,omitempty"` // of a question
}

// A threadJSON is one conversation, of one moment.
type threadJSON struct {
	conversationJSON
	Messages []messageJSON `json:"messages"`
	Requests []chat.Record `json:"requests"` // without an answer: failed, running, waiting
	Cursor   string        `json:"cursor"`   // where the stream of the running one goes on
}

func (s *server) threadOf(t db.Thread) threadJSON {
	out := threadJSON{conversationJSON: conversationOf(t.Conversation), Messages: []messageJSON{}, Requests: []chat.Record{}, Cursor: t.Cursor}
	session := t.Conversation.SessionID
	for _, m := range t.Messages {
		j := messageJSON{
			RecordMessage: chat.RecordMessage{
				ID: chat.MessageID(session, m.Seq), Seq: m.Seq, ParentID: chat.MessageID(session, m.ParentSeq),
				Role: m.Role, Content: m.Content, Reasoning: m.Reasoning, Finish: m.Finish, CreatedAt: chat.Stamp{Time: m.CreatedAt},
			},
			RequestID: m.RequestID, Siblings: []string{}, Attachments: m.Attachments,
		}
		if m.Role == "assistant" {
			j.Model = m.Model
		}
		for i, seq := range m.Siblings {
			j.Siblings = append(j.Siblings, chat.MessageID(session, seq))
			if seq == m.Seq {
				j.Sibling = i + 1
			}
		}
		out.Messages = append(out.Messages, j)
	}
	for _, rec := range t.Requests {
		out.Requests = append(out.Requests, s.priced(rec))
	}
	return out
}

// A listedJSON is a conversation in a list.
type listedJSON struct {
	conversationJSON
	Hit *hitJSON `json:"hit,omitempty"`
}

// A hitJSON is where a query was found. Its parts in order are the snippet: text,
// never HTML.
type hitJSON struct {
	MessageID string     `json:"messageId"` // "" is the title
	Seq       int64      `json:"seq"`
	Snippet   []partJSON `json:"snippet"`
}

type partJSON struct {
	Text string `json:"text"`
	Hit  bool   `json:"hit,omitempty"`
}

func listedOf(c db.Listed) listedJSON {
	out := listedJSON{conversationJSON: conversationOf(c.Conversation)}
	if c.Hit == nil {
		return out
	}
	out.Hit = &hitJSON{Seq: c.Hit.Seq, Snippet: []partJSON{}}
	if c.Hit.Seq != 0 {
		out.Hit.MessageID = chat.MessageID(c.SessionID, c.Hit.Seq)
	}
	for _, p := range c.Hit.Snippet {
		out.Hit.Snippet = append(out.Hit.Snippet, partJSON(p))
	}
	return out
}

const (
	defaultPage = 50
	largestPage = 200
	longQuery   = 256 // bytes
)

// list reads which conversations a URL asks for.
func (s *server) list(r *http.Request) (db.List, error) {
	q := r.URL.Query()
	l := db.List{Query: q.Get("q"), Before: q.Get("before"), Limit: defaultPage}
	if v := q.Get("limit"); v != "" {
		n, err := strconv.Atoi(v)
		if err != nil || n < 1 || n > largestPage {
			return l, badRequest(fmt.Sprintf("limit goes from 1 to %d.", largestPage))
		}
		l.Limit = n
	}
	if len(l.Query) > longQuery || strings.ContainsRune(l.Query, 0) {
		return l, badRequest(fmt.Sprintf("q has %d bytes at most, and no NUL.", longQuery))
	}
	switch v := q.Get("archived"); v {
	case "", "0":
	case "1":
		l.Archived = true
	default:
		return l, badRequest("archived is 0 or 1.")
	}
	return l, nil
}

func (s *server) listConversations(w http.ResponseWriter, r *http.Request) error {
	l, err := s.list(r)
	if err != nil {
		return err
	}
	list, next, err := s.DB.Conversations(r.Context(), s.user(r), l)
	if err != nil {
		return err
	}
	news, err := s.DB.News(r.Context(), s.user(r))
	if err != nil {
		return err
	}
	out := []listedJSON{}
	for _, c := range list {
		out = append(out, listedOf(c))
	}
	s.writeJSON(w, http.StatusOK, map[string]any{"conversations": out, "next": next, "news": news})
	return nil
}

// session reads the conversation id from the path.
func session(r *http.Request) (string, error) {
	id, err := chat.ParseID(chi.URLParam(r, "sessionID"))
	if err != nil {
		return "", refuse(http.StatusBadRequest, "session_invalid", chat.RetryNever, err.Error()+".")
	}
	return id, nil
}

func (s *server) thread(r *http.Request) (db.Thread, error) {
	id, err := session(r)
	if err != nil {
		return db.Thread{}, err
	}
	return s.DB.Thread(r.Context(), s.user(r), id)
}

func (s *server) getConversation(w http.ResponseWriter, r *http.Request) error {
	t, err := s.thread(r)
	if err != nil {
		return err
	}
	s.writeJSON(w, http.StatusOK, s.threadOf(t))
	return nil
}

func (s *server) patchConversation(w http.ResponseWriter, r *http.Request) error {
	id, err := session(r)
	if err != nil {
		return err
	}
	var body struct {
		Title        *string          `json:"title"`
		Named        *bool            `json:"named"` // false: its title is that of its first question again
		Pinned       *bool            `json:"pinned"`
		Archived     *bool            `json:"archived"`
		Seen         bool             `json:"seen"` // a person looks at it
		Model        *string          `json:"model"`
		SystemPrompt *string          `json:"systemPrompt"`
		Params       *json.RawMessage `json:"params"`
		Head         *string          `json:"head"`
	}
	if err := s.readJSON(w, r, &body); err != nil {
		return err
	}
	p := db.ConversationPatch{
		Title: body.Title, Pinned: body.Pinned, Archived: body.Archived, Seen: body.Seen, Model: body.Model, SystemPrompt: body.SystemPrompt,
	}
	if p.Title != nil {
		title, err := parseTitle(*p.Title)
		if err != nil {
			return err
		}
		p.Title = &title
	}
	if body.Named != nil {
		if *body.Named || p.Title != nil {
			return badRequest("named can be false, without a title: then its first question gives it one.")
		}
		p.FirstWords = true
	}
	if err := s.checkSetup(p.Model, p.SystemPrompt); err != nil {
		return err
	}
	if body.Params != nil {
		params, err := parseParams(*body.Params)
		if err != nil {
			return err
		}
		if params == "" {
			params = "{}"
		}
		p.Params = &params
	}
	if body.Head != nil {
		seq, ok := chat.ParseMessageID(id, *body.Head)
		if !ok {
			return badRequest("head names no message of this conversation.")
		}
		p.Head = &seq
	}
	c, err := s.DB.PatchConversation(r.Context(), s.user(r), id, p)
	if err != nil {
		return err
	}
	s.Engine.Changed(s.user(r), id)
	s.writeJSON(w, http.StatusOK, conversationOf(c))
	return nil
}

// parseTitle puts a title on one line.
func parseTitle(text string) (string, error) {
	title := strings.Join(strings.Fields(text), " ")
	if title == "" || len(title) > 256 {
		return "", badRequest("A title has 1 to 256 bytes.")
	}
	return title, nil
}

func (s *server) deleteConversation(w http.ResponseWriter, r *http.Request) error {
	id, err := session(r)
	if err != nil {
		return err
	}
	if err := s.Engine.DeleteConversation(r.Context(), s.user(r), id); err != nil {
		return err
	}
	// Of a repeat, too: when the first deletion was.
	until, err := s.DB.UndoUntil(r.Context(), s.user(r), id)
	if err != nil {
		return err
	}
	s.writeJSON(w, http.StatusOK, map[string]any{"id": id, "undoUntil": chat.Stamp{Time: until}})
	return nil
}

func (s *server) restoreConversation(w http.ResponseWriter, r *http.Request) error {
	id, err := session(r)
	if err != nil {
		return err
	}
	c, err := s.DB.RestoreConversation(r.Context(), s.user(r), id)
	if err != nil {
		return err
	}
	s.Engine.Changed(s.user(r), id)
	s.writeJSON(w, http.StatusOK, conversationOf(c))
	return nil
}

func (s *server) hasModel(name string) bool {
	for _, m := range s.Engine.Models() {
		if m.Name == name {
			return true
		}
	}
	return false
}
