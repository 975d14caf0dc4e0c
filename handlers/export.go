package handlers

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"time"

	"semel/chat"
	"semel/db"
)

// The format of an exported conversation, which docs/export-format.md describes. A
// reader refuses a greater version.
const (
	formatOne     = "semel.conversation"
	formatMany    = "semel.conversations"
	formatVersion = 1
)

// An archiveJSON is a conversation with every branch. Its bytes follow from what it
// says: fields have one order, messages that of their numbers.
type archiveJSON struct {
	Format       string               `json:"format"`
	Version      int                  `json:"version"`
	Conversation archivedConversation `json:"conversation"`
	Messages     []archivedMessage    `json:"messages"`
}

type archivedConversation struct {
	ID           string          `json:"id"`
	Title        string          `json:"title"`
	Named        bool            `json:"named"`
	Pinned       bool            `json:"pinned"`
	Archived     bool            `json:"archived"`
	Model        string          `json:"model"`
	SystemPrompt string          `json:"systemPrompt"`
	Params       json.RawMessage `json:"params"`
	Head         string          `json:"head"`
	CreatedAt    chat.Stamp      `json:"createdAt"`
	UpdatedAt    chat.Stamp      `json:"updatedAt"`
}

// An archivedMessage is a question, an answer, or in the place of an answer what
// became of it.
type archivedMessage struct {
	ID        string         `json:"id"`
	ParentID  string         `json:"parentId"`
	Role      string         `json:"role"`
	Kind      chat.Kind      `json:"kind,omitempty"` // of the first message of a request
	RequestID string         `json:"requestId"`
	Model     string         `json:"model,omitempty"`
	Content   string         `json:"content"`
	Reasoning string         `json:"reasoning,omitempty"`
	Finish    chat.Finish    `json:"finish,omitempty"`
	Error     *archivedError `json:"error,omitempty"` // there is no answer; content is what had come
	Usage     *chat.Usage    `json:"usage,omitempty"`
	ThoughtMS int64          `json:"thoughtMs,omitempty"`
	CreatedAt *chat.Stamp    `json:"createdAt,omitempty"`
	// Attachments are what a question carries.
	Attachments []archivedAttachment `json:"attachments,omitempty"`
}

// An archivedAttachment names one of the files of the conversation.
type archivedAttachment struct {
	Name   string `json:"name"`
	SHA256 string `json:"sha256"`
}

// An archivedFile is there once, however many questions carry it. Texts are as they
// are, images in base64.
type archivedFile struct {
	SHA256    string `json:"sha256"`
	MediaType string `json:"mediaType"`
	Text      string `json:"text,omitempty"`
	Base64    []byte `json:"base64,omitempty"`
}

type archivedError struct {
	Code    string       `json:"code"`
	Outcome chat.Outcome `json:"outcome"`
	Detail  string       `json:"detail"`
}

func archiveOf(a db.Archive) archiveJSON {
	c := a.Conversation
	session := c.SessionID
	out := archiveJSON{Format: formatOne, Version: formatVersion, Messages: []archivedMessage{}, Conversation: archivedConversation{
		ID: session, Title: c.Title, Named: c.Named, Pinned: c.Pinned, Archived: !c.ArchivedAt.IsZero(), Model: c.Model, SystemPrompt: c.SystemPrompt,
		Params: json.RawMessage(c.Params), Head: chat.MessageID(session, c.HeadSeq),
		CreatedAt: chat.Stamp{Time: c.CreatedAt}, UpdatedAt: chat.Stamp{Time: c.UpdatedAt},
	}}
	for _, t := range a.Turns {
		m := archivedMessage{
			ID: chat.MessageID(session, t.Seq), ParentID: chat.MessageID(session, t.ParentSeq), Role: "assistant", Kind: t.Kind, RequestID: t.RequestID,
		}
		if t.Kind.WritesQuestion() {
			m.Role, m.Content, m.CreatedAt = "user", t.Question, &chat.Stamp{Time: t.AskedAt}
			for _, f := range t.Attachments {
				m.Attachments = append(m.Attachments, archivedAttachment{f.Name, f.SHA256})
			}
			out.Messages = append(out.Messages, m)
			m = archivedMessage{ID: chat.MessageID(session, t.Seq+1), ParentID: m.ID, Role: "assistant", RequestID: t.RequestID}
		}
		m.Model, m.Content, m.Reasoning = t.Model, t.Content, t.Reasoning
		if t.Answered() {
			m.Finish, m.Usage, m.ThoughtMS, m.CreatedAt = t.Finish, &t.Usage, t.Thought.Milliseconds(), &chat.Stamp{Time: t.AnsweredAt}
		} else {
			m.Error = &archivedError{t.Failure.Code, t.Failure.Outcome, t.Failure.Detail}
		}
		out.Messages = append(out.Messages, m)
	}
	return out
}

