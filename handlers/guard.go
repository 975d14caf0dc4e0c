package handlers

import (
	"context"
	"errors"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"time"

	"semel/chat"
	"semel/db"
)

// A guest is who asks. The zero guest is nobody in particular.
type guest struct {
	user  int64
	name  string // "" is the one user of this machine, without accounts
	role  chat.Role
	login int64 // the login it came by
	key   int64 // or the key
	scope chat.Scope
	until time.Time // the login is over then
}

type guestKey struct{}

func guestOf(r *http.Request) guest {
	g, _ := r.Context().Value(guestKey{}).(guest)
	return g
}

// user is who asks, 0 for nobody: nobody has anything.
func (s *server) user(r *http.Request) int64 { return guestOf(r).user }

// localGuest is the one user of a program without accounts, who may do all.
var localGuest = guest{user: db.LocalUser, role: chat.RoleAdmin}

// A credential is what a request shows of who sends it. The zero one shows nothing.
type credential struct {
	digest string // of a token or a key
	key    bool
}

// A ticket is a request that was let in and is not over.
type ticket struct {
	by     credential
	cancel context.CancelCauseFunc
	guest  guest // under tickets.mu; nobody until it is known
	looks  int   // under tickets.mu; what tickets.looks was
}

// recheckEvery is how soon a request that goes on is cut whose sender is not let in any
// more, where that was changed beside this process; what this one changes, it acts on at
// once.
const recheckEvery = 2 * time.Second

// tickets are all requests that go on. Its methods may be called by many goroutines.
type tickets struct {
	mu     sync.Mutex
	open   map[*ticket]bool // under mu
	looks  int              // under mu; how often all were looked at
	timer  *time.Timer      // under mu; runs while any is open
	closed bool             // under mu
}

var (
	errSignedOut = errors.New("the sender is not let in any more")
	errNoAccount = errors.New("no account shows")
)

// guard lets in whom the table of rights names. It stands before everything but what
// proves itself.
func (s *server) guard(next http.Handler) http.Handler {
	return s.handle(func(w http.ResponseWriter, r *http.Request) error {
		may := s.rightOf(r)
		has, err := s.hasAccounts(r.Context())
		if err != nil {
			return err
		}
		switch {
		case !has && s.Public:
			if !may.first {
				return s.refuseUnset(w, r)
			}
			next.ServeHTTP(w, r)
			return nil
		case !has:
			if err := s.onlyHere(r); err != nil {
				return err
			}
		}
		if may.blind {
			next.ServeHTTP(w, r)
			return nil
		}
		// The ticket is there before the look, and the look is repeated where something
		// changed meanwhile: nobody slips in between a change and what it cuts.
		ctx, cancel := context.WithCancelCause(r.Context())
		defer cancel(nil)
		t := &ticket{by: s.shown(r), cancel: cancel}
		s.tickets.add(t, s.recheck)
		defer s.tickets.remove(t)
		var g guest
		for granted := false; !granted; granted = s.tickets.grant(t, g) {
			if g, err = s.letIn(ctx, t.by, has); err != nil && !errors.Is(err, errNoAccount) {
				return err
			}
		}
		r = r.WithContext(context.WithValue(ctx, guestKey{}, g))
		if err != nil && may.role != "" {
			return s.refuseUnknown(w, r)
		}
		if err := s.allowed(g, may); err != nil {
			if wantsPage(r) {
				return s.note(w, r, s.told(r, err))
			}
			return err
		}
		next.ServeHTTP(w, r)
		return nil
	})
}

// shown is what a request shows of its sender. A key counts alone: who
// sends one does not mean the cookie.
func (s *server) shown(r *http.Request) credential {
	// Basic is what a proxy asked for.
	if scheme, secret, _ := strings.Cut(r.Header.Get("Authorization"), " "); strings.EqualFold(scheme, "Bearer") {
		return credential{string(chat.DigestToken(strings.TrimSpace(secret))), true}
	}
	if c, err := r.Cookie(s.cookieName(r)); err == nil && c.Value != "" {
		return credential{string(chat.DigestToken(c.Value)), false}
	}
	return credential{}
}

// touchAfter is how old the note of the last use of a login or a key may be.
const touchAfter = time.Minute

