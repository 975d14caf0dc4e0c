package browsertest

import (
	"database/sql"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/input"

	"semel/chat"
	"semel/db"
	"semel/db/dbtest"
)

// A row is one conversation as the list shows it.
type row struct {
	Group, Title, Snippet string
	Marks                 []string
	Current               bool
}

func (tb *tab) rows() []row {
	tb.t.Helper()
	return js[[]row](tb, `[...document.querySelectorAll('#conversations li')].map((li) => ({
		Group: li.closest('section').querySelector('h2').textContent, Title: li.querySelector('.name').textContent.trim(),
		Snippet: [...li.querySelector('.snippet')?.children ?? []].map((e) => e.localName === 'mark' ? '[' + e.textContent + ']' : e.textContent).join(''),
		Marks: [...(li.querySelector('.state').offsetWidth ? li.querySelectorAll('.state .unseen') : [])].filter((e) => getComputedStyle(e).display !== 'none').map((e) => e.className.split(' ')[1]),
		Current: li.querySelector('a').hasAttribute('aria-current')}))`)
}

// titles waits until the list has exactly these titles, in this order.
func (tb *tab) titles(want ...string) {
	tb.t.Helper()
	var got []string
	read := func() bool {
		got = nil
		return tb.eval(`[...document.querySelectorAll('#conversations .name')].map((e) => e.textContent.trim())`, &got) == nil && slices.Equal(got, want)
	}
	for deadline := time.Now().Add(*patience); !read(); time.Sleep(25 * time.Millisecond) {
		if time.Now().After(deadline) {
			tb.t.Fatalf("the list has %q, want %q", got, want)
		}
	}
}

// ready waits until the page's script is at work.
func (tb *tab) ready() *tab {
	tb.t.Helper()
	tb.wait(`document.documentElement.classList.contains('js')`)
	return tb
}

// menu does something with the conversation of a title, by the menu of its row.
func (tb *tab) menu(title, do string) {
	tb.t.Helper()
	id := js[string](tb, `[...document.querySelectorAll('#conversations li')].find((li) => li.querySelector('.name').textContent.trim() === %q)?.dataset.id ?? ''`, title)
	if id == "" {
		tb.t.Fatalf("there is no row %q among %+v", title, tb.rows())
	}
	js[any](tb, `document.querySelector('#conversations li[data-id="%s"] a').focus()`, id)
	tb.click(`#conversations li[data-id="`+id+`"] .actions`, 1)
	tb.click(`#row-menu [data-do=`+do+`]`, 1)
}

