package handlers

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"semel/chat"
	"semel/db"
	"semel/views"
)

// usersPage is the page on which an admin looks after people.
func (s *server) usersPage(r *http.Request) (p views.UsersPage, err error) {
	p = views.UsersPage{Frame: s.frame(r), Done: r.URL.Query().Get("done"), Me: s.user(r)}
	list, err := s.DB.Accounts(r.Context(), s.Idle)
	if err != nil {
		return p, err
	}
	keys, err := s.DB.Keys(r.Context(), 0)
	if err != nil {
		return p, err
	}
	p.First = len(list) == 0
	for _, a := range list {
		u := views.User{ID: a.ID, Name: a.Name, Role: a.Role, Disabled: a.Disabled, SeenAt: a.SeenAt, Logins: a.Logins}
		for _, k := range keys {
			if k.UserID == a.ID && k.RevokedAt.IsZero() {
				u.Keys = append(u.Keys, keyOf(k))
			}
		}
		p.Users = append(p.Users, u)
	}
	p.Side, err = s.side(r)
	return p, err
}

func keyOf(k db.Key) views.Key {
	return views.Key{ID: k.ID, Name: k.Name, Scope: k.Scope, CreatedAt: k.CreatedAt, UsedAt: k.UsedAt}
}

func (s *server) getUsers(w http.ResponseWriter, r *http.Request) error {
	p, err := s.usersPage(r)
	if err != nil {
		return err
	}
	return s.writePage(w, r, http.StatusOK, views.Users(p))
}

// refusedUser is the page with what is wrong, and what was typed.
func (s *server) refusedUser(w http.ResponseWriter, r *http.Request, given url.Values, wrong string) error {
	p, err := s.usersPage(r)
	if err != nil {
		return err
	}
	p.Given, p.GivenRole, p.Error = given.Get("name"), chat.Role(given.Get("role")), p.Locale.WrongAccount(wrong)
	return s.writePage(w, r, http.StatusUnprocessableEntity, views.Users(p))
}

// postUsers is the page's forms. Whoever sends one twice is told so, or sees the same.
func (s *server) postUsers(w http.ResponseWriter, r *http.Request) error {
	form, err := s.readForm(w, r)
	if err != nil {
		return err
	}
	do := form.Get("do")
	if do == "add" {
		return s.addUser(w, r, form)
	}
	id, err := strconv.ParseInt(form.Get("user"), 10, 64)
	if err != nil {
		return badRequest("The form names no account.")
	}
	a, _, err := s.DB.AccountByID(r.Context(), id)
	if err != nil {
		return err
	}
	by := s.actor(r)
	switch do {
	case "role":
		role := chat.Role(form.Get("role"))
		if !slices.Contains(chat.Roles, role) {
			return badRequest("There is no such role.")
		}
		if role != a.Role {
			err = s.DB.SetRole(r.Context(), id, role, by)
		}
	case "disable":
		err = s.DB.Disable(r.Context(), id, by)
	case "enable":
		err = s.DB.Enable(r.Context(), id, by)
	case "password":
		_, hash, wrong, herr := s.newPassword(r, a.Name, form.Get("password"), form.Get("password"))
		if herr != nil {
			return herr
		}
		if wrong != "" {
			return s.refusedUser(w, r, nil, wrong)
		}
		err = s.DB.SetPassword(r.Context(), id, hash, by)
	case "revoke":
		var key int64
		if key, err = strconv.ParseInt(form.Get("key"), 10, 64); err == nil {
			err = s.DB.RevokeKey(r.Context(), id, key, by)
		} else {
			err = badRequest("The form names no key.")
		}
	default:
		return badRequest("The form names nothing to do.")
	}
	if errors.Is(err, db.ErrLastAdmin) {
		return s.refusedUser(w, r, nil, "last")
	}
	if err != nil {
		return err
	}
	s.Log.Info("account", "do", do, "user", a.Name, "by", by)
	http.Redirect(w, r, "/admin/users?done="+do, http.StatusSeeOther)
	s.changed(r.Context())
	return nil
}

