package browsertest

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/input"

	"semel/chat"
)

// F7: short queries in any script, and the jump to what was found.
func TestSearchFindsAndLeadsToTheMessage(t *testing.T) {
	r := newRig(t)
	long := chat.NewID()
	r.ask(long, "[[echo 我秃发怎么办]] hair")
	for i := range 30 {
		r.ask(long, fmt.Sprintf("[[echo line %d]]", i))
	}
	r.ask(long, "[[echo 多喝水 ⭐]] drink")
	r.patch(long, map[string]any{"title": "Health", "seen": true})
	r.titled("<b>水</b> & more", "[[echo GPT 的回答]]")
	r.titled("other", "[[echo nothing of it]]")
	tb := newProfile(t).open("").arrives()
	tb.visit(r.url + "/")
	for _, c := range []struct {
		query string
		want  []row
	}{
		{"秃发", []row{{Title: "Health", Snippet: "我[秃发]怎么办"}}},
		{"⭐", []row{{Title: "Health", Snippet: "多喝水 [⭐]"}}},
		{"水", []row{{Title: "<b>水</b> & more"}, {Title: "Health", Snippet: "多喝[水] ⭐"}}},
		{"GPT 回答", []row{{Title: "<b>水</b> & more", Snippet: "[GPT] 的[回答]"}}},
		{"no such thing", nil},
	} {
		tb.find(c.query)
		var got []row
		holds := func() bool {
			got = nil
			for _, row := range tb.rows() {
				if row.Snippet = strings.TrimSpace(row.Snippet); strings.HasPrefix(row.Snippet, "[[echo") || strings.HasPrefix(row.Snippet, "…") {
					continue
				}
				got = append(got, rowOf(row))
			}
			return slices.EqualFunc(got, c.want, func(a, b row) bool { return a.Title == b.Title && a.Snippet == b.Snippet })
		}
		for deadline := time.Now().Add(*patience); !holds(); time.Sleep(25 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("%q finds\n%+v, want\n%+v", c.query, got, c.want)
			}
		}
		tb.inert()
	}
	if hint := js[string](tb, `document.querySelector('#conversations .hint:not([hidden])').textContent`); hint != "Nothing found." {
		t.Errorf("it says %q", hint)
	}
	// The jump, to the beginning of a long conversation.
	tb.find("秃发")
	tb.wait(`document.querySelector('#conversations li a')?.getAttribute('href')?.endsWith('#m-2')`)
	tb.click("#conversations li a", 1)
	tb.wait(`location.pathname === '/c/%s' && document.querySelector('.message.arrived')`, long)
	if top, height := tb.still(`#log [data-seq="2"]`), js[float64](tb, `innerHeight`); top < 0 || top > height {
		t.Errorf("the message is at %v of %v", top, height)
	}
	// Emptying the field brings the list back.
	tb.find("水")
	tb.wait(`document.querySelectorAll('#conversations li').length === 2`)
	tb.find("")
	tb.titles("other", "<b>水</b> & more", "Health")
}

// arrives leaves the mark on what a search led to: it goes by itself, sooner than a busy
// machine may look.
func (tb *tab) arrives() *tab {
	tb.t.Helper()
	tb.before(`{ const set = setTimeout; window.setTimeout = (f, ms, ...a) => ms === 2500 ? 0 : set(f, ms, ...a); }`)
	return tb
}

func rowOf(r row) row { return row{Title: r.Title, Snippet: r.Snippet} }

// find types into the search field.
func (tb *tab) find(query string) {
	tb.t.Helper()
	js[any](tb, `(() => { const q = document.querySelector('#q'); q.focus(); q.select(); })()`)
	if query == "" {
		tb.key("Backspace", 8, "")
		return
	}
	call(tb, input.InsertText, input.InsertTextParams{Text: query})
}

// A hit on a branch that is not shown leads there.
func TestAHitOnAnotherBranchIsShown(t *testing.T) {
	r := newRig(t)
	session := chat.NewID()
	r.ask(session, "[[echo the first way]]")
	id := chat.NewID()
	if status := r.api(http.MethodPost, "/api/chat", map[string]string{"sessionId": session, "requestId": id, "kind": "edit", "parentId": session + ".1", "content": "[[echo the other way]]"}, nil); status != http.StatusOK {
		t.Fatalf("status %d", status)
	}
	tb := newProfile(t).open("").arrives()
	tb.visit(r.url + "/")
	tb.find("first way")
	tb.wait(`document.querySelector('#conversations li a .snippet')`)
	tb.click("#conversations li a", 1)
	tb.wait(`document.querySelector('.message.arrived')`)
	tb.reads("? [[echo the first way]]", "! the first way")
}
