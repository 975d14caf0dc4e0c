package handlers_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"semel/chat"
)

type hitDoc struct {
	MessageID string
	Seq       int64
	Snippet   []struct {
		Text string
		Hit  bool
	}
}

type sideDoc struct {
	Conversations []struct {
		ID, Title                              string
		Named, Pinned, Archived, Running, News bool
		Hit                                    *hitDoc
	}
	Next string
	News int
}

func (d *door) side(query string) (s sideDoc) {
	d.t.Helper()
	d.get("/api/conversations" + query).wants(200).into(&s)
	return s
}

func TestASearchSaysWhereItHit(t *testing.T) {
	t.Parallel()
	d := openDoor(t)
	session, _, _ := d.answered("hair <b> [[echo 我秃发怎么办 <script>]]")
	one := func(q string) (string, *hitDoc) {
		t.Helper()
		s := d.side("?q=" + url.QueryEscape(q))
		if len(s.Conversations) != 1 || s.Conversations[0].ID != session || s.Conversations[0].Hit == nil {
			t.Fatalf("%q finds %+v", q, s)
		}
		text := ""
		for _, p := range s.Conversations[0].Hit.Snippet {
			if p.Hit {
				text += "[" + p.Text + "]"
			} else {
				text += p.Text
			}
		}
		return text, s.Conversations[0].Hit
	}
	if text, hit := one("秃发怎么"); text != "我[秃发怎么]办 <script>" || hit.Seq != 2 || hit.MessageID != chat.MessageID(session, 2) {
		t.Errorf("%q %+v", text, hit)
	}
	if text, hit := one("hair"); text != "[hair] <b> [[echo 我秃发怎么办 <script>]]" || hit.Seq != 1 {
		t.Errorf("%q %+v", text, hit)
	}
	d.call("PATCH", "/api/conversations/"+session, doc{"title": "Beauty"}).wants(200)
	if text, hit := one("beau"); text != "[Beau]ty" || hit.Seq != 0 || hit.MessageID != "" {
		t.Errorf("%q %+v", text, hit)
	}
	if s := d.side(""); len(s.Conversations) != 1 || s.Conversations[0].Hit != nil || !s.Conversations[0].Named {
		t.Errorf("the list: %+v", s)
	}
	d.get("/api/conversations?q=beauty&before="+session).refused(404, "not_found")
}

// F2: a title that a person does not want any more gives way to the first words, without
// a call of the model.
func TestATitleGoesBackToTheFirstWords(t *testing.T) {
	t.Parallel()
	d := openDoor(t)
	session, _, _ := d.answered("<think>hm</think>\n## Hair [[echo loss]]\nand more")
	d.chat(ask(session, chat.NewID(), "[[echo later]]")).wants(200)
	path := "/api/conversations/" + session
	d.call("PATCH", path, doc{"title": "Beauty"}).wants(200)
	var c struct {
		Title string
		Named bool
	}
	for range 2 {
		d.call("PATCH", path, doc{"named": false}).wants(200).into(&c)
		if c.Title != "Hair [[echo loss]]" || c.Named {
			t.Errorf("%+v", c)
		}
	}
	if s := d.side("?q=beauty"); len(s.Conversations) != 0 {
		t.Errorf("the title that is gone is found: %+v", s)
	}
	if s := d.side("?q=hair"); len(s.Conversations) != 1 || s.Conversations[0].Hit.Seq != 1 {
		t.Errorf("the question: %+v", s)
	}
	if th := d.thread(session); len(th.Messages) != 4 || len(th.Requests) != 0 {
		t.Errorf("it asked something: %+v", th)
	}
	d.call("PATCH", path, doc{"named": true}).refused(400, "bad_request")
	d.call("PATCH", path, doc{"named": false, "title": "Both"}).refused(400, "bad_request")
	d.call("PATCH", "/api/conversations/"+chat.NewID(), doc{"named": false}).refused(404, "not_found")
}

func TestTheArchiveIsAListOfItsOwn(t *testing.T) {
	t.Parallel()
	d := openDoor(t)
	kept, _, _ := d.answered("[[echo water]]")
	away, _, _ := d.answered("[[echo water]]")
	path := "/api/conversations/" + away
	d.call("PATCH", path, doc{"pinned": true}).wants(200)
	var c struct{ Pinned, Archived bool }
	if d.call("PATCH", path, doc{"archived": true}).wants(200).into(&c); c.Pinned || !c.Archived {
		t.Errorf("%+v", c)
	}
	for query, want := range map[string]string{"": kept, "?archived=0": kept, "?archived=1": away, "?q=water": kept, "?q=water&archived=1": away} {
		if s := d.side(query); len(s.Conversations) != 1 || s.Conversations[0].ID != want || s.Conversations[0].Archived != (want == away) {
			t.Errorf("%q: %+v", query, s)
		}
	}
	d.get("/api/conversations?archived=yes").refused(400, "bad_request")
	// It is all there, and comes back with the next question.
	d.thread(away)
	d.chat(ask(away, chat.NewID(), "[[echo more]]")).wants(200)
	if s := d.side("?archived=1"); len(s.Conversations) != 0 {
		t.Errorf("after another question: %+v", s)
	}
}