// addUser makes an account. The first is made by the local user, who has it from then
// on.
func (s *server) addUser(w http.ResponseWriter, r *http.Request, form url.Values) error {
	name, hash, wrong, err := s.newPassword(r, form.Get("name"), form.Get("password"), form.Get("password"))
	if err != nil {
		return err
	}
	if wrong != "" {
		return s.refusedUser(w, r, form, wrong)
	}
	n := db.NewAccount{Name: name, Role: chat.Role(form.Get("role")), Password: hash, Actor: s.actor(r)}
	if guestOf(r).name == "" {
		n.Role, n.First = chat.RoleAdmin, true
	}
	if !slices.Contains(chat.Roles, n.Role) {
		return badRequest("There is no such role.")
	}
	id, err := s.DB.AddAccount(r.Context(), n)
	switch {
	case errors.Is(err, db.ErrAccountName):
		same, err := s.justMade(r, n, form.Get("password"))
		if err != nil {
			return err
		}
		if !same {
			return s.refusedUser(w, r, form, "taken")
		}
		http.Redirect(w, r, "/admin/users?done=add", http.StatusSeeOther)
		return nil
	case errors.Is(err, db.ErrNotNow):
		return signedOut() // another made the first: who is this?
	case err != nil:
		return err
	}
	s.Log.Info("account", "do", "add", "user", name, "by", n.Actor)
	if n.First {
		if err := s.signIn(w, r, id, hash); err != nil {
			return err
		}
	}
	http.Redirect(w, r, "/admin/users?done=add", http.StatusSeeOther)
	return nil
}

// justMade reports whether an account is the one that the same form has made a moment
// ago: a second click, whose sender sees only its own answer.
func (s *server) justMade(r *http.Request, n db.NewAccount, pass string) (bool, error) {
	a, hash, err := s.DB.Account(r.Context(), n.Name)
	if errors.Is(err, db.ErrNotFound) {
		return false, nil // the name is that of somebody without an account
	}
	if err != nil || a.Role != n.Role || a.Disabled || time.Since(a.CreatedAt) > time.Minute {
		return false, err
	}
	return s.hasher.Fits(r.Context(), pass, hash)
}

// account is the part of the settings page that is about the account itself, nil
// without accounts.
func (s *server) account(r *http.Request) (*views.Account, error) {
	g := guestOf(r)
	if g.name == "" {
		return nil, nil
	}
	a := &views.Account{Name: g.name, Role: g.role, Fingerprint: s.Fingerprint, FormID: chat.NewID()}
	logins, err := s.DB.Logins(r.Context(), g.user, s.Idle)
	if err != nil {
		return nil, err
	}
	for _, l := range logins {
		a.Logins = append(a.Logins, views.Login{ID: l.ID, Agent: l.Agent, CreatedAt: l.CreatedAt, SeenAt: l.SeenAt, Here: l.ID == g.login})
	}
	keys, err := s.DB.Keys(r.Context(), g.user)
	for _, k := range keys {
		if k.RevokedAt.IsZero() {
			a.Keys = append(a.Keys, keyOf(k))
		}
	}
	return a, err
}

// accountPage is the settings page after something was done about the account.
func (s *server) accountPage(w http.ResponseWriter, r *http.Request, status int, change func(*views.Account, *views.Locale)) error {
	p, err := s.settingsPage(r)
	if err == nil {
		err = s.openForm(&p, "")
	}
	if err != nil {
		return err
	}
	change(p.User, p.Locale)
	return s.writePage(w, r, status, views.Settings(p))
}

