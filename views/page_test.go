package views

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/a-h/templ"
	"golang.org/x/net/html"

	"semel/chat"
)

func TestTurnsPairQuestionsWithAnswers(t *testing.T) {
	failed := &chat.Problem{Code: "line_lost", Outcome: chat.OutcomeUnknown, Retry: chat.RetryExplicit}
	turns := Turns(Branch{Messages: []chat.Message{
		{Seq: 1, Role: "user", RequestID: "R1", Content: "one"},
		{Seq: 2, Role: "assistant", RequestID: "R1", Content: "first", Model: "demo", Finish: chat.FinishStopped},
		{Seq: 3, Role: "assistant", RequestID: "R2", Content: "continued", Model: "demo", Finish: chat.FinishStop},
		{Seq: 4, Role: "user", RequestID: "R3", Content: "two"},
		{Seq: 5, Role: "user", RequestID: "R4", Content: "three"},
		{Seq: 6, Role: "user", RequestID: "R5", Content: "four"},
	}, Unanswered: []chat.Record{
		{RequestID: "R3", State: chat.StateFailed, Attempt: 1, Content: "half", Model: "demo", Error: failed},
		{RequestID: "R4", State: chat.StateGenerating, Attempt: 2, Model: "demo"},
		{RequestID: "R5", State: chat.StatePending},
	}})
	type row struct {
		id      string
		mark    Mark
		answers string
		label   string
		live    bool
	}
	want := []row{
		{"R1", MarkAnswered, "first continued", "stopped", false},
		{"R3", MarkUnknown, "half", "interrupted", false},
		{"R4", MarkAnswering, "", "", true},
		{"R5", MarkReceived, "", "", false},
	}
	if len(turns) != len(want) {
		t.Fatalf("got %d turns, want %d", len(turns), len(want))
	}
	for i, turn := range turns {
		got := row{id: turn.RequestID, mark: turn.Mark()}
		var texts []string
		for j, a := range turn.Answers {
			texts = append(texts, a.Content)
			got.live = a.Live
			if j == 0 {
				got.label = a.partial()
			}
		}
		got.answers = strings.Join(texts, " ")
		if got != want[i] {
			t.Errorf("turn %d: got %+v, want %+v", i, got, want[i])
		}
	}
}

func TestThePageHasWhatScriptsAndTestsLookFor(t *testing.T) {
	doc := renderPage(t, examplePage("en"))
	for _, s := range []string{
		"form#composer method=post action=/c/S1234567",
		"textarea#text name=content",
		"input type=hidden name=requestId value=R9",
		"button#send type=submit",
		"button#stop type=button hidden=",
		"section#log",
		"article data-role=user data-request=R1 data-seq=1 data-state=committed",
		"article data-role=assistant data-request=R1 data-seq=2",
		"article data-role=user data-request=R3 data-state=failed data-attempt=1",
		"a data-mark=unknown",
		"p data-partial=interrupted",
		"button data-action=retry form=act name=retry",
		"form#act method=post action=/c/S1234567/act",
		"nav#conversations",
		"a href=/c/S1234567 aria-current=page",
		"body data-session=S1234567 data-account=1",
		"html lang=en",
	} {
		if find(doc, s) == nil {
			t.Errorf("the page has no %s", s)
		}
	}
	if find(doc, "meta http-equiv=refresh") != nil {
		t.Error("a page that waits for nothing reloads itself")
	}
}

func TestAPageThatWaitsReloadsWithoutScripts(t *testing.T) {
	p := examplePage("en")
	p.Turns = append(p.Turns, Turn{RequestID: "R7", State: chat.StatePending})
	var out strings.Builder
	if err := Chat(p).Render(context.Background(), &out); err != nil {
		t.Fatal(err)
	}
	head, _, _ := strings.Cut(out.String(), "</head>")
	if !strings.Contains(head, `<noscript><meta http-equiv="refresh" content="2; url=/c/S1234567"></noscript>`) {
		t.Error("no refresh in the head")
	}
}

// The policy of the page allows neither inline style nor inline script, and what
// it forbids only shows in a browser.
func TestPagesKeepToTheirPolicy(t *testing.T) {
	for _, l := range Locales {
		for _, doc := range []*html.Node{
			renderPage(t, examplePage(l.Tag)),
			parsePage(t, Note(NotePage{Frame: examplePage(l.Tag).Frame, Title: "t", Text: "u", Restorable: "S1234567"})),
		} {
			ids := map[string]bool{}
			for n := range doc.Descendants() {
				if n.Type != html.ElementNode {
					continue
				}
				if n.Data == "style" || n.Data == "script" && attr(n, "src") == "" && attr(n, "type") != "application/json" {
					t.Errorf("an inline %s", n.Data)
				}
				for _, a := range n.Attr {
					if a.Key == "style" || strings.HasPrefix(a.Key, "on") {
						t.Errorf("%s has an inline %s", n.Data, a.Key)
					}
					if a.Key == "id" && ids[a.Val] {
						t.Errorf("two elements have the id %s", a.Val)
					}
					if a.Key == "id" {
						ids[a.Val] = true
					}
				}
			}
		}
	}
}

