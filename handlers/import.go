package handlers

import (
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strings"
	"time"
	"unicode/utf8"

	"semel/chat"
	"semel/db"
	"semel/static"
	"semel/views"
)

// importTimeout is how long a file may take to come.
const importTimeout = 10 * time.Minute

// An importJSON says what became of a file.
type importJSON struct {
	Imported int            `json:"imported"` // conversations
	Skipped  int            `json:"skipped"`
	Failed   int            `json:"failed"`
	Items    []importedItem `json:"items"`
}

// An importedItem is one conversation of a file, or what is wrong with the file.
type importedItem struct {
	SessionID string `json:"sessionId"` // here, where it is here; else as the file has it
	Title     string `json:"title"`
	Status    string `json:"status"` // imported, skipped or failed
	Reason    string `json:"reason,omitempty"`
	moved     bool   // it has another id here than in the file
}

func (j *importJSON) add(i importedItem) {
	switch i.Status {
	case "imported":
		j.Imported++
	case "skipped":
		j.Skipped++
	default:
		j.Failed++
	}
	j.Items = append(j.Items, i)
}

func (s *server) postImport(w http.ResponseWriter, r *http.Request) error {
	result, err := s.importBody(w, r)
	if err != nil {
		return err
	}
	s.writeJSON(w, http.StatusOK, result)
	return nil
}

func (s *server) getImportPage(w http.ResponseWriter, r *http.Request) error {
	return s.importPage(w, r, views.ImportPage{})
}

// postImportPage is the import for people: the page with what became of the file.
func (s *server) postImportPage(w http.ResponseWriter, r *http.Request) error {
	result, err := s.importBody(w, r)
	p := views.ImportPage{Done: err == nil, Imported: result.Imported, Skipped: result.Skipped, Failed: result.Failed}
	if err != nil {
		p.Problem = s.told(r, err)
	}
	for _, i := range result.Items {
		p.Items = append(p.Items, views.ImportedItem{SessionID: i.SessionID, Title: i.Title, Status: i.Status, Reason: i.Reason, Moved: i.moved})
	}
	return s.importPage(w, r, p)
}

func (s *server) importPage(w http.ResponseWriter, r *http.Request, p views.ImportPage) error {
	fresh, err := s.freshChat(r, chat.NewID())
	if err != nil {
		return err
	}
	p.Frame = fresh.Frame
	p.Script = static.URL("importer.js")
	p.Frame.Path = "/import"
	status := http.StatusOK
	if p.Problem != nil {
		status = p.Problem.Status
	}
	return s.writePage(w, r, status, views.Import(p))
}

// importBody imports what a body holds: JSON, or a form with files. One import runs
// at a time, so that the memory it takes is bounded, and a large one keeps no other
// writer waiting for long: each conversation is a transaction of its own. An error
// means that nothing could be read at all.
func (s *server) importBody(w http.ResponseWriter, r *http.Request) (importJSON, error) {
	none := importJSON{Items: []importedItem{}}
	if !s.importing.TryLock() {
		p := refuse(http.StatusServiceUnavailable, "overloaded", chat.RetrySameID, "Another import is running. Try again when it is done.")
		p.RetryAfter = 5 * time.Second
		return none, p
	}
	defer s.importing.Unlock()
	rc := http.NewResponseController(w)
	_ = rc.SetReadDeadline(time.Now().Add(importTimeout)) // recorders in tests have none
	defer func() { _ = rc.SetReadDeadline(time.Time{}) }()
	body := http.MaxBytesReader(w, r.Body, importBytes)
	im := &importer{server: s, r: r, result: none}
	ct := r.Header.Get("Content-Type")
	switch mt, _, err := mime.ParseMediaType(ct); {
	case err == nil && mt == "application/json":
		return im.result, im.file(body, "")
	case err == nil && mt == "multipart/form-data":
		r.Body = body
		err := im.form()
		return im.result, err
	}
	return none, refuse(http.StatusUnsupportedMediaType, "unsupported_media", chat.RetryNewID,
		fmt.Sprintf("The body must be application/json, or multipart/form-data with files, not %q.", ct))
}

// An importer takes in the files of one request.
type importer struct {
	server *server
	r      *http.Request
	result importJSON
}

// form takes in every file of a form.
func (im *importer) form() error {
	parts, err := im.r.MultipartReader()
	if err != nil {
		return badRequest("The form cannot be read.")
	}
	files := 0
	for {
		part, err := parts.NextPart()
		switch {
		case errors.Is(err, io.EOF) && files == 0:
			return badRequest("The form has no file.")
		case errors.Is(err, io.EOF):
			return nil
		case err != nil && len(im.result.Items) == 0:
			return unreadable(err)
		case err != nil:
			im.fail("", err)
			return nil
		case part.FormName() != "file" || part.FileName() == "":
			continue
		}
		files++
		if err := im.file(part, part.FileName()); err != nil {
			return err
		}
	}
}

// file takes in one file. What is wrong with it as a whole is an error when nothing
// of the request was read before, and else an item.
func (im *importer) file(file io.Reader, name string) error {
	err := readConversations(file, im.conversation)
	var p *chat.Problem
	switch {
	case err == nil:
		return nil
	case !errors.As(err, &p):
		return err
	case len(im.result.Items) == 0 && name == "":
		return err
	}
	im.fail(name, err)
	return nil
}

// fail adds what is wrong with a whole file.
func (im *importer) fail(name string, err error) {
	if !utf8.ValidString(name) {
		name = ""
	}
	err = unreadableAsProblem(err)
	im.result.add(importedItem{Title: name, Status: "failed", Reason: im.server.told(im.r, err).Detail})
}

func unreadableAsProblem(err error) error {
	var p *chat.Problem
	if errors.As(err, &p) {
		return err
	}
	return unreadable(err)
}

// conversation takes in one conversation. Whatever is wrong with it is an item.
func (im *importer) conversation(raw []byte) error {
	if err := im.r.Context().Err(); err != nil {
		return err
	}
	if len(im.result.Items) >= importConversations {
		return badRequest(fmt.Sprintf("The file has more than %d conversations, which is the limit. The rest was not read.", importConversations))
	}
	s := im.server
	a, err := conversationParser{maxText: s.MessageBytes, limits: s.Attachments, now: time.Now()}.parse(raw)
	item := importedItem{SessionID: shown(a.Conversation.SessionID, chat.MaxIDLength), Title: shown(a.Conversation.Title, 256)}
	var done db.Imported
	if err == nil {
		done, err = s.DB.Import(im.r.Context(), s.user(im.r), a)
	}
	switch {
	case errors.Is(err, db.ErrNoID):
		item.Status, item.Reason = "failed", "It was imported and deleted too often: no id is left for it."
	case err != nil:
		item.Status, item.Reason = "failed", s.told(im.r, err).Detail
	default:
		item.Status, item.moved = "skipped", done.SessionID != item.SessionID
		item.Reason = "It is here already."
		if done.New {
			item.Status, item.Reason = "imported", ""
			s.Engine.Changed(s.user(im.r), done.SessionID)
		}
		if item.moved {
			item.Reason = strings.TrimSpace(item.Reason + " Its id " + item.SessionID + " is that of another conversation, or of one that was deleted here.")
		}
		item.SessionID = done.SessionID
	}
	im.result.add(item)
	return nil
}

// shown is the beginning of a text that nobody has checked.
func shown(text string, most int) string {
	text = strings.Join(strings.Fields(strings.ToValidUTF8(text, "�")), " ")
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + "…"
}