// hasAccounts asks the file until there are some: a command may add the first.
func (s *server) hasAccounts(ctx context.Context) (bool, error) {
	if s.accounts.Load() {
		return true, nil
	}
	has, err := s.DB.HasAccounts(ctx)
	if has && !s.accounts.Swap(true) {
		s.Engine.CapRunning(s.RunningPerUser)
	}
	return has, err
}

// letIn finds out who shows c. Errors: errNoAccount for nobody.
func (s *server) letIn(ctx context.Context, c credential, has bool) (guest, error) {
	if !has {
		return localGuest, nil
	}
	switch {
	case c.digest == "":
		return guest{}, errNoAccount
	case c.key:
		k, err := s.DB.Key(ctx, []byte(c.digest))
		if errors.Is(err, db.ErrNotFound) {
			return guest{}, errNoAccount
		}
		if err == nil && time.Since(k.UsedAt) > touchAfter {
			s.touched(s.DB.TouchKey(ctx, k.ID))
		}
		return guest{user: k.UserID, name: k.User, role: k.Role, key: k.ID, scope: k.Scope}, err
	}
	l, err := s.DB.Login(ctx, []byte(c.digest), s.Idle)
	if errors.Is(err, db.ErrNotFound) {
		return guest{}, errNoAccount
	}
	if err == nil && time.Since(l.SeenAt) > touchAfter {
		s.touched(s.DB.TouchLogin(ctx, l.ID))
	}
	return guest{user: l.Account.ID, name: l.Account.Name, role: l.Account.Role, login: l.ID, until: l.ExpiresAt}, err
}

// touched makes no fuss: reading goes on where writing cannot.
func (s *server) touched(err error) {
	if err != nil {
		s.Log.Warn("the last use is not noted", "error", err)
	}
}

// allowed returns why a guest may not use a route, nil when it may.
func (s *server) allowed(g guest, may right) error {
	switch {
	case may.role == "":
		return nil
	case may.role == noRole:
		return refuse(http.StatusForbidden, "forbidden_role", chat.RetryNever, "The table of rights (handlers/rights.go) has no line for this route: add one.")
	case g.key != 0 && (may.scope == "" || g.scope != may.scope):
		return refuse(http.StatusForbidden, "forbidden_scope", chat.RetryNever, "The key is not for this.")
	case !g.role.Has(may.role):
		return refuse(http.StatusForbidden, "forbidden_role", chat.RetryNever, "This is for other roles than "+string(g.role)+".")
	}
	return nil
}

// refuseUnknown tells a program that it must show who it is, and leads a person to
// where that is done. A form that came is given back: it may hold what somebody wrote.
func (s *server) refuseUnknown(w http.ResponseWriter, r *http.Request) error {
	if !wantsPage(r) {
		w.Header().Set("WWW-Authenticate", `Bearer realm="Semel"`)
		return signedOut()
	}
	if r.Method == http.MethodGet || r.Method == http.MethodHead {
		http.Redirect(w, r, "/login?to="+url.QueryEscape(r.URL.RequestURI()), http.StatusSeeOther)
		return nil
	}
	form, err := s.readForm(w, r)
	if err != nil {
		return err
	}
	p := s.loginPage(r, "/")
	if strings.HasPrefix(r.URL.Path, "/c/") {
		p.To = "/c/" + strings.Split(r.URL.Path, "/")[2]
	}
	p.Kept = form.Get("content")
	return s.writeLogin(w, r, http.StatusUnauthorized, p)
}

func signedOut() *chat.Problem {
	return refuse(http.StatusUnauthorized, "signed_out", chat.RetrySameID, "Sign in, or send a key: Authorization: Bearer KEY.")
}

// recheck cuts every open request whose sender is not let in any more, or not as it
// was.
func (s *server) recheck() {
	ctx := context.Background()
	open := s.tickets.granted()
	has, err := s.hasAccounts(ctx)
	if err != nil {
		return // nothing is known: the next look may
	}
	now := map[credential]guest{}
	for t, was := range open {
		g, looked := now[t.by]
		if !looked {
			var err error
			if g, err = s.letIn(ctx, t.by, has); err != nil && !errors.Is(err, errNoAccount) {
				continue
			}
			now[t.by] = g
		}
		if g.user != was.user || g.role != was.role || g.login != was.login || g.key != was.key || g.name != was.name {
			t.cancel(errSignedOut)
		}
	}
}