func (s *server) postAccount(w http.ResponseWriter, r *http.Request) error {
	form, err := s.readForm(w, r)
	if err != nil {
		return err
	}
	g := guestOf(r)
	if g.name == "" {
		return db.ErrNotFound
	}
	wrong := func(status int, say func(*views.Locale) string) error {
		return s.accountPage(w, r, status, func(a *views.Account, l *views.Locale) { a.Error = say(l) })
	}
	id, _ := strconv.ParseInt(form.Get("id"), 10, 64)
	do := form.Get("do")
	switch do {
	case "password":
		_, _, err := s.checkPassword(r, g.name, form.Get("current"))
		if p, ok := errors.AsType[*chat.Problem](err); ok {
			return wrong(p.Status, func(l *views.Locale) string { return l.Problem(*p) })
		}
		if err != nil {
			return err
		}
		_, hash, bad, err := s.newPassword(r, g.name, form.Get("password"), form.Get("again"))
		if err != nil {
			return err
		}
		if bad != "" {
			return wrong(http.StatusUnprocessableEntity, func(l *views.Locale) string { return l.WrongAccount(bad) })
		}
		if err := s.DB.SetPassword(r.Context(), g.user, hash, s.actor(r)); err != nil {
			return err
		}
		if err := s.signIn(w, r, g.user, hash); err != nil {
			return err
		}
	case "out":
		err = s.DB.EndLogin(r.Context(), g.user, id)
	case "everywhere":
		err = s.DB.EndLogins(r.Context(), g.user, []byte(s.shown(r).digest))
	case "revoke":
		err = s.DB.RevokeKey(r.Context(), g.user, id, s.actor(r))
	case "key":
		return s.addKey(w, r, g, form)
	default:
		return badRequest("The form names nothing to do.")
	}
	if err != nil {
		return err
	}
	http.Redirect(w, r, "/settings?done="+do+"#account", http.StatusSeeOther)
	s.changed(r.Context())
	return nil
}

// keyShown is how long after it was made the form that made a key shows it again.
const keyShown = time.Minute

// addKey shows the new key on the answer itself: it is kept nowhere. A double click has
// its first answer thrown away by the browser, so the second must be the same: the key
// follows from the form and from what this process alone knows.
func (s *server) addKey(w http.ResponseWriter, r *http.Request, g guest, form url.Values) error {
	id, err := chat.ParseID(form.Get("requestId"))
	if _, timed := chat.IDTime(id); err != nil || !timed {
		return badRequest("The form has no id.")
	}
	k := db.Key{UserID: g.user, Name: strings.TrimSpace(form.Get("name")), Scope: chat.Scope(form.Get("scope")), FormID: id}
	need := map[chat.Scope]chat.Role{chat.ScopeChat: chat.RoleMember, chat.ScopeOps: chat.RoleOperator}[k.Scope]
	switch {
	case !g.role.Has(need):
		return refuse(http.StatusForbidden, "forbidden_scope", chat.RetryNever, "A key opens what its owner may do.")
	case k.Name == "" || utf8.RuneCountInString(k.Name) > 100 || !utf8.ValidString(k.Name):
		return s.accountPage(w, r, http.StatusUnprocessableEntity, func(a *views.Account, l *views.Locale) { a.Error = l.WrongAccount("key") })
	}
	secret, digest := chat.KeyOf(s.seed, k.FormID, k.UserID, k.Scope, k.Name)
	k.Digest = digest
	k, err = s.DB.AddKey(r.Context(), k, s.actor(r))
	if errors.Is(err, db.ErrFormUsed) || err == nil && time.Since(k.CreatedAt) > keyShown {
		return s.accountPage(w, r, http.StatusConflict, func(a *views.Account, l *views.Locale) { a.Error = l.WrongAccount("form") })
	}
	if err != nil {
		return err
	}
	s.Log.Info("key", "do", "add", "key", k.ID, "by", fmt.Sprint("user:", g.user))
	return s.accountPage(w, r, http.StatusOK, func(a *views.Account, _ *views.Locale) { a.Secret = secret })
}

// needs returns why r's sender may not do something that needs a role.
func needs(r *http.Request, role chat.Role) error {
	if !guestOf(r).role.Has(role) {
		return refuse(http.StatusForbidden, "forbidden_role", chat.RetryNever, "This is for an "+string(role)+".")
	}
	return nil
}