func TestNewsIsToldUntilAPersonHasLooked(t *testing.T) {
	t.Parallel()
	d := openDoor(t)
	session, _, _ := d.answered("[[echo one]]")
	if s := d.side(""); s.News != 1 || !s.Conversations[0].News || s.Conversations[0].Running {
		t.Errorf("after an answer: %+v", s)
	}
	d.call("PATCH", "/api/conversations/"+session, doc{"seen": true}).wants(200)
	if s := d.side(""); s.News != 0 || s.Conversations[0].News {
		t.Errorf("after a look: %+v", s)
	}
	id := chat.NewID()
	d.tapped(session, id)
	d.generating(session, id)
	if s := d.side(""); s.News != 0 || !s.Conversations[0].Running {
		t.Errorf("while an answer is written: %+v", s)
	}
	d.tap.pour(id, 1, "two", chat.FinishStop)
	d.settled(session, id)
	// Reading it by a program is no look of a person.
	d.thread(session)
	if s := d.side(""); s.News != 1 {
		t.Errorf("after the second answer: %+v", s)
	}
}

func TestTheListOfAPageWithoutScripts(t *testing.T) {
	r := openRoom(t)
	form, id := r.form(r.get("/"))
	r.post(form, "content", "[[echo 多喝水 <i>]] question", "requestId", id)
	page := r.eventually(form, "多喝水")
	session := strings.TrimPrefix(form, "/c/")
	for _, part := range []string{
		`<section data-group="today"><h2>Today</h2>`, `<form id="search" role="search" method="get" action="` + form + `">`,
		`<form class="manage" method="post" action="` + form + `/manage"`, `data-id="` + session + `"`,
	} {
		if !strings.Contains(page.body, part) {
			t.Errorf("the page has no %s", part)
		}
	}
	page = r.get("/?q=" + url.QueryEscape("水 <i>"))
	if want := `href="/c/` + session + `?at=`; !strings.Contains(page.body, want) || !strings.Contains(page.body, `<mark>水</mark>`) || !strings.Contains(page.body, `<mark>&lt;i&gt;</mark>`) {
		t.Errorf("the search has no %s, or no marks: %s", want, page.body)
	}
	if page = r.get("/?q=nothing+of+it&from=rubbish"); page.status != 200 || !strings.Contains(page.body, "Nothing found.") {
		t.Errorf("a search for nothing: %d", page.status)
	}
	if page = r.get("/?from=" + chat.NewID()); page.status != 200 || !strings.Contains(page.body, `data-id="`+session+`"`) {
		t.Errorf("a page that begins nowhere: %d", page.status)
	}
	for _, step := range []struct {
		do, title string
		status    int
		list      string // in which it is afterwards
		has       string
	}{
		{"rename", "  A new\ttitle ", http.StatusSeeOther, "/", ">A new title<"},
		{"rename", " ", http.StatusBadRequest, "/", ">A new title<"},
		{"unname", "", http.StatusSeeOther, "/", ">[[echo 多喝水 &lt;i&gt;]] question<"},
		{"rename", "A new title", http.StatusSeeOther, form, `value="unname"`},
		{"pin", "", http.StatusSeeOther, "/", `<section data-group="pinned">`},
		{"unpin", "", http.StatusSeeOther, "/", `<section data-group="today">`},
		{"archive", "", http.StatusSeeOther, "/?archived=1", ">A new title<"},
		{"unarchive", "", http.StatusSeeOther, "/", ">A new title<"},
		{"nothing", "", http.StatusBadRequest, "/", ">A new title<"},
		{"delete", "", http.StatusSeeOther, form, `value="restore"`},
		{"restore", "", http.StatusSeeOther, "/", ">A new title<"},
	} {
		s := r.post(form+"/manage", "do", step.do, "title", step.title)
		if s.status != step.status || step.status == http.StatusSeeOther && s.header.Get("Location") != form {
			t.Errorf("%s: %d to %q", step.do, s.status, s.header.Get("Location"))
		}
		if page := r.get(step.list); !strings.Contains(page.body, step.has) {
			t.Errorf("%s: %s has no %s", step.do, step.list, step.has)
		}
	}
	for _, path := range []string{"/c/" + chat.NewID() + "/manage", "/c/x/manage"} {
		if s := r.post(path, "do", "pin"); s.status != http.StatusNotFound {
			t.Errorf("%s: %d", path, s.status)
		}
	}
	if s := r.do("POST", form+"/manage", "application/x-www-form-urlencoded", "do=delete", "Sec-Fetch-Site", "cross-site"); s.status != http.StatusForbidden {
		t.Errorf("another site deletes: %d", s.status)
	}
}

// F1, F2: a title is there at once, from the words of the question.
func TestATitleIsThereAtOnce(t *testing.T) {
	t.Parallel()
	d := openDoor(t)
	for content, want := range map[string]string{
		"# How **do** I? [[echo x]]\nmore":                     "How do I? [[echo x]]",
		"<think>the user wants</think>\n请问 [[echo x]]":         "请问 [[echo x]]",
		"[[echo x]] " + strings.Repeat("水", 48) + "👩‍👩‍👧👩‍👩‍👧": "[[echo x]] " + strings.Repeat("水", 48) + "…",
	} {
		session, _, _ := d.answered(content)
		if got := d.thread(session).Title; got != want {
			t.Errorf("%q: the title is %q, want %q", content, got, want)
		}
	}
}
