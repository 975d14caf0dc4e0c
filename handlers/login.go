package handlers

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"time"

	"semel/chat"
	"semel/db"
	"semel/views"
)

// How often passwords may be tried: of one account from one place, and from one place at
// all. Whoever knows the password is held up for a minute at the worst; whoever guesses
// gets three thousand tries a day.
func guesses(name string, from netip.Addr) (pair, place db.Guess) {
	if from.Is6() { // a house has so many addresses
		if p, err := from.Prefix(64); err == nil {
			from = p.Masked().Addr()
		}
	}
	digest := func(parts ...string) []byte {
		d := sha256.Sum256([]byte(strings.Join(parts, "\x00")))
		return d[:]
	}
	return db.Guess{Digest: digest("account", name, from.String()), Every: 30 * time.Second, Burst: 10},
		db.Guess{Digest: digest("place", from.String()), Every: 5 * time.Second, Burst: 60}
}

var errWrongPassword = refuse(http.StatusUnauthorized, "credentials_wrong", chat.RetryNever, "There is no such account, or that is not its password.")

// checkPassword returns the account of a name whose password was given. What is wrong is
// the same for an account that there is not, and takes as long. Errors: errWrongPassword,
// a *chat.Problem for too many tries.
func (s *server) checkPassword(r *http.Request, name, given string) (db.Account, string, error) {
	// From here on it counts, whatever becomes of this request.
	ctx := context.WithoutCancel(r.Context())
	pair, place := guesses(name, s.client(r))
	wait, err := s.DB.CountTry(ctx, pair, place)
	if err != nil {
		return db.Account{}, "", err
	}
	if wait > 0 {
		p := refuse(http.StatusTooManyRequests, "too_many_tries", chat.RetrySameID, "Too many passwords were tried. Wait a little.")
		p.RetryAfter = wait
		return db.Account{}, "", p
	}
	a, hash, err := s.DB.Account(ctx, name)
	if err != nil && !errors.Is(err, db.ErrNotFound) {
		return a, "", err
	}
	if len(given) > chat.MaxPassword {
		given = "" // which is nobody's
	}
	fits, err := s.hasher.Fits(ctx, given, hash)
	switch {
	case err != nil:
		return a, "", err
	case !fits || a.Disabled:
		return a, "", errWrongPassword
	}
	return a, hash, s.DB.ForgiveTry(ctx, pair, place)
}

// signIn starts a login for who has shown the password, under a new token, in place of
// the one that the browser had.
func (s *server) signIn(w http.ResponseWriter, r *http.Request, user int64, hash string) error {
	token := chat.NewToken()
	l := db.NewLogin{Digest: chat.DigestToken(token), UserID: user, Password: hash, Agent: agent(r), Lasts: s.Absolute}
	if by := s.shown(r); !by.key && by.digest != "" {
		l.Replaces = []byte(by.digest)
	}
	if err := s.DB.StartLogin(r.Context(), l); errors.Is(err, db.ErrAccountChanged) {
		return errWrongPassword
	} else if err != nil {
		return err
	}
	s.setCookie(w, r, token, int(s.Absolute.Seconds()))
	s.changed(r.Context())
	return nil
}

func (s *server) setCookie(w http.ResponseWriter, r *http.Request, token string, maxAge int) {
	http.SetCookie(w, &http.Cookie{Name: s.cookieName(r), Value: token, Path: "/", MaxAge: maxAge, Secure: s.secure(r), HttpOnly: true, SameSite: http.SameSiteLaxMode})
}

// agent is what a browser says of itself, as much of it as helps to know it again.
func agent(r *http.Request) string {
	a := strings.ToValidUTF8(strings.Map(func(c rune) rune {
		if c < 0x20 || c == 0x7f {
			return -1
		}
		return c
	}, r.UserAgent()), "")
	if len(a) > 200 {
		a = strings.ToValidUTF8(a[:200], "")
	}
	return a
}

func (s *server) loginPage(r *http.Request, to string) views.LoginPage {
	return views.LoginPage{Frame: s.frame(r), To: localPath(to)}
}

func (s *server) writeLogin(w http.ResponseWriter, r *http.Request, status int, p views.LoginPage) error {
	return s.writePage(w, r, status, views.SignIn(p))
}

func (s *server) getLogin(w http.ResponseWriter, r *http.Request) error {
	to := r.URL.Query().Get("to")
	if s.user(r) != 0 {
		http.Redirect(w, r, localPath(to), http.StatusSeeOther)
		return nil
	}
	return s.writeLogin(w, r, http.StatusOK, s.loginPage(r, to))
}

func (s *server) postLogin(w http.ResponseWriter, r *http.Request) error {
	form, err := s.readForm(w, r)
	if err != nil {
		return err
	}
	if guestOf(r).user != 0 && guestOf(r).name == "" {
		http.Redirect(w, r, "/", http.StatusSeeOther) // without accounts there is nothing to sign in to
		return nil
	}
	name, ok := chat.ParseName(form.Get("name"))
	if !ok {
		name = "" // which is nobody's, and takes as long
	}
	a, hash, err := s.checkPassword(r, name, form.Get("password"))
	if err == nil {
		err = s.signIn(w, r, a.ID, hash)
	}
	if err != nil {
		p := s.loginPage(r, form.Get("to"))
		problem := s.told(r, err)
		p.Name, p.Error = form.Get("name"), p.Locale.Problem(*problem)
		if problem.RetryAfter > 0 {
			w.Header().Set("Retry-After", seconds(problem.RetryAfter))
		}
		return s.writeLogin(w, r, problem.Status, p)
	}
	http.Redirect(w, r, localPath(form.Get("to")), http.StatusSeeOther)
	return nil
}

