package views

import (
	"strings"
	"time"

	"semel/chat"
)

// A LoginPage is where people show who they are.
type LoginPage struct {
	Frame
	To    string // where it leads
	Name  string // as typed
	Error string
	Kept  string // what somebody wrote in a form that came without a login
}

// A SetupPage makes the first account, for whoever has the link.
type SetupPage struct {
	Frame
	Token string // "" is somebody without it
	Name  string
	Error string
}

// A UsersPage is everybody who has an account.
type UsersPage struct {
	Frame
	First     bool  // there is none yet
	Me        int64 // whose page it is
	Users     []User
	Done      string
	Error     string
	Given     string // the name of an account that was not made
	GivenRole chat.Role
}

// A User is one account on it.
type User struct {
	ID       int64
	Name     string
	Role     chat.Role
	Disabled bool
	SeenAt   time.Time
	Logins   int
	Keys     []Key
}

// A Key is what a program is let in by; what it is made of nobody knows any more.
type Key struct {
	ID        int64
	Name      string
	Scope     chat.Scope
	CreatedAt time.Time
	UsedAt    time.Time
}

// An Account is that of the person who looks.
type Account struct {
	Name        string
	Role        chat.Role
	Logins      []Login
	Keys        []Key
	Secret      string // a key that was just made, shown this once
	FormID      string // minted for this page: the form that makes a key makes one
	Error       string
	Fingerprint string // of the certificate that the server made itself
}

// A Login is a browser in which somebody is signed in.
type Login struct {
	ID                int64
	Agent             string
	CreatedAt, SeenAt time.Time
	Here              bool
}

// browser names a browser and a system as far as people know them, by what they say.
func (l Login) browser(loc *Locale) string {
	find := func(names ...string) string {
		for i := 0; i < len(names); i += 2 {
			if strings.Contains(l.Agent, names[i]) {
				return names[i+1]
			}
		}
		return ""
	}
	// The order matters: most say that they are several.
	browser := find("Edg", "Edge", "OPR/", "Opera", "Firefox/", "Firefox", "FxiOS", "Firefox", "CriOS", "Chrome", "Chrome/", "Chrome", "Safari/", "Safari")
	system := find("Android", "Android", "iPhone", "iPhone", "iPad", "iPad", "Windows", "Windows", "Mac OS X", "macOS", "Linux", "Linux")
	switch {
	case browser == "":
		return loc.T("account.browser")
	case system == "":
		return browser
	}
	return loc.T("account.on", "browser", browser, "system", system)
}

// role names a role.
func (l *Locale) role(r chat.Role) string {
	switch r {
	case chat.RoleAdmin:
		return l.T("role.admin")
	case chat.RoleOperator:
		return l.T("role.operator")
	}
	return l.T("role.member")
}

// scope names what a key opens.
func (l *Locale) scope(s chat.Scope) string {
	if s == chat.ScopeOps {
		return l.T("key.ops")
	}
	return l.T("key.chat")
}

// WrongAccount says what is wrong with an account: "name", "password", "again", "taken",
// "last" or "key".
func (l *Locale) WrongAccount(what string) string {
	switch what {
	case "name":
		return l.T("users.wrong.name")
	case "again":
		return l.T("users.wrong.again")
	case "taken":
		return l.T("users.wrong.taken")
	case "last":
		return l.T("users.wrong.last")
	case "key":
		return l.T("users.wrong.key")
	case "form":
		return l.T("users.wrong.form")
	}
	return l.T("users.wrong.password", "n", l.Number(chat.MinPassword))
}

func (p UsersPage) done() string {
	switch p.Done {
	case "add":
		return p.Locale.T("users.done.add")
	case "role":
		return p.Locale.T("users.done.role")
	case "disable":
		return p.Locale.T("users.done.disable")
	case "enable":
		return p.Locale.T("users.done.enable")
	case "password":
		return p.Locale.T("users.done.password")
	case "revoke":
		return p.Locale.T("users.done.revoke")
	}
	return ""
}

// day writes a day of UTC.
func day(t time.Time) string { return t.UTC().Format(time.DateOnly) }