// exportConversation gives one conversation as a file: all of it as JSON, or the
// branch that its next question follows as Markdown.
func (s *server) exportConversation(w http.ResponseWriter, r *http.Request) error {
	id, err := session(r)
	if err != nil {
		return err
	}
	switch format := r.URL.Query().Get("format"); format {
	case "md", "":
		t, err := s.DB.Thread(r.Context(), s.user(r), id)
		if err != nil {
			return err
		}
		attach(w, "semel-"+id+".md")
		out := s.exportTo(w, r, "text/markdown")
		out.markdown(t)
	case "json":
		a, err := s.DB.Archive(r.Context(), s.user(r), id)
		if err != nil {
			return err
		}
		attach(w, "semel-"+id+".json")
		out := s.exportTo(w, r, "application/json")
		out.archive(a)
		out.write([]byte("\n"))
	default:
		return badRequest("format is md or json.")
	}
	return nil
}

func attach(w http.ResponseWriter, name string) {
	w.Header().Set("Content-Disposition", `attachment; filename="`+name+`"`)
}

// exportPage is how many conversations are looked up at once.
const exportPage = 100

// exportAll gives every conversation that is not deleted, each of one moment, and
// holds one of them in memory.
func (s *server) exportAll(w http.ResponseWriter, r *http.Request) error {
	if format := r.URL.Query().Get("format"); format != "json" && format != "" {
		return badRequest("format is json.")
	}
	sessions, last, err := s.DB.Sessions(r.Context(), s.user(r), 0, exportPage)
	if err != nil {
		return err
	}
	attach(w, "semel.json")
	out := s.exportTo(w, r, "application/json")
	out.write(fmt.Appendf(nil, `{"format":%q,"version":%d,"conversations":[`, formatMany, formatVersion))
	comma := ""
	for len(sessions) > 0 && err == nil {
		for _, id := range sessions {
			a, err := s.DB.Archive(r.Context(), s.user(r), id)
			if errors.Is(err, db.ErrGone) || errors.Is(err, db.ErrNotFound) {
				continue // deleted meanwhile
			}
			if err != nil {
				out.hangUp(err)
			}
			out.write([]byte(comma + "\n"))
			out.archive(a)
			comma = ","
		}
		sessions, last, err = s.DB.Sessions(r.Context(), s.user(r), last, exportPage)
	}
	if err != nil {
		out.hangUp(err)
	}
	out.write([]byte("\n]}\n"))
	return nil
}

// An exporter writes a file that may be long, and hangs up where it cannot go on, so
// that half of one is not taken for the whole. It holds one attachment in memory.
type exporter struct {
	s *server
	w http.ResponseWriter
	r *http.Request
}

