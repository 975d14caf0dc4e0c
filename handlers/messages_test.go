package handlers_test

import (
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"semel/chat"
	"semel/db"
)

// thread reads a conversation as it is stored.
func (r *room) thread(session string) db.Thread {
	r.t.Helper()
	t, err := r.db.Thread(r.t.Context(), db.LocalUser, session)
	if err != nil {
		r.t.Fatal(err)
	}
	return t
}

// asked puts a question by the form and waits for its answer.
func (r *room) asked(session, content, answer string) (id string) {
	r.t.Helper()
	id = chat.NewID()
	if s := r.post("/c/"+session, "content", content, "requestId", id); s.status != http.StatusSeeOther {
		r.t.Fatalf("%q: status %d: %s", content, s.status, s.body)
	}
	r.eventually("/c/"+session, answer)
	return id
}

func TestTheButtonsOfMessagesWorkAsForms(t *testing.T) {
	r := openRoom(t)
	session := chat.NewID()
	r.asked(session, "[[echo alpha]]", "<p>alpha</p>")
	act := "/c/" + session + "/act"

	// Another answer: posted twice it is asked for once.
	id := chat.NewID()
	for range 2 {
		if s := r.post(act, "regenerate", session+".2", "requestId", id); s.status != http.StatusSeeOther || s.header.Get("Location") != "/c/"+session {
			t.Fatalf("status %d to %q: %s", s.status, s.header.Get("Location"), s.body)
		}
	}
	r.eventually("/c/"+session, "<span>2/2</span>")
	if n := r.demo.Calls(); n != 2 {
		t.Errorf("the model was called %d times, want 2", n)
	}
	if th := r.thread(session); th.End != 3 {
		t.Errorf("the branch ends at %d, want the new answer", th.End)
	}

	// Another branch.
	if s := r.post(act, "at", "2", "requestId", chat.NewID()); s.status != http.StatusSeeOther {
		t.Fatalf("status %d: %s", s.status, s.body)
	}
	if th := r.thread(session); th.End != 2 || th.Aside {
		t.Errorf("the branch ends at %d", th.End)
	}
	if s := r.get("/c/" + session + "?at=3"); !strings.Contains(s.body, "data-aside") || !strings.Contains(s.body, `name="parentId" value="`+session+`.3"`) {
		t.Error("a branch that questions do not follow does not say so, or its form does not hang under its end")
	}

	// A question anew.
	s := r.get("/c/" + session + "?edit=1")
	if !strings.Contains(s.body, `name="parentId" value="`+session+`.1"`) || !strings.Contains(s.body, ">[[echo alpha]]</textarea>") {
		t.Errorf("the form to change a question: %s", s.body)
	}
	if s := r.post("/c/"+session, "content", "[[echo beta]]", "requestId", chat.NewID(), "kind", "edit", "parentId", session+".1"); s.status != http.StatusSeeOther {
		t.Fatalf("status %d: %s", s.status, s.body)
	}
	r.eventually("/c/"+session, "<p>beta</p>")
	if th := r.thread(session); len(th.Messages) != 2 || len(th.Messages[0].Siblings) != 2 {
		t.Errorf("the branch is %+v", th.Messages)
	}
}

func TestAFailedQuestionIsAskedAgainByAForm(t *testing.T) {
	r := openRoom(t)
	session := chat.NewID()
	id := r.asked(session, "[[fail 400 once]] [[echo alpha]]", "data-mark=\"failed\"")
	act := "/c/" + session + "/act"
	value := id + " 1 "
	if page := r.get("/c/" + session).body; !strings.Contains(page, `name="retry" value="`+value+`"`) {
		t.Errorf("no button retries %q in %s", value, page)
	}
	for range 2 { // the second joins
		if s := r.post(act, "retry", value, "requestId", chat.NewID()); s.status != http.StatusSeeOther {
			t.Fatalf("status %d: %s", s.status, s.body)
		}
	}
	r.eventually("/c/"+session, "<p>alpha</p>")
	if n := r.demo.Calls(); n != 2 {
		t.Errorf("the model was called %d times, want 2", n)
	}
}

