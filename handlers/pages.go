package handlers

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/a-h/templ"
	"github.com/go-chi/chi/v5"

	"semel/chat"
	"semel/db"
	"semel/static"
	"semel/views"
)

// pages are what people see. They read and write without scripts, too.
func (s *server) pages(r chi.Router) {
	r.Get("/", s.page(s.getHome))
	r.Get("/c/{sessionID}", s.page(s.getChat))
	r.Post("/c/{sessionID}", s.page(s.postForm))
	r.Post("/c/{sessionID}/act", s.page(s.postAct))
	r.Post("/c/{sessionID}/manage", s.page(s.postManage))
	r.Get("/c/{sessionID}/r/{requestID}", s.page(s.getReceiptPage))
	r.Post("/c/{sessionID}/setup", s.page(s.postSetup))
	r.Get("/settings", s.page(s.getSettingsPage))
	r.Post("/settings", s.page(s.postSettings))
	r.Post("/settings/models", s.page(s.postModels))
	r.Post("/language", s.page(s.postLanguage))
	r.Get("/ops", s.page(s.getOps))
	r.Get("/ops/requests/{requestID}", s.page(s.getOpsRequestPage))
	r.Post("/ops/requests/{requestID}", s.page(s.postOpsRequest))
	r.Get("/ops/audit", s.page(s.getAuditPage))
	r.Post("/ops/verify", s.page(s.postVerifyPage))
	r.Post("/ops/backup", s.page(s.postBackupPage))
	r.Get("/ops/outbox", s.page(s.getOutboxPage))
	r.Post("/ops/outbox", s.page(s.postOutbox))
	r.Post("/settings/account", s.page(s.postAccount))
	r.Get("/login", s.page(s.getLogin))
	r.Post("/login", s.page(s.postLogin))
	r.Post("/logout", s.page(s.postLogout))
	r.Get("/setup", s.page(s.getSetup))
	r.Post("/setup", s.page(s.postFirst))
	r.Get("/admin/users", s.page(s.getUsers))
	r.Post("/admin/users", s.page(s.postUsers))
	r.Get("/import", s.page(s.getImportPage))
	r.Post("/import", s.page(s.postImportPage))
	s.labRoutes(r)
}

// languageCookie holds the language that a person chose.
const languageCookie = "lang"

// page turns a handler's error into a page.
func (s *server) page(h handler) http.HandlerFunc {
	return s.handle(func(w http.ResponseWriter, r *http.Request) error {
		err := h(w, r)
		if err == nil || errors.Is(err, errHangUp) || r.Context().Err() != nil {
			return err
		}
		return s.note(w, r, s.told(r, err))
	})
}

// note is the page about a problem. It needs nothing from the database, which
// may be the problem.
func (s *server) note(w http.ResponseWriter, r *http.Request, p *chat.Problem) error {
	n := views.NotePage{Frame: s.frame(r)}
	switch p.Status {
	case http.StatusGone:
		n.Title, n.Text, n.Restorable = n.Locale.T("gone.title"), n.Locale.T("gone.text"), chi.URLParam(r, "sessionID")
	case http.StatusNotFound:
		n.Title, n.Text = n.Locale.T("missing.title"), n.Locale.T("missing.text")
	case http.StatusInternalServerError:
		n.Title, n.Text = n.Locale.T("error.title"), n.Locale.T("error.text")
	default:
		n.Title, n.Text = n.Locale.T("error.title"), n.Locale.Problem(*p)
	}
	return s.writePage(w, r, p.Status, views.Note(n))
}

// frame is what all pages have around them, except the list at the side.
func (s *server) frame(r *http.Request) views.Frame {
	chosen := s.chosen(r)
	if c, err := r.Cookie(languageCookie); err == nil && chosen.Language == "" {
		chosen.Language = c.Value
	}
	path := "/"
	if r.Method == http.MethodGet || strings.HasPrefix(r.URL.Path, "/c/") {
		path = r.URL.Path
	}
	to := path
	if strings.HasPrefix(r.URL.Path, "/ops") { // whose query is its own
		path, to = "/", r.URL.RequestURI()
	}
	g := guestOf(r)
	return views.Frame{
		Name: g.name, Operator: g.role.Has(chat.RoleOperator), Admin: g.role.Has(chat.RoleAdmin),
		Locale:     views.ChooseLocale(chosen.Language, s.Language, r.Header.Get("Accept-Language")),
		Assets:     views.Assets{Style: static.URL("app.css"), Script: static.URL("chat.js"), Icon: static.URL("icon.svg")},
		Account:    strconv.FormatInt(s.user(r), 10),
		Epoch:      s.DB.Epoch(),
		ServerTime: time.Now().UnixMilli(),
		Path:       path,
		To:         to,
		Theme:      chosen.Theme,
		SendKey:    chosen.SendKey,
		Lab:        s.Lab != nil && g.role.Has(chat.RoleOperator),
		Alarm:      s.alarm(),
		Safe:       s.Safe,
	}
}

// alarm is what every page says of the server, "" for nothing.
func (s *server) alarm() string {
	if s.Safe != "" {
		return "safe_mode"
	}
	switch low, full := s.room(); {
	case full:
		return "disk_full"
	case low:
		return "disk_low"
	}
	return ""
}

// freshChat is a page for a conversation of which nothing is accepted yet.
func (s *server) freshChat(r *http.Request, session string) (views.ChatPage, error) {
	p := views.ChatPage{Frame: s.frame(r), SessionID: session, Fresh: true, RequestID: chat.NewID(), Currency: s.Currency, MessageBytes: s.MessageBytes, Attachments: s.Attachments}
	p.Setup = s.setupOf(s.chosen(r))
	p.Models = p.Setup.Models
	var err error
	p.Side, err = s.side(r)
	return p, err
}