func (s *server) exportTo(w http.ResponseWriter, r *http.Request, contentType string) exporter {
	w.Header().Set("Content-Type", contentType+"; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	return exporter{s, w, r}
}

func (e exporter) hangUp(err error) {
	e.s.Log.Warn("export ends early", "trace_id", traceID(e.r), "error", err)
	panic(http.ErrAbortHandler)
}

func (e exporter) write(b []byte) {
	_ = http.NewResponseController(e.w).SetWriteDeadline(time.Now().Add(writeTimeout)) // recorders in tests have none
	if _, err := e.w.Write(b); err != nil {
		e.hangUp(err)
	}
}

func (e exporter) content(a chat.Attachment) []byte {
	content, err := e.s.DB.Content(e.r.Context(), a.SHA256)
	if err != nil {
		e.hangUp(err)
	}
	return content
}

// archive writes a conversation as JSON, its files at the end and one by one.
func (e exporter) archive(a db.Archive) {
	head := strings.TrimSuffix(string(encode(archiveOf(a))), "}\n")
	e.write([]byte(head))
	open := `,"files":[`
	written := map[string]bool{}
	for _, t := range a.Turns {
		for _, f := range t.Attachments {
			if written[f.SHA256] {
				continue
			}
			written[f.SHA256] = true
			file := archivedFile{SHA256: f.SHA256, MediaType: f.MediaType}
			if content := e.content(f); f.Image() {
				file.Base64 = content
			} else {
				file.Text = string(content)
			}
			e.write(append([]byte(open+"\n"), strings.TrimSuffix(string(encode(file)), "\n")...))
			open = ","
		}
	}
	if len(written) > 0 {
		e.write([]byte("\n]"))
	}
	e.write([]byte("}"))
}

// markdown writes a conversation as people read it. Texts that questions carry are
// blocks of code, images are in the file.
func (e exporter) markdown(t db.Thread) {
	var b strings.Builder
	fmt.Fprintf(&b, "# %s\n", strings.Join(strings.Fields(t.Conversation.Title), " "))
	if p := t.Conversation.SystemPrompt; p != "" {
		fmt.Fprintf(&b, "\n%s", fenced("system", p))
	}
	for _, m := range t.Messages {
		who := "You"
		if m.Role == "assistant" {
			who = m.Model
		}
		heading(&b, who, m.CreatedAt)
		for _, a := range m.Attachments {
			if a.Image() {
				fmt.Fprintf(&b, "\n![%s](data:%s;base64,", markdownName(a.Name), a.MediaType)
				b.WriteString(base64.StdEncoding.EncodeToString(e.content(a)))
				b.WriteString(")\n")
			} else {
				fmt.Fprintf(&b, "\n**%s**\n\n%s", markdownName(a.Name), fenced("", string(e.content(a))))
			}
			e.write([]byte(b.String()))
			b.Reset()
		}
		writeBody(&b, m.Reasoning, m.Content)
		if m.Role == "user" {
			for _, rec := range t.Requests {
				if rec.Seq == m.Seq && rec.Kind.WritesQuestion() && rec.Error != nil {
					writeFailure(&b, rec)
				}
			}
		}
	}
	for _, rec := range t.Requests {
		if !rec.Kind.WritesQuestion() && rec.Error != nil {
			writeFailure(&b, rec)
		}
	}
	e.write([]byte(b.String()))
}

// markdownName is the name of a file as nothing but words.
func markdownName(name string) string {
	return markdownMarks.ReplaceAllString(name, `\$0`)
}

var markdownMarks = regexp.MustCompile("[\\\\`*_\\[\\]<>&!#|~]")

func heading(w io.Writer, who string, at time.Time) {
	fmt.Fprintf(w, "\n## %s · %s\n", strings.Join(strings.Fields(who), " "), at.UTC().Format(time.RFC3339))
}

func writeBody(w io.Writer, reasoning, content string) {
	if reasoning != "" {
		fmt.Fprintf(w, "\n%s", fenced("reasoning", reasoning))
	}
	if content = strings.TrimRight(content, "\n"); content != "" {
		fmt.Fprintf(w, "\n%s\n%s", content, openFence(content))
	}
}

func writeFailure(w io.Writer, rec chat.Record) {
	heading(w, rec.Model, rec.CompletedAt.Time)
	writeBody(w, rec.Reasoning, rec.Content)
	fmt.Fprintf(w, "\n> %s\n", strings.Join(strings.Fields(rec.Error.Title+": "+rec.Error.Detail), " "))
}

// fenced puts text into a code block whose fence is longer than any inside, so that
// nothing in it ends it.
func fenced(info, text string) string {
	longest, run := 2, 0
	for _, c := range text {
		if c != '`' {
			run = 0
			continue
		}
		run++
		longest = max(longest, run)
	}
	fence := strings.Repeat("`", longest+1)
	return fence + info + "\n" + strings.TrimRight(text, "\n") + "\n" + fence + "\n"
}

// openFence is the line that ends a code block which text begins and does not end,
// as answers do that were cut; "" when there is none. Without it everything that
// follows would be code.
func openFence(text string) string {
	open := ""
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\r\n")
		bare := strings.TrimLeft(line, " ")
		if len(line)-len(bare) > 3 || bare == "" || bare[0] != '`' && bare[0] != '~' {
			continue
		}
		rest := strings.TrimLeft(bare, bare[:1])
		mark := bare[:len(bare)-len(rest)]
		switch {
		case len(mark) < 3:
		case open == "" && (mark[0] == '~' || !strings.Contains(rest, "`")):
			open = mark
		case open != "" && mark[0] == open[0] && len(mark) >= len(open) && strings.TrimSpace(rest) == "":
			open = ""
		}
	}
	if open == "" {
		return ""
	}
	return open + "\n"
}