// changed is called after every change of an account, a login or a key: what is open by
// it ends at once, and so do the runs of who is disabled.
func (s *server) changed(ctx context.Context) {
	s.recheck()
	if err := s.Engine.StopDisabled(context.WithoutCancel(ctx)); err != nil {
		s.Log.Error("stop the runs of disabled users", "error", err)
	}
}

func (t *tickets) add(k *ticket, recheck func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.open == nil {
		t.open = map[*ticket]bool{}
	}
	t.open[k], k.looks = true, t.looks
	t.arm(recheck)
}

// arm starts the timer unless it runs; mu is held.
func (t *tickets) arm(recheck func()) {
	if t.timer != nil || t.closed {
		return
	}
	t.timer = time.AfterFunc(recheckEvery, func() {
		recheck()
		t.mu.Lock()
		defer t.mu.Unlock()
		if t.timer = nil; len(t.open) > 0 {
			t.arm(recheck)
		}
	})
}

func (t *tickets) remove(k *ticket) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.open, k)
}

// grant notes whose ticket k is, unless something may have changed since it was added,
// or since the last time.
func (t *tickets) grant(k *ticket, g guest) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if k.looks != t.looks {
		k.looks = t.looks
		return false
	}
	if g.user == 0 {
		delete(t.open, k) // nobody's: there is nothing to cut
	}
	k.guest = g
	return true
}

// granted begins a look and returns whose the open requests are.
func (t *tickets) granted() map[*ticket]guest {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.looks++
	all := make(map[*ticket]guest, len(t.open))
	for k := range t.open {
		if k.guest.user != 0 {
			all[k] = k.guest
		}
	}
	return all
}

func (t *tickets) close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed = true
	if t.timer != nil {
		t.timer.Stop()
	}
}

// secure reports whether what a browser and this server say to each other is read by
// nobody else, as far as this server knows.
func (s *server) secure(r *http.Request) bool {
	if r.TLS != nil {
		return true
	}
	return s.fromProxy(r) && lastValue(r, "X-Forwarded-Proto") == "https"
}

// cookieName is the name of the cookie of a login: with the prefix, no other server of
// the same name and no page on plain http can set it.
func (s *server) cookieName(r *http.Request) string {
	if s.secure(r) {
		return "__Host-semel"
	}
	return "semel"
}

// fromProxy reports whether a proxy that is trusted sent r.
func (s *server) fromProxy(r *http.Request) bool {
	ip, ok := peer(r)
	return ok && s.trusts(ip)
}

func (s *server) trusts(ip netip.Addr) bool {
	for _, p := range s.TrustedProxies {
		if p.Contains(ip) {
			return true
		}
	}
	return false
}

// peer is who holds the other end of the connection.
func peer(r *http.Request) (netip.Addr, bool) {
	a, err := netip.ParseAddrPort(r.RemoteAddr)
	return a.Addr().Unmap().WithZone(""), err == nil
}

// client is the address that a request came from: the peer's, and where that is a proxy
// that is trusted, the last one of X-Forwarded-For that is none. Whatever stands before
// that one, anybody can have written.
func (s *server) client(r *http.Request) netip.Addr {
	ip, ok := peer(r)
	if !ok || !s.trusts(ip) {
		return ip
	}
	hops := strings.Split(strings.Join(r.Header.Values("X-Forwarded-For"), ","), ",")
	for i := len(hops) - 1; i >= 0; i-- {
		hop, err := netip.ParseAddr(strings.TrimSpace(hops[i]))
		if err != nil {
			if a, aerr := netip.ParseAddrPort(strings.TrimSpace(hops[i])); aerr == nil {
				hop, err = a.Addr(), nil
			}
		}
		if err != nil {
			return ip // the nearest that is known
		}
		if ip = hop.Unmap().WithZone(""); !s.trusts(ip) {
			return ip
		}
	}
	return ip
}

func lastValue(r *http.Request, name string) string {
	values := strings.Split(strings.Join(r.Header.Values(name), ","), ",")
	return strings.ToLower(strings.TrimSpace(values[len(values)-1]))
}