// when moves a conversation in time, as if it had been answered then.
func (r *rig) when(session string, at time.Time) {
	r.t.Helper()
	c, err := sql.Open("sqlite", r.db.Path()+"?_pragma=busy_timeout(5000)")
	if err != nil {
		r.t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.ExecContext(r.t.Context(), `UPDATE conversations SET updated_at = ? WHERE session_id = ?`, at.UnixMilli(), session); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) titled(title, content string) string {
	r.t.Helper()
	session := chat.NewID()
	r.ask(session, content)
	if title != "" {
		r.patch(session, map[string]any{"title": title})
	}
	r.patch(session, map[string]any{"seen": true})
	return session
}

func (r *rig) patch(session string, body map[string]any) {
	r.t.Helper()
	if status := r.api(http.MethodPatch, "/api/conversations/"+session, body, nil); status != http.StatusOK {
		r.t.Fatalf("patch %v: status %d", body, status)
	}
}

// Days are those of the reader's own clock, not of the server's.
func TestConversationsStandUnderTheDaysOfTheReader(t *testing.T) {
	r := newRig(t)
	// In Kiritimati it is tomorrow for most of the day.
	name := "Pacific/Kiritimati"
	if time.Now().UTC().Hour() == 9 { // soon it is tomorrow there, and what is just now were yesterday
		name = "Pacific/Pago_Pago"
	}
	zone, err := time.LoadLocation(name)
	if err != nil {
		t.Skip(err)
	}
	now := time.Now().In(zone)
	day := func(back int, hour, minute int) time.Time {
		return time.Date(now.Year(), now.Month(), now.Day()-back, hour, minute, 0, 0, zone)
	}
	var want []string
	for _, c := range []struct {
		title, group string
		at           time.Time
	}{
		{"just now", "Today", now},
		{"after midnight", "Today", day(0, 0, 0)},
		{"before midnight", "Yesterday", day(0, 0, 0).Add(-time.Second)},
		{"two days ago", "Previous 7 days", day(2, 12, 0)},
		{"seven days ago", "Previous 7 days", day(7, 0, 1)},
		{"eight days ago", "Previous 30 days", day(8, 23, 59)},
		{"thirty days ago", "Previous 30 days", day(30, 0, 1)},
		{"long ago", "March 2024", time.Date(2024, 3, 31, 23, 59, 0, 0, zone)},
		{"longer ago", "March 2024", time.Date(2024, 3, 1, 0, 1, 0, 0, zone)},
	} {
		r.when(r.titled(c.title, "[[echo x]]"), c.at)
		want = append(want, c.group+": "+c.title)
	}
	pinned := r.titled("kept", "[[echo x]]")
	r.patch(pinned, map[string]any{"pinned": true})
	r.when(pinned, day(100, 0, 0))
	want = append([]string{"Pinned: kept"}, want...)
	tb := newProfile(t).open("")
	call(tb, emulation.SetTimezoneOverride, emulation.SetTimezoneOverrideParams{TimezoneID: name})
	tb.visit(r.url + "/")
	tb.ready()
	shown := func(what string, want []string) {
		t.Helper()
		var got []string
		for _, row := range tb.rows() {
			got = append(got, row.Group+": "+row.Title)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s:\n got %q\nwant %q", what, got, want)
		}
	}
	shown("as the page came", want)
	// The same after the list was fetched anew.
	r.titled("newest", "[[echo x]]")
	tb.wait(`document.querySelectorAll('#conversations li').length === %d && [...document.querySelectorAll('.name')].some((e) => e.textContent.trim() === 'newest')`, len(want)+1)
	shown("live", slices.Insert(slices.Clone(want), 1, "Today: newest"))
	if heads := js[int](tb, `document.querySelectorAll('#conversations section').length`); heads != 6 {
		t.Errorf("%d headings", heads)
	}
}

func TestTheListIsFetchedAPageAtATime(t *testing.T) {
	r := newRig(t)
	var want []string
	for i := range 60 {
		session := chat.NewID()
		dbtest.Accept(t, r.db, session, fmt.Sprintf("question %02d", i))
		r.when(session, time.Now().Add(-time.Hour+time.Duration(i)*time.Second))
		want = append([]string{fmt.Sprintf("question %02d", i)}, want...)
	}
	tb := newProfile(t).open(r.url + "/").ready()
	tb.titles(want[:50]...)
	tb.click("#conversations .more a", 1)
	tb.titles(want...)
	tb.wait(`document.querySelector('#conversations .more').hidden`)
	// What is on screen stays there when the list changes.
	session := r.titled("", "[[echo alpha]]")
	tb.titles(append([]string{"[[echo alpha]]"}, want...)...)
	_ = session
}

// A list that was asked for before there was more on screen takes none of it away.
func TestALateListTakesNothingAway(t *testing.T) {
	r := newRig(t)
	var want []string
	for i := range 60 {
		session := chat.NewID()
		dbtest.Accept(t, r.db, session, fmt.Sprintf("question %02d", i))
		r.when(session, time.Now().Add(-time.Hour+time.Duration(i)*time.Second))
		want = append([]string{fmt.Sprintf("question %02d", i)}, want...)
	}
	tb := newProfile(t).open("")
	tb.before(`{ const real = fetch; window.fetch = async (url, init) => {
		const response = await real(url, init);
		if (String(url).startsWith('/api/conversations?') && !String(url).includes('before=') && !window.late) {
			await new Promise((arrive) => { window.late = arrive; });
		}
		return response;
	}; }`)
	tb.visit(r.url + "/")
	tb.ready()
	tb.wait(`window.late`) // what the page asks for when its feed begins
	tb.titles(want[:50]...)
	tb.click("#conversations .more a", 1)
	tb.titles(want...)
	js[any](tb, `window.late()`)
	r.titled("", "[[echo alpha]]") // it is asked for again, and now all that is on screen
	tb.titles(append([]string{"[[echo alpha]]"}, want...)...)
	tb.wait(`document.querySelector('#conversations .more').hidden`)
}

// D1, D2: rename in place; an Enter of an input method takes nothing, Escape takes it back.
func TestRenameInPlace(t *testing.T) {
	r := newRig(t)
	first, second := r.titled("first", "[[echo one]]"), r.titled("second", "[[echo two]]")
	tb := newProfile(t).open(r.url + "/c/" + first).ready()
	other := newProfile(t).open(r.url + "/c/" + second).ready()
	title := func(session string) string {
		var th thread
		r.get("/api/conversations/"+session, &th)
		return th.Title
	}
	type_ := func(events string) {
		t.Helper()
		js[any](tb, `(() => {`+stamped+`
			const field = document.querySelector('#conversations .rename');
			const composition = (type, data = '') => field.dispatchEvent(stamp(new CompositionEvent(type, {data, bubbles: true})));
			const type = (text) => { field.value = text; field.dispatchEvent(new InputEvent('input', {data: text, bubbles: true})); };
			const key = (key, init) => field.dispatchEvent(stamp(new KeyboardEvent('keydown', {key, code: key, bubbles: true, cancelable: true, keyCode: key === 'Enter' ? 13 : 27, ...init})));
			`+events+`
		})()`)
	}
	tb.menu("first", "rename")
	for name, events := range map[string]string{
		"Safari: the composition ends before its Enter":  `composition('compositionstart'); type('biao ti'); composition('compositionend', '标题'); key('Enter', {keyCode: 229});`,
		"Chrome: the Enter comes inside":                 `composition('compositionstart'); key('Enter', {keyCode: 229, isComposing: true}); composition('compositionend', '标题'); pass(50);`,
		"an embedded one: an ordinary Enter right after": `composition('compositionstart'); composition('compositionend', '标题'); key('Enter');`,
		"Escape inside a composition":                    `composition('compositionstart'); key('Escape', {keyCode: 229, isComposing: true}); composition('compositionend'); pass(50);`,
	} {
		type_(events)
		if !js[bool](tb, `Boolean(document.querySelector('#conversations .rename'))`) {
			t.Fatalf("%s: it was taken for the end", name)
		}
	}
	if got := title(first); got != "first" {
		t.Fatalf("the title is %q before an Enter", got)
	}
	type_(`pass(50); type('  旅行  计划 '); key('Enter');`)
	tb.titles("second", "旅行 计划")
	other.titles("second", "旅行 计划")
	tb.wait(`document.querySelector('#title').textContent === '旅行 计划' && document.title === '旅行 计划 · Semel'`)
	if got := title(first); got != "旅行 计划" {
		t.Errorf("the title is %q", got)
	}
	if !js[bool](tb, `document.activeElement.closest('li')?.dataset.id === '%s'`, first) {
		t.Error("the focus is not on the row")
	}
	tb.menu("second", "rename")
	type_(`type('never'); key('Escape');`)
	tb.titles("second", "旅行 计划")
	if got := title(second); got != "second" {
		t.Errorf("Escape gave the title %q", got)
	}
	// Leaving the field takes what is typed; nothing typed is no title.
	tb.menu("second", "rename")
	type_(`type(''); field.blur();`)
	tb.titles("second", "旅行 计划")
	tb.menu("second", "rename")
	type_(`type('left'); field.blur();`)
	tb.titles("left", "旅行 计划")
}

// F2: the menu offers the title of before, once there is another.
func TestATitleGoesBackToTheFirstWords(t *testing.T) {
	r := newRig(t)
	session := r.titled("", "[[echo alpha]] beta")
	tb := newProfile(t).open(r.url + "/c/" + session).ready()
	offered := func() bool {
		t.Helper()
		row := `#conversations li[data-id="` + session + `"]`
		js[any](tb, `document.querySelector('%s a').focus()`, row)
		tb.click(row+" .actions", 1)
		tb.wait(`document.querySelector('#row-menu').matches(':popover-open')`)
		defer func() {
			tb.key("Escape", 27, "")
			tb.wait(`!document.querySelector('#row-menu').matches(':popover-open')`)
		}()
		return js[bool](tb, `document.querySelector('#row-menu [data-do=unname]').checkVisibility()`)
	}
	if offered() {
		t.Error("it is offered where nobody gave a title")
	}
	tb.menu("[[echo alpha]] beta", "rename")
	js[any](tb, `document.querySelector('.rename').select()`)
	call(tb, input.InsertText, input.InsertTextParams{Text: "gamma"})
	tb.enter()
	tb.titles("gamma")
	tb.wait(`document.querySelector('#title').textContent === 'gamma'`)
	tb.menu("gamma", "unname")
	tb.titles("[[echo alpha]] beta")
	tb.wait(`document.querySelector('#title').textContent === '[[echo alpha]] beta'`)
	if offered() {
		t.Error("it is still offered")
	}
	r.check(1, tb)
}

// D2, with the browser's own composition.
func TestRenameWithAComposition(t *testing.T) {
	r := newRig(t)
	r.titled("first", "[[echo one]]")
	tb := newProfile(t).open(r.url + "/").ready()
	tb.menu("first", "rename")
	call(tb, input.ImeSetComposition, input.ImeSetCompositionParams{Text: "ji hua", SelectionStart: 6, SelectionEnd: 6})
	tb.key("Enter", 229, "")
	if !js[bool](tb, `Boolean(document.querySelector('#conversations .rename'))`) {
		t.Fatal("an Enter during the composition ended it")
	}
	call(tb, input.InsertText, input.InsertTextParams{Text: "计划"})
	js[any](tb, `new Promise((resume) => setTimeout(resume, 50))`)
	tb.enter()
	tb.titles("计划")
}

func TestDeleteAndUndo(t *testing.T) {
	r := newRig(t)
	first, second := r.titled("first", "[[echo one]]"), r.titled("second", "[[echo two]]")
	tb := newProfile(t).open(r.url + "/c/" + first).ready()
	other := newProfile(t).open(r.url + "/").ready()
	tb.menu("second", "delete")
	tb.titles("first")
	other.titles("first")
	tb.wait(`document.querySelector('#toast span').textContent === '“second” is deleted.'`) // the list may know it sooner
	if status := r.get("/api/conversations/"+second, nil); status != http.StatusGone {
		t.Errorf("the server says %d", status)
	}
	tb.click("#toast .link", 1)
	tb.titles("second", "first")
	other.titles("second", "first")
	if js[bool](tb, `document.querySelector('#toast').matches(':popover-open')`) {
		t.Error("the toast stays")
	}
	// The one on screen, by its own button: the page goes, and comes back.
	tb.click("#top [data-action=delete]", 1)
	tb.wait(`location.pathname === '/' && document.querySelector('#toast').matches(':popover-open')`)
	tb.titles("second")
	tb.click("#toast .link", 1)
	tb.wait(`location.pathname === '/c/%s'`, first)
	tb.titles("second", "first")
	r.check(2, tb)
}

func TestPinAndArchive(t *testing.T) {
	r := newRig(t)
	first := r.titled("first", "[[echo one]]")
	r.titled("second", "[[echo two]]")
	r.titled("third", "[[echo three]]")
	p := newProfile(t)
	tb := p.open(r.url + "/").ready()
	other := newProfile(t).open(r.url + "/").ready()
	tb.menu("first", "pin")
	for _, tb := range []*tab{tb, other} {
		tb.titles("first", "third", "second")
		if g := tb.rows()[0].Group; g != "Pinned" {
			t.Errorf("the first stands under %q", g)
		}
	}
	tb.menu("third", "archive")
	tb.titles("first", "second")
	tb.click("#toast .link", 1)
	tb.titles("first", "third", "second")
	tb.menu("first", "archive")
	tb.titles("third", "second")
	other.titles("third", "second")
	other.click("#archive", 1)
	other.titles("first")
	other.menu("first", "unarchive")
	other.titles()
	if hint := js[string](other, `document.querySelector('#conversations .hint:not([hidden])').textContent`); hint != "The archive is empty." {
		t.Errorf("the empty archive says %q", hint)
	}
	other.click("#archive", 1)
	other.titles("third", "second", "first")
	tb.titles("third", "second", "first")
	tb.menu("first", "archive")
	tb.titles("third", "second")
	// A new question brings it back.
	r.ask(first, "[[echo more]]")
	tb.titles("first", "third", "second")
}

// Without scripts: the list, its pages, the search, and what is done to the
// conversation on screen.
func TestTheListWorksWithoutScripts(t *testing.T) {
	r := newRig(t)
	for i := range 55 {
		dbtest.Accept(t, r.db, chat.NewID(), fmt.Sprintf("question %02d", i))
	}
	session := r.titled("first", "[[echo 秃发]]")
	tb := newProfile(t).withoutScripts(r.url + "/c/" + session).allow("status of 410")
	list := func() int { return js[int](tb, `document.querySelectorAll('#conversations li').length`) }
	if n := list(); n != 50 {
		t.Fatalf("%d rows", n)
	}
	if js[bool](tb, `[...document.querySelectorAll('#conversations .actions, #conversations .state')].some((e) => e.offsetWidth)`) {
		t.Error("there are buttons that do nothing")
	}
	tb.click("#conversations .more a", 1)
	tb.wait(`document.querySelectorAll('#conversations li').length === 6`)
	js[any](tb, `document.querySelector('#q').value = '秃发'`)
	tb.click("#q", 1)
	tb.enter()
	tb.wait(`document.querySelectorAll('#conversations li').length === 1`)
	if got := tb.rows(); got[0].Title != "first" || got[0].Snippet != "[秃发]" {
		t.Errorf("found %+v", got)
	}
	tb.visit(r.url + "/c/" + session)
	tb.click(`.manage [value=pin]`, 1)
	tb.wait(`document.querySelector('.manage [value=unpin]') && document.querySelector('#conversations h2').textContent === 'Pinned'`)
	js[any](tb, `document.querySelector('.manage [name=title]').value = 'second'`)
	tb.click(`.manage [value=rename]`, 1)
	tb.wait(`document.querySelector('#title').textContent === 'second'`)
	tb.click(`.manage [value=archive]`, 1)
	tb.wait(`document.querySelector('#conversations h2').textContent !== 'Pinned'`)
	tb.click("#archive", 1)
	tb.wait(`document.querySelector('.manage [value=unarchive]') && document.querySelectorAll('#conversations li').length === 1`)
	tb.click(`.manage [value=delete]`, 1)
	tb.wait(`document.querySelector('.note [value=restore]')`)
	tb.click(`.note [value=restore]`, 1)
	tb.wait(`document.querySelectorAll('#log article').length === 2`)
	if _, err := r.db.Thread(t.Context(), db.LocalUser, session); err != nil {
		t.Error(err)
	}
}

// Every state of the list, in both languages, by day and by night, on a desk and on
// a phone: nothing is wider than the screen, nor than the list.
func TestTheListFitsEveryScreen(t *testing.T) {
	r := newRig(t)
	now := time.Now()
	for i, c := range []struct {
		title, content string
		back           time.Duration
	}{
		{"", "[[echo 多喝水，多休息。]] 我秃发怎么办？有没有什么好办法可以让头发重新长出来，而且不用吃药？", 0},
		{"", "[[echo Nothing is faster than water.]] What is the difference between a watercourse and a waterfall, in one sentence?", time.Minute},
		{"A-title-without-any-break-" + strings.Repeat("0123456789", 4), "[[echo water]]", 26 * time.Hour},
		{"旅行计划", "[[echo 水上巴士]]", 4 * 24 * time.Hour},
		{"Garden", "[[echo more water]]", 20 * 24 * time.Hour},
		{"Old things", "[[echo water]]", 200 * 24 * time.Hour},
		{"Pinned one", "[[echo x]]", 300 * 24 * time.Hour},
	} {
		session := r.titled(c.title, c.content)
		if c.title == "Pinned one" {
			r.patch(session, map[string]any{"pinned": true})
		}
		r.when(session, now.Add(-c.back))
		if i == 1 || i == 3 {
			r.ask(session, "[[echo news]]")
			r.when(session, now.Add(-c.back))
		}
	}
	dbtest.Accept(t, r.db, chat.NewID(), "This one is being answered")
	states := []struct{ name, enter, leave string }{
		{"list", ``, ``},
		{"search", `const q = document.querySelector('#q'); q.value = '水'; q.dispatchEvent(new Event('input')); await until(() => document.querySelector('#conversations mark'))`,
			`const q = document.querySelector('#q'); q.value = ''; q.dispatchEvent(new Event('input')); await until(() => !document.querySelector('#conversations mark'))`},
		{"menu", `document.querySelectorAll('#conversations .actions')[2].click()`, `document.querySelector('#row-menu').hidePopover()`},
		{"rename", `document.querySelectorAll('#conversations .actions')[2].click(); document.querySelector('#row-menu [data-do=rename]').click()`,
			`document.querySelector('.rename').dispatchEvent(new KeyboardEvent('keydown', {key: 'Escape'}))`},
		{"toast", `document.querySelectorAll('#conversations .actions')[3].click(); document.querySelector('#row-menu [data-do=archive]').click(); await until(() => document.querySelector('#toast').matches(':popover-open'))`,
			`document.querySelector('#toast .link').click(); await until(() => !document.querySelector('#toast').matches(':popover-open'))`},
	}
	tb := newProfile(t).open(r.url + "/").ready()
	run := func(steps string) {
		t.Helper()
		js[any](tb, `(async () => { const until = async (holds) => { while (!holds()) await new Promise((resume) => setTimeout(resume, 20)); }; %s })()`, steps)
	}
	for _, lang := range []string{"en", "zh-CN"} {
		size(tb, 1200, false)
		tb.visit(r.url + "/")
		if tb.ready(); js[string](tb, `document.documentElement.lang`) != lang {
			tb.click(`.language button[value="`+lang+`"]`, 1)
			tb.wait(`document.documentElement.lang === '%s'`, lang)
			tb.ready()
		}
		for _, width := range []int{1200, 390} {
			size(tb, width, width < 600)
			if width < 600 {
				tb.click(".menu", 1)
				tb.wait(`document.querySelector('#side').matches(':popover-open')`)
			}
			for _, s := range states {
				run(s.enter)
				for _, scheme := range []string{"light", "dark"} {
					call(tb, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}})
					name := fmt.Sprintf("side-%s-%s-%s-%d", s.name, lang, scheme, width)
					tb.fits(name, width)
					if wide := tb.none(`(() => { const right = document.querySelector('#side').getBoundingClientRect().right;
						return [...document.querySelectorAll('#side *:not(.unseen, .unseen *, #row-menu, #row-menu *)')].filter((e) => e.getBoundingClientRect().right > right + 1).map((e) => e.outerHTML.slice(0, 100)); })()`); len(wide) > 0 {
						t.Errorf("%s: wider than the list: %q", name, wide)
					}
					tb.shoot(name)
				}
				run(s.leave)
			}
		}
	}
}
