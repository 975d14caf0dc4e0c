package handlers

import (
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/go-chi/chi/v5"

	"semel/chat"
	"semel/db"
	"semel/engine"
	"semel/views"
)

// turnsShown is how many turns a page has; earlier ones are fetched when somebody
// goes there.
const turnsShown = 40

// branch fills a page with the turns of a branch. The query may name a message
// that the branch leads through (at), one that is to be asked anew (edit), and one
// before which the turns are wanted (before).
func (s *server) branch(r *http.Request, p *views.ChatPage, session string) error {
	q := r.URL.Query()
	at, err := number(q.Get("at"))
	if err != nil {
		return err
	}
	edit, err := number(q.Get("edit"))
	if err != nil {
		return err
	}
	before, err := number(q.Get("before"))
	if err != nil {
		return err
	}
	if at == 0 {
		at = edit
	}
	t, err := s.DB.ThreadAt(r.Context(), s.user(r), session, at)
	if err != nil {
		return err
	}
	p.Fresh, p.Title, p.End, p.Aside = false, t.Conversation.Title, chat.MessageID(session, t.End), t.Aside
	p.Setup = s.setup(s.defaultModel(s.chosen(r)), t.Conversation.Model, t.Conversation.SystemPrompt, t.Conversation.Params)
	turns := views.Turns(views.Branch{Messages: t.Messages, Unanswered: t.Requests, Coming: t.Coming, Beside: t.Beside})
	if p.Aside && edit == 0 {
		p.Kind, p.ParentID = chat.KindEdit, p.End
	}
	if edit != 0 {
		i := slices.IndexFunc(turns, func(t views.Turn) bool { return t.Seq == edit })
		if i < 0 {
			return db.ErrNotFound
		}
		p.Editing, p.Kind, p.ParentID, p.Draft = true, chat.KindEdit, chat.MessageID(session, edit), turns[i].Question
		p.Carried = turns[i].Attachments
	}
	p.Turns, p.Earlier = views.Page(turns, at, before, turnsShown)
	return nil
}

// number reads the number of a message from a query; "" is 0.
func number(s string) (int64, error) {
	if s == "" {
		return 0, nil
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n < 1 {
		return 0, db.ErrNotFound
	}
	return n, nil
}

// postAct is what the buttons of messages do without scripts: another answer,
// more of one, a failed question again, another branch. Its form carries the id of
// one intent, minted when the page was rendered.
func (s *server) postAct(w http.ResponseWriter, r *http.Request) error {
	form, err := s.readForm(w, r)
	if err != nil {
		return err
	}
	session, err := chat.ParseID(chi.URLParam(r, "sessionID"))
	if err != nil {
		return db.ErrNotFound
	}
	to := "/c/" + session
	switch {
	case form.Get("at") != "":
		err = s.goTo(r, session, form.Get("at"))
		if errors.Is(err, db.ErrNotYourTurn) {
			// It cannot be made the one that questions follow now; it can be read.
			http.Redirect(w, r, to+"?at="+url.QueryEscape(form.Get("at")), http.StatusSeeOther)
			return nil
		}
	case form.Get("retry") != "":
		err = s.retryForm(r, session, form)
	case form.Get("regenerate") != "":
		err = s.askForm(r, session, chat.KindRegenerate, form.Get("regenerate"), form.Get("requestId"))
	case form.Get("decision") != "":
		to += "#effect-" + url.PathEscape(form.Get("decision"))
		err = s.decideForm(r, form)
	case form.Get("effect") != "":
		err = s.resolveForm(r, form)
	case form.Get("continue") != "":
		err = s.askForm(r, session, chat.KindContinue, form.Get("continue"), form.Get("requestId"))
	default:
		err = badRequest("The form names nothing to do.")
	}
	if err != nil {
		return s.refusedForm(w, r, err, "", form)
	}
	http.Redirect(w, r, to, http.StatusSeeOther)
	return nil
}

// goTo makes the branch through a message the one that questions follow, down to
// its newest message.
func (s *server) goTo(r *http.Request, session, at string) error {
	seq, err := number(at)
	if err != nil {
		return err
	}
	t, err := s.DB.ThreadAt(r.Context(), s.user(r), session, seq)
	if err != nil {
		return err
	}
	if !t.Aside {
		return nil
	}
	if _, err := s.DB.PatchConversation(r.Context(), s.user(r), session, db.ConversationPatch{Head: &t.End}); err != nil {
		return err
	}
	s.Engine.Changed(s.user(r), session)
	return nil
}

// retryForm asks a failed request again: its id, the attempt that was seen to
// fail, and maybe another model.
func (s *server) retryForm(r *http.Request, session string, form url.Values) error {
	fields := strings.SplitN(form.Get("retry"), " ", 3)
	if len(fields) != 3 {
		return badRequest("retry names a request, an attempt and a model.")
	}
	id, err := chat.ParseID(fields[0])
	if err != nil {
		return badRequest("retry: " + err.Error() + ".")
	}
	attempt, err := strconv.ParseInt(fields[1], 10, 64)
	if err != nil {
		return badRequest("retry names no attempt.")
	}
	confirmed, err := confirms(form.Get("confirm"))
	if err != nil {
		return err
	}
	res, err := s.Engine.Retry(r.Context(), engine.Again{
		Key: chat.Key{UserID: s.user(r), SessionID: session, RequestID: id}, Attempt: attempt, Model: fields[2], Confirmed: confirmed,
	})
	if err != nil {
		return err
	}
	s.Engine.Answered(res, chat.SourceForm, http.StatusSeeOther)
	return nil
}

// askForm is an intent that writes no question.
func (s *server) askForm(r *http.Request, session string, kind chat.Kind, parent, requestID string) error {
	ask, err := s.parseAsk(r, chatBody{SessionID: session, RequestID: requestID, Kind: kind, ParentID: parent})
	if err != nil {
		return err
	}
	ask.Source = chat.SourceForm
	res, err := s.Engine.Submit(r.Context(), ask)
	if err != nil {
		return err
	}
	s.Engine.Answered(res, ask.Source, http.StatusSeeOther)
	return nil
}

// decideForm is a verdict on what the page showed, which its form names.
func (s *server) decideForm(r *http.Request, form url.Values) error {
	if form.Get("digest") == "" {
		return badRequest("The form does not say what was shown.")
	}
	_, err := s.decide(r, form.Get("decision"), form.Get("verdict"), form.Get("reason"), form.Get("digest"))
	return err
}

// resolveForm is what a person does about an effect that stays open.
func (s *server) resolveForm(r *http.Request, form url.Values) error {
	do := form.Get("resolve")
	if do != db.Redrive && do != db.Compensate && do != db.Abandon {
		return badRequest("The form names nothing to do.")
	}
	_, err := s.resolveOne(r, form.Get("effect"), do, form.Get("reason"))
	return err
}