func TestWhatPeopleAndModelsWroteIsInert(t *testing.T) {
	for _, evil := range hostile {
		p := examplePage("en")
		p.Title, p.Draft = evil, evil
		p.Side.Entries[0].Title = evil
		p.Error = &chat.Problem{Code: "x", Detail: evil}
		p.Turns = []Turn{{RequestID: evil, Question: evil, Attachments: []chat.Attachment{{ID: "4711", Name: evil, MediaType: "image/png"}, {ID: "4712", Name: evil, MediaType: chat.MediaText}}, State: chat.StateFailed, Problem: p.Error,
			Answers: []Answer{{RequestID: evil, Content: evil, Reasoning: evil, Model: evil, Broken: true}}}}
		doc := renderPage(t, p)
		for n := range doc.Descendants() {
			if n.Type == html.CommentNode {
				t.Errorf("%q: a comment", evil)
			}
			if n.Type != html.ElementNode {
				continue
			}
			switch n.Data {
			case "img":
				if src := attr(n, "src"); src != "" && src != "/api/attachments/4711" {
					t.Errorf("%q: an image from %s", evil, src)
				}
			case "iframe", "math", "object", "embed", "style":
				t.Errorf("%q: an element %s", evil, n.Data)
			case "script":
				if attr(n, "src") != "/chat.js" && attr(n, "id") != "strings" {
					t.Errorf("%q: a script", evil)
				}
			}
			for _, a := range n.Attr {
				if strings.HasPrefix(a.Key, "on") || a.Key == "style" || a.Key == "href" && !strings.HasPrefix(a.Val, "/c/") && strings.Contains(strings.ToLower(a.Val), "script:") {
					t.Errorf("%q: attribute %s=%q", evil, a.Key, a.Val)
				}
			}
		}
		if got := textOf(find(doc, "textarea#text")); got != strings.ReplaceAll(evil, "\x00", "\ufffd") && !strings.HasPrefix(evil, "\n") {
			t.Errorf("the draft came back as %q, want %q", got, evil)
		}
	}
}

func examplePage(lang string) ChatPage {
	return ChatPage{
		Frame: Frame{
			Locale: FindLocale(lang), Assets: Assets{"/app.css", "/chat.js", "/icon.svg"}, Account: "1", ServerTime: 5, Path: "/c/S1234567",
			Side: Side{Now: time.UnixMilli(5), Entries: []Entry{
				{Conversation: chat.Conversation{SessionID: "S1234567", Title: "A title"}}, {Conversation: chat.Conversation{SessionID: "S7654321"}}}},
		},
		SessionID: "S1234567", Title: "A title", RequestID: "R9",
		Turns: Turns(Branch{Messages: []chat.Message{
			{Seq: 1, Role: "user", RequestID: "R1", Content: "one"},
			{Seq: 2, Role: "assistant", RequestID: "R1", Content: "**first**", Model: "demo", Finish: chat.FinishStop},
			{Seq: 3, Role: "user", RequestID: "R3", Content: "two"},
		}, Unanswered: []chat.Record{{RequestID: "R3", State: chat.StateFailed, Attempt: 1, Content: "half", ContextDropped: 2,
			Error: &chat.Problem{Code: "line_lost", Outcome: chat.OutcomeUnknown}}}}),
	}
}

func renderPage(t *testing.T, p ChatPage) *html.Node {
	t.Helper()
	return parsePage(t, Chat(p))
}

func parsePage(t *testing.T, page templ.Component) *html.Node {
	t.Helper()
	var out strings.Builder
	if err := page.Render(context.Background(), &out); err != nil {
		t.Fatal(err)
	}
	doc, err := html.Parse(strings.NewReader(out.String()))
	if err != nil {
		t.Fatal(err)
	}
	return doc
}

// find returns the first element that a pattern of a name, an id and attributes
// describes.
func find(doc *html.Node, pattern string) *html.Node {
	fields := strings.Fields(pattern)
	name, id, _ := strings.Cut(fields[0], "#")
	for n := range doc.Descendants() {
		if n.Type != html.ElementNode || n.Data != name || id != "" && attr(n, "id") != id {
			continue
		}
		ok := true
		for _, f := range fields[1:] {
			key, value, _ := strings.Cut(f, "=")
			ok = ok && has(n, key) && attr(n, key) == value
		}
		if ok {
			return n
		}
	}
	return nil
}

func has(n *html.Node, key string) bool {
	for _, a := range n.Attr {
		if a.Key == key {
			return true
		}
	}
	return false
}

func attr(n *html.Node, key string) string {
	for _, a := range n.Attr {
		if a.Key == key {
			return a.Val
		}
	}
	return ""
}

func textOf(n *html.Node) string {
	if n == nil {
		return ""
	}
	var b strings.Builder
	for c := range n.Descendants() {
		if c.Type == html.TextNode {
			b.WriteString(c.Data)
		}
	}
	return b.String()
}