func (s *server) postLogout(w http.ResponseWriter, r *http.Request) error {
	g := guestOf(r)
	if g.login != 0 {
		if err := s.DB.EndLogin(r.Context(), g.user, g.login); err != nil {
			return err
		}
	}
	s.setCookie(w, r, "", -1)
	http.Redirect(w, r, "/login", http.StatusSeeOther)
	s.changed(r.Context())
	return nil
}

// A setupLink opens the page that makes the first account, once.
type setupLink struct {
	mu     sync.Mutex // held while an account is made: one link makes one
	digest []byte     // of the token; nil when there is none. Once there is an account it opens nothing
	until  time.Time
}

// setupFor is how long the link is good.
const setupFor = time.Hour

// Setup returns the token of a link, /setup?token=…, that makes the first account. It is
// kept nowhere.
func (s *Server) Setup() string {
	token := chat.NewToken()
	l := &s.s.link
	l.mu.Lock()
	defer l.mu.Unlock()
	l.digest, l.until = chat.DigestToken(token), time.Now().Add(setupFor)
	return token
}

// opens reports whether token is that of the link; mu is held.
func (l *setupLink) opens(token string) bool {
	return l.digest != nil && time.Now().Before(l.until) && subtle.ConstantTimeCompare(l.digest, chat.DigestToken(token)) == 1
}

// refuseUnset is every answer but that page, until there is an account.
func (s *server) refuseUnset(w http.ResponseWriter, r *http.Request) error {
	if wantsPage(r) {
		return s.writePage(w, r, http.StatusForbidden, views.SetUp(views.SetupPage{Frame: s.frame(r)}))
	}
	return refuse(http.StatusForbidden, "setup_needed", chat.RetrySameID, "Nobody has an account here yet. The console of the server shows a link that makes the first.")
}

func (s *server) getSetup(w http.ResponseWriter, r *http.Request) error {
	if elsewhere, err := s.noSetup(w, r); err != nil || elsewhere {
		return err
	}
	token := r.URL.Query().Get("token")
	s.link.mu.Lock()
	opens := s.link.opens(token)
	s.link.mu.Unlock()
	if !opens {
		return s.refuseUnset(w, r)
	}
	return s.writePage(w, r, http.StatusOK, views.SetUp(views.SetupPage{Frame: s.frame(r), Token: token}))
}

// noSetup leads away where there is nothing to set up, or another page does it.
func (s *server) noSetup(w http.ResponseWriter, r *http.Request) (bool, error) {
	has, err := s.hasAccounts(r.Context())
	switch {
	case err != nil:
		return false, err
	case has:
		http.Redirect(w, r, "/login", http.StatusSeeOther)
		return true, nil
	case !s.Public:
		http.Redirect(w, r, "/admin/users", http.StatusSeeOther)
		return true, nil
	}
	return false, nil
}

func (s *server) postFirst(w http.ResponseWriter, r *http.Request) error {
	form, err := s.readForm(w, r)
	if err != nil {
		return err
	}
	token := form.Get("token")
	s.link.mu.Lock() // before the look, so that who comes second hashes nothing
	defer s.link.mu.Unlock()
	if elsewhere, err := s.noSetup(w, r); err != nil || elsewhere {
		return err
	}
	if !s.link.opens(token) {
		return s.refuseUnset(w, r)
	}
	name, hash, wrong, err := s.newPassword(r, form.Get("name"), form.Get("password"), form.Get("again"))
	if err != nil {
		return err
	}
	if wrong != "" {
		p := views.SetupPage{Frame: s.frame(r), Token: token, Name: form.Get("name")}
		p.Error = p.Locale.WrongAccount(wrong)
		return s.writePage(w, r, http.StatusUnprocessableEntity, views.SetUp(p))
	}
	id, err := s.DB.AddAccount(r.Context(), db.NewAccount{Name: name, Role: chat.RoleAdmin, Password: hash, Actor: "setup", First: true})
	if errors.Is(err, db.ErrNotNow) { // a command was faster
		http.Redirect(w, r, "/login", http.StatusSeeOther)
		return nil
	}
	if err != nil {
		return err
	}
	s.Log.Info("the first account is made", "name", name)
	if err := s.signIn(w, r, id, hash); err != nil {
		return err
	}
	http.Redirect(w, r, "/", http.StatusSeeOther)
	return nil
}

// newPassword checks a name and a password that was typed twice, and hashes it. wrong
// says what is, "" when nothing.
func (s *server) newPassword(r *http.Request, given, pass, again string) (name, hash, wrong string, err error) {
	name, ok := chat.ParseName(given)
	switch {
	case !ok:
		return "", "", "name", nil
	case pass != again:
		return "", "", "again", nil
	case !chat.GoodPassword(pass, name):
		return "", "", "password", nil
	}
	hash, err = s.hasher.Hash(r.Context(), pass)
	return name, hash, "", err
}

func seconds(d time.Duration) string { return fmt.Sprint(int64((d + time.Second - 1) / time.Second)) }
