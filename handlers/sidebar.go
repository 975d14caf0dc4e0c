package handlers

import (
	"net/http"
	"time"

	"github.com/go-chi/chi/v5"

	"semel/chat"
	"semel/db"
	"semel/views"
)

// sideShown is how many conversations the side of a page lists at first.
const sideShown = 50

// side is the list at the side of a page: what its query asks for (q, archived, and
// from, where a page of it begins). A query that means nothing lists what there is.
func (s *server) side(r *http.Request) (views.Side, error) {
	q := r.URL.Query()
	l := db.List{Query: q.Get("q"), Before: q.Get("from"), Archived: q.Get("archived") == "1", Limit: sideShown}
	if len(l.Query) > longQuery {
		l.Query = ""
	}
	list, next, err := s.DB.Conversations(r.Context(), s.user(r), l)
	if err == db.ErrNotFound {
		l.Before = ""
		list, next, err = s.DB.Conversations(r.Context(), s.user(r), l)
	}
	side := views.Side{Query: l.Query, Archived: l.Archived, Next: next, Now: time.Now()}
	for _, c := range list {
		e := views.Entry{Conversation: c.Conversation}
		if c.Hit != nil {
			e.Hit = &views.Hit{Seq: c.Hit.Seq}
			for _, p := range c.Hit.Snippet {
				e.Hit.Snippet = append(e.Hit.Snippet, views.Snip(p))
			}
		}
		side.Entries = append(side.Entries, e)
	}
	return side, err
}

// postManage is what the buttons of the list do without scripts.
func (s *server) postManage(w http.ResponseWriter, r *http.Request) error {
	form, err := s.readForm(w, r)
	if err != nil {
		return err
	}
	session, err := chat.ParseID(chi.URLParam(r, "sessionID"))
	if err != nil {
		return db.ErrNotFound
	}
	yes, no := true, false
	var p db.ConversationPatch
	switch form.Get("do") {
	case "rename":
		title, err := parseTitle(form.Get("title"))
		if err != nil {
			return err
		}
		p.Title = &title
	case "unname":
		p.FirstWords = true
	case "pin":
		p.Pinned = &yes
	case "unpin":
		p.Pinned = &no
	case "archive":
		p.Archived = &yes
	case "unarchive":
		p.Archived = &no
	case "delete":
		if err := s.Engine.DeleteConversation(r.Context(), s.user(r), session); err != nil {
			return err
		}
		http.Redirect(w, r, "/c/"+session, http.StatusSeeOther) // which says that it is deleted, and brings it back
		return nil
	case "restore":
		if _, err := s.DB.RestoreConversation(r.Context(), s.user(r), session); err != nil {
			return err
		}
		s.Engine.Changed(s.user(r), session)
		http.Redirect(w, r, "/c/"+session, http.StatusSeeOther)
		return nil
	default:
		return badRequest("The form names nothing to do.")
	}
	if _, err := s.DB.PatchConversation(r.Context(), s.user(r), session, p); err != nil {
		return err
	}
	s.Engine.Changed(s.user(r), session)
	http.Redirect(w, r, "/c/"+session, http.StatusSeeOther)
	return nil
}
