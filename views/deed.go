package views

import (
	"net/url"
	"strconv"
	"time"

	"github.com/a-h/templ"
)

// deedName says what was done by hand; what is not known here is said as it is stored.
func (l *Locale) deedName(action string) string {
	switch action {
	case "redrive":
		return l.T("deed.redrive")
	case "abandon":
		return l.T("deed.abandon")
	case "compensate":
		return l.T("deed.compensate")
	case "refund":
		return l.T("deed.refund")
	case "adjustment":
		return l.T("deed.adjustment")
	case "stop":
		return l.T("deed.stop")
	case "release":
		return l.T("deed.release")
	case "retry":
		return l.T("deed.retry")
	case "reveal":
		return l.T("deed.reveal")
	case "backup":
		return l.T("deed.backup")
	}
	return action
}

func (l *Locale) deed(d Deed, account string) string {
	who := visibleText(d.Actor)
	if d.Actor == "user:"+account {
		who = l.T("effect.you")
	}
	text := l.T("deed.text", "what", l.deedName(d.Action), "who", who)
	if d.Reason != "" {
		text += " " + l.T("deed.why", "why", visibleText(d.Reason))
	}
	return text
}

// Deeds are the actions of the audit that this page knows by name.
var Deeds = []string{"redrive", "abandon", "compensate", "refund", "adjustment", "stop", "release", "retry", "reveal", "backup"}

// An AuditPage shows what was done by hand.
type AuditPage struct {
	Frame
	Filter AuditFilter
	Rows   []AuditRow
	Next   string // the next page begins before it; "": there is none
}

// An AuditFilter is what the address asks for.
type AuditFilter struct{ Object, Actor, Action string }

// An AuditRow is one deed.
type AuditRow struct {
	ID                            int64
	At                            time.Time
	Actor, Action, Object, Reason string
	RequestID, SessionID          string // "" where it is about no request
	UserID                        int64
}

func (r AuditRow) about() templ.SafeURL {
	return OpsRow{RequestID: r.RequestID, SessionID: r.SessionID, UserID: r.UserID}.detail()
}

func (f AuditFilter) address(before string) templ.SafeURL {
	q := url.Values{}
	for name, v := range map[string]string{"object": f.Object, "actor": f.Actor, "action": f.Action, "before": before} {
		if v != "" {
			q.Set(name, v)
		}
	}
	if len(q) == 0 {
		return "/ops/audit"
	}
	return templ.SafeURL("/ops/audit?" + q.Encode())
}

// detail is where all about one request is.
func (r OpsRow) detail() templ.SafeURL {
	q := url.Values{"sessionId": {r.SessionID}, "user": {strconv.FormatInt(r.UserID, 10)}}
	return templ.SafeURL("/ops/requests/" + url.PathEscape(r.RequestID) + "?" + q.Encode())
}