// storedChat is the page of a conversation as it stands.
func (s *server) storedChat(r *http.Request, session string) (views.ChatPage, error) {
	p, err := s.freshChat(r, session)
	if err == nil {
		err = s.branch(r, &p, session)
	}
	return p, err
}

func (s *server) getHome(w http.ResponseWriter, r *http.Request) error {
	p, err := s.freshChat(r, chat.NewID())
	if err != nil {
		return err
	}
	return s.writePage(w, r, http.StatusOK, views.Chat(p))
}

func (s *server) getChat(w http.ResponseWriter, r *http.Request) error {
	id, err := chat.ParseID(chi.URLParam(r, "sessionID"))
	if err != nil {
		return db.ErrNotFound
	}
	p, err := s.storedChat(r, id)
	if err != nil {
		return err
	}
	return s.writePage(w, r, http.StatusOK, views.Chat(p))
}

// postForm is Send without scripts. The form carries the id that was minted when
// it was rendered, so a second click joins the first.
func (s *server) postForm(w http.ResponseWriter, r *http.Request) error {
	form, err := s.readForm(w, r)
	if err != nil {
		return err
	}
	// Forms send CRLF where scripts send LF: the same words must be the same intent.
	content := strings.TrimRight(strings.ReplaceAll(form.Get("content"), "\r\n", "\n"), " \t\n")
	ask, err := s.parseAsk(r, chatBody{SessionID: chi.URLParam(r, "sessionID"), RequestID: form.Get("requestId"), Content: content,
		Kind: chat.Kind(form.Get("kind")), ParentID: form.Get("parentId"), Attachments: form["attachments"]})
	if err != nil {
		return s.refusedForm(w, r, err, content, form)
	}
	ask.Source = chat.SourceForm
	res, err := s.Engine.Submit(r.Context(), ask)
	if err != nil {
		return s.refusedForm(w, r, err, content, form)
	}
	s.Engine.Answered(res, ask.Source, http.StatusSeeOther)
	http.Redirect(w, r, "/c/"+ask.Key.SessionID, http.StatusSeeOther)
	return nil
}

// refusedForm is the page that gives a refused text back, under a fresh id; where
// the server cannot say whether it has the message, under the same.
func (s *server) refusedForm(w http.ResponseWriter, r *http.Request, refused error, content string, form url.Values) error {
	problem := s.told(r, refused)
	session, err := chat.ParseID(chi.URLParam(r, "sessionID"))
	if err != nil {
		session = chat.NewID()
	}
	p, err := s.storedChat(r, session)
	if errors.Is(err, db.ErrNotFound) {
		p, err = s.freshChat(r, session)
	} else if errors.Is(err, db.ErrGone) {
		p, err = s.freshChat(r, chat.NewID())
	}
	if err != nil {
		return err
	}
	p.Error = problem
	if content != "" {
		p.Draft = content
	}
	switch {
	case problem.Retry == chat.RetrySameID:
		p.RequestID = form.Get("requestId")
	case problem.Code == "restored_gap":
		p.Again = form.Get("retry")
	}
	return s.writePage(w, r, problem.Status, views.Chat(p))
}

// postLanguage remembers the language a person chose and leads back.
func (s *server) postLanguage(w http.ResponseWriter, r *http.Request) error {
	form, err := s.readForm(w, r)
	if err != nil {
		return err
	}
	l := views.FindLocale(form.Get("lang"))
	if l == nil {
		return badRequest(fmt.Sprintf("There is no language %q here.", form.Get("lang")))
	}
	if s.user(r) == 0 {
		s.keepLanguage(w, l.Tag)
	} else if _, err := s.choose(w, r, db.SettingsPatch{Language: &l.Tag}); err != nil {
		return err
	}
	http.Redirect(w, r, localPath(form.Get("to")), http.StatusSeeOther)
	return nil
}

// localPath returns a path of this server that to may lead to, "/" when it leads
// elsewhere: browsers read "//host" and "/\host" as other servers.
func localPath(to string) string {
	u, err := url.Parse(to)
	if err != nil || u.Scheme != "" || u.Host != "" || !strings.HasPrefix(u.Path, "/") || strings.ContainsAny(to, "\\\r\n\t") || strings.HasPrefix(u.Path, "//") {
		return "/"
	}
	return u.RequestURI()
}

// readForm reads a urlencoded body. Its limit is far beyond the longest message,
// so that one that is too long can be given back with a reason.
func (s *server) readForm(w http.ResponseWriter, r *http.Request) (url.Values, error) {
	r.Body = http.MaxBytesReader(w, r.Body, 12*int64(s.MessageBytes)+jsonOverhead)
	err := r.ParseForm()
	if err == nil {
		_ = http.NewResponseController(w).SetReadDeadline(time.Time{}) // see patience
	}
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		return nil, s.tooLarge(fmt.Sprintf("limits.message_bytes allows %d bytes.", s.MessageBytes))
	case err != nil:
		return nil, badRequest("The form did not arrive whole.")
	}
	return r.PostForm, nil
}

// writePage renders all of a page before its first byte leaves, so that one that
// cannot be rendered is an error and not half a page.
func (s *server) writePage(w http.ResponseWriter, r *http.Request, status int, page templ.Component) error {
	var out bytes.Buffer
	if err := page.Render(r.Context(), &out); err != nil {
		return fmt.Errorf("render page: %w", err)
	}
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(answerTimeout)) // recorders in tests have none
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Cache-Control", "no-store") // it is private, and its id and its clock are for one showing
	h.Set("Vary", "Accept-Language, Cookie")
	w.WriteHeader(status)
	_, _ = w.Write(out.Bytes()) // a reader that is gone asks again
	return nil
}