func TestAnActThatCannotBeIsSaid(t *testing.T) {
	r := openRoom(t)
	session := chat.NewID()
	id := r.asked(session, "[[echo alpha]]", "<p>alpha</p>")
	act := "/c/" + session + "/act"
	for _, test := range []struct {
		pairs  []string
		status int
	}{
		{nil, 400},
		{[]string{"retry", "nonsense"}, 400},
		{[]string{"retry", id + " x "}, 400},
		{[]string{"retry", chat.NewID() + " 1 "}, 404},
		{[]string{"at", "99"}, 404},
		{[]string{"at", "-1"}, 404},
		{[]string{"regenerate", session + ".2"}, 400},                                   // without an id of its own
		{[]string{"regenerate", session + ".2", "requestId", id}, 422},                  // under that of something else
		{[]string{"regenerate", chat.NewID() + ".2", "requestId", chat.NewID()}, 422},   // of another conversation
		{[]string{"continue", session + ".1", "requestId", chat.NewID()}, 422},          // a question has nothing to go on with
		{[]string{"regenerate", "<script>", "requestId", chat.NewID()}, 422},            // no message at all
		{[]string{"retry", id + " 1 " + strings.Repeat("x", 100)}, http.StatusSeeOther}, // it is answered: nothing to do
		{[]string{"at", "2", "requestId", chat.NewID()}, http.StatusSeeOther},           // it is there already
	} {
		s := r.post(act, test.pairs...)
		if s.status != test.status {
			t.Errorf("%v: status %d, want %d", test.pairs, s.status, test.status)
		}
		if s.status == 400 || s.status == 422 {
			if _, fresh := r.form(s); !strings.Contains(s.body, `role="alert"`) || fresh == id {
				t.Errorf("%v: the page does not say why, or carries the same id", test.pairs)
			}
		}
	}
	for _, path := range []string{"?at=99", "?at=x", "?edit=2", "?edit=99", "?before=x"} {
		if s := r.get("/c/" + session + path); s.status != 404 {
			t.Errorf("%s: status %d, want 404", path, s.status)
		}
	}
	if n := r.demo.Calls(); n != 1 {
		t.Errorf("the model was called %d times, want once", n)
	}
}

var numbered = regexp.MustCompile(`data-seq="\d`)

func TestALongConversationComesInPages(t *testing.T) {
	r := openRoom(t)
	session := chat.NewID()
	for n := range 45 {
		r.asked(session, fmt.Sprintf("[[echo answer %d.]]", n), fmt.Sprintf("<p>answer %d.</p>", n))
	}
	page := r.get("/c/" + session).body
	if n := len(numbered.FindAllString(page, -1)); n != 80 {
		t.Errorf("the page has %d messages, want 80", n)
	}
	if !strings.Contains(page, `href="/c/`+session+`?before=11"`) {
		t.Error("the page does not lead to the messages before it")
	}
	before := r.get("/c/" + session + "?before=11").body
	if n := len(numbered.FindAllString(before, -1)); n != 10 || !strings.Contains(before, "answer 0.") || strings.Contains(before, "answer 5.") {
		t.Errorf("the page before it has %d messages, want the first 10", n)
	}
}

func TestTheReceiptIsAPage(t *testing.T) {
	r := openRoom(t)
	session := chat.NewID()
	id := r.asked(session, "[[echo alpha]]", "<p>alpha</p>")
	r.post("/c/"+session, "content", "[[echo alpha]]", "requestId", id)
	s := r.get("/c/" + session + "/r/" + id)
	for _, want := range []string{"This request arrived 2 times and was accepted once; the model was called once", "billed once; 1 repeat was absorbed",
		"from the form of the page", `data-lane="ledger"`, "SHA-256 ", `href="/api/chat/receipt/` + id + `?sessionId=` + session + `"`} {
		if !strings.Contains(s.body, want) {
			t.Errorf("the receipt does not say %q", want)
		}
	}
	for _, path := range []string{"/c/" + session + "/r/" + chat.NewID(), "/c/" + chat.NewID() + "/r/" + id, "/c/" + session + "/r/x"} {
		if s := r.get(path); s.status != 404 {
			t.Errorf("%s: status %d, want 404", path, s.status)
		}
	}
	if page := r.get("/c/" + session).body; !strings.Contains(page, "billed once · duplicates absorbed: 1") {
		t.Error("the chip does not count the repeat")
	}
}
