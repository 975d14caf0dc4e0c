package handlers_test

import (
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"semel/chat"
)

type conversationDoc struct {
	ID, Title, Model, SystemPrompt, Head string
	Pinned                               bool
	Params                               json.RawMessage
	CreatedAt, UpdatedAt                 time.Time
}

type threadDoc struct {
	conversationDoc
	Messages []struct {
		chat.RecordMessage
		RequestID, Model string
		Sibling          int
		Siblings         []string
	}
	Requests []chat.Record
	Cursor   string
	Format   string
}

type listDoc struct {
	Conversations []conversationDoc
	Next          string
}

func (d *door) list(query string) (l listDoc) {
	d.t.Helper()
	d.get("/api/conversations" + query).wants(200).into(&l)
	return l
}

func (d *door) thread(session string) (th threadDoc) {
	d.t.Helper()
	d.get("/api/conversations/" + session).wants(200).into(&th)
	return th
}

func (l listDoc) titles() (list []string) {
	for _, c := range l.Conversations {
		list = append(list, c.Title)
	}
	return list
}

func TestConversationsComeNewestFirstAPageAtATime(t *testing.T) {
	t.Parallel()
	d := openDoor(t)
	if got := string(d.get("/api/conversations").wants(200).body); got != `{"conversations":[],"news":0,"next":""}`+"\n" {
		t.Errorf("an empty list: %s", got)
	}
	var want []string
	for i := range 7 {
		title := fmt.Sprintf("[[echo %d]]", i)
		d.answered(title)
		want = append([]string{title}, want...)
	}
	for _, limit := range []int{1, 2, 3, 6, 7, 200} {
		var got []string
		before, pages := "", 0
		for {
			l := d.list(fmt.Sprintf("?limit=%d&before=%s", limit, before))
			got = append(got, l.titles()...)
			if pages++; l.Next == "" {
				break
			}
			if before = l.Next; len(l.Conversations) != limit || pages > 10 {
				t.Fatalf("a page of %d with %d, and a next one", limit, len(l.Conversations))
			}
		}
		if !slices.Equal(got, want) || pages != (len(want)+limit-1)/limit {
			t.Errorf("limit %d: %v in %d pages", limit, got, pages)
		}
	}
	for _, wrong := range []string{"0", "-1", "201", "x", "1.5", "99999999999999999999"} {
		if p := d.get("/api/conversations?limit="+wrong).refused(400, "bad_request"); !strings.Contains(p.Detail, "limit") {
			t.Errorf("%+v", p)
		}
	}
	d.get("/api/conversations?before="+chat.NewID()).refused(404, "not_found")
}

func TestSearchFindsWhatIsThereAndNothingElse(t *testing.T) {
	t.Parallel()
	d := openDoor(t)
	ids := map[string]string{}
	for name, content := range map[string]string{
		"bald": "秃发怎么办 [[echo 去看医生]]", "water": "多喝水 [[echo 好的]]", "star": "收藏 ⭐ [[echo ok]]", "reply": "GPT 回答 [[echo 没有问题]]",
		"percent": "100% sure_ly [[echo \\o/]]", "plain": "Nothing special [[echo Quite So]]",
	} {
		ids[name], _, _ = d.answered(content)
	}
	for q, want := range map[string][]string{
		"秃发": {"bald"}, "水": {"water"}, "⭐": {"star"}, "GPT 回答": {"reply"}, "问题": {"reply"}, "医": {"bald"}, "的": {"water"},
		"%": {"percent"}, "_": {"percent"}, `\o/`: {"percent"}, `\`: {"percent"}, "quite so": {"plain"}, "special": {"plain"},
		"zzz": nil, "' OR 1=1 --": nil, "水发": nil,
	} {
		var got, wantIDs []string
		for _, c := range d.list("?q=" + url.QueryEscape(q)).Conversations {
			got = append(got, c.ID)
		}
		for _, name := range want {
			wantIDs = append(wantIDs, ids[name])
		}
		if !slices.Equal(got, wantIDs) {
			t.Errorf("q=%q finds %d, want %v", q, len(got), want)
		}
	}
	d.get("/api/conversations?q=" + strings.Repeat("x", 256)).wants(200)
	d.get("/api/conversations?q=x%00").refused(400, "bad_request")
	if p := d.get("/api/conversations?q="+strings.Repeat("x", 257)).refused(400, "bad_request"); !strings.Contains(p.Detail, "256") {
		t.Errorf("%+v", p)
	}
}

func TestAConversationIsOfOneMoment(t *testing.T) {
	t.Parallel()
	d := openDoor(t)
	session, first, rec := d.answered("[[echo one]]\nand more")
	running, waiting := chat.NewID(), chat.NewID()
	d.tapped(session, running)
	d.generating(session, running)
	d.tapped(session, waiting)
	th := d.thread(session)
	if th.ID != session || th.Title != "[[echo one]]" || th.Cursor != "1.0" || string(th.Params) != "{}" {
		t.Errorf("%+v", th)
	}
	var shape []string
	for _, m := range th.Messages {
		shape = append(shape, fmt.Sprintf("%s %d %s", m.Role, m.Seq, m.RequestID))
	}
	want := []string{"user 1 " + first, "assistant 2 " + first, "user 3 " + running, "user 5 " + waiting}
	if !slices.Equal(shape, want) {
		t.Errorf("messages %v, want %v", shape, want)
	}
	if m := th.Messages[1]; m.Content != "one" || m.Model != "demo" || m.Finish != "stop" || m.ParentID != th.Messages[0].ID || mustJSON(m.RecordMessage) != mustJSON(rec.Message) {
		t.Errorf("%+v, want %+v", m, rec.Message)
	}
	if len(th.Requests) != 2 || th.Requests[0].RequestID != running || th.Requests[1].RequestID != waiting {
		t.Errorf("requests %+v", th.Requests)
	}
	// The stream goes on where the page is.
	f := d.stream(th.Requests[0].StreamURL+"&after="+th.Cursor, nil)
	d.tap.pour(running, 1, "two", chat.FinishStop)
	if got := joined(t, f.rest()); got != "two" {
		t.Errorf("%q", got)
	}
	d.tap.pour(waiting, 1, errLost)
	d.settled(session, waiting)
	if th := d.thread(session); len(th.Requests) != 1 || th.Requests[0].Error == nil || th.Requests[0].Error.Code != "line_lost" || th.Cursor != "" {
		t.Errorf("%+v", th)
	}
}

func TestAConversationIsChangedFieldByField(t *testing.T) {
	t.Parallel()
	d := openDoor(t, func(s *setup) { s.handlers.MessageBytes = 1000 })
	session, _, _ := d.answered("[[echo yes]]")
	path := "/api/conversations/" + session
	patch := func(body any) reply { return d.call("PATCH", path, body) }
	var c conversationDoc
	patch(doc{"title": "  A\tnew \n title ", "pinned": true, "model": "tap", "systemPrompt": "Be brief.", "params": doc{"top_p": 0.5, "temperature": 1}}).wants(200).into(&c)
	if c.Title != "A new title" || !c.Pinned || c.Model != "tap" || c.SystemPrompt != "Be brief." || string(c.Params) != `{"temperature":1,"top_p":0.5}` {
		t.Errorf("%+v", c)
	}
	patch(doc{"pinned": false, "title": nil}).wants(200).into(&c)
	if c.Title != "A new title" || c.Pinned || c.Model != "tap" {
		t.Errorf("%+v", c)
	}
	if th := d.thread(session); th.Title != c.Title || th.SystemPrompt != "Be brief." {
		t.Errorf("%+v", th)
	}
	// What it says holds for the next question, and is frozen with it.
	id := chat.NewID()
	d.tap.pour(id, 1, "Ok.", chat.FinishStop)
	if rec := d.chat(ask(session, id, "Next.")).wants(200).record(); rec.Model != "tap" {
		t.Errorf("%+v", rec)
	}
	patch(doc{"model": "", "params": doc{}, "head": session + ".2"}).wants(200).into(&c)
	if c.Model != "" || string(c.Params) != "{}" || c.Head != session+".2" {
		t.Errorf("%+v", c)
	}
	if th := d.thread(session); len(th.Messages) != 2 {
		t.Errorf("%+v", th.Messages)
	}
	for _, wrong := range []struct {
		body   any
		status int
		code   string
	}{
		{doc{"title": " "}, 400, "bad_request"},
		{doc{"title": strings.Repeat("x", 257)}, 400, "bad_request"},
		{doc{"title": 1}, 400, "bad_request"},
		{doc{"id": "another1"}, 400, "bad_request"},
		{doc{"userId": 2}, 400, "bad_request"},
		{doc{"systemPrompt": strings.Repeat("x", 1001)}, 413, "too_large"},
		{doc{"model": "gpt-0"}, 422, "model_unknown"},
		{doc{"params": doc{"temperature": 3}}, 400, "bad_request"},
		{doc{"params": "x"}, 400, "bad_request"},
		{doc{"head": "x"}, 400, "bad_request"},
		{doc{"head": session + ".99"}, 422, "parent_not_found"},
		{doc{"head": "another1.1"}, 400, "bad_request"},
		{"[]", 400, "bad_request"},
	} {
		patch(wrong.body).refused(wrong.status, wrong.code)
	}
	patch(doc{"title": strings.Repeat("x", 256), "systemPrompt": strings.Repeat("x", 1000)}).wants(200)
	running := chat.NewID()
	d.tapped(session, running)
	d.generating(session, running)
	patch(doc{"head": session + ".2"}).refused(409, "busy")
	d.call("PATCH", "/api/conversations/"+chat.NewID(), doc{"pinned": true}).refused(404, "not_found")
	d.call("PATCH", "/api/conversations/short", doc{"pinned": true}).refused(400, "session_invalid")
}

func TestADeletedConversationMayBeRestoredForTenMinutes(t *testing.T) {
	inBubble(t, func(t *testing.T, d *door) {
		session, id, _ := d.answered("[[echo yes]]")
		running := chat.NewID()
		d.tapped(session, running)
		path := "/api/conversations/" + session
		var gone struct {
			ID        string
			UndoUntil time.Time
		}
		d.call("DELETE", path, nil).wants(200).into(&gone)
		if want := time.Now().Add(10 * time.Minute); gone.ID != session || gone.UndoUntil.Sub(want).Abs() > time.Second {
			t.Errorf("%+v, want %s", gone, want)
		}
		first := gone.UndoUntil
		time.Sleep(time.Minute)
		d.call("DELETE", path, nil).wants(200).into(&gone) // twice is no error
		if !gone.UndoUntil.Equal(first) {
			t.Errorf("deleting again moves the end of the undo from %s to %s", first, gone.UndoUntil)
		}
		if l := d.list(""); len(l.Conversations) != 0 {
			t.Errorf("%+v", l)
		}
		synctest.Wait()
		time.Sleep(8 * time.Minute)
		d.post(path+"/restore", nil).wants(200)
		d.post(path+"/restore", nil).wants(200)
		if rec := d.get(statusPath(session, running)).wants(200).record(); rec.Status != chat.StatusFailed || rec.Error.Code != "stopped" {
			t.Errorf("%+v", rec)
		}
		d.chat(ask(session, id, "[[echo yes]]")).wants(200).has("X-Idempotent-Replayed", "true")
		d.call("DELETE", path, nil).wants(200)
		time.Sleep(11 * time.Minute)
		d.post(path+"/restore", nil).refused(410, "conversation_gone")
		d.call("DELETE", "/api/conversations/"+chat.NewID(), nil).refused(404, "not_found")
		d.post("/api/conversations/"+chat.NewID()+"/restore", nil).refused(404, "not_found")
	})
}

func TestAConversationIsExported(t *testing.T) {
	t.Parallel()
	d := openDoor(t)
	session, _, _ := d.answered("你好 [[echo # Not a *title*]]")
	for _, format := range []string{"", "?format=md"} {
		r := d.get("/api/conversations/"+session+"/export"+format).wants(200).
			has("Content-Type", "text/markdown; charset=utf-8", "Content-Disposition", `attachment; filename="semel-`+session+`.md"`)
		for _, part := range []string{"# 你好 [[echo # Not a *title*]]\n", "## You · ", "## demo · ", "\n\n# Not a *title*\n"} {
			if !strings.Contains(string(r.body), part) {
				t.Errorf("%q is not in %s", part, r.body)
			}
		}
	}
	var th threadDoc
	var got struct {
		Format   string
		Messages []struct{ ID, Content string }
	}
	d.get("/api/conversations/" + session).into(&th)
	d.get("/api/conversations/"+session+"/export?format=json").wants(200).
		has("Content-Type", "application/json; charset=utf-8", "Content-Disposition", `attachment; filename="semel-`+session+`.json"`).into(&got)
	if got.Format != "semel.conversation" || len(got.Messages) != 2 || got.Messages[1].Content != th.Messages[1].Content || got.Messages[1].ID != th.Messages[1].ID {
		t.Errorf("%+v", got)
	}
	d.get("/api/conversations/"+session+"/export?format=pdf").refused(400, "bad_request")
	d.get("/api/conversations/"+chat.NewID()+"/export").refused(404, "not_found")
}

func TestModelsAreListedTheDefaultFirst(t *testing.T) {
	t.Parallel()
	d := openDoor(t, func(s *setup) { s.handlers.Currency = "EUR"; s.engine.Models[1].Context = 4096 })
	var got struct {
		Models []struct {
			Name    string
			Default bool
			Context int64
			Price   struct {
				Currency              string
				Input, Cached, Output int64
			}
		}
	}
	d.get("/api/models").wants(200).into(&got)
	if len(got.Models) != 2 || got.Models[0].Name != "demo" || !got.Models[0].Default || got.Models[1].Default || got.Models[1].Context != 4096 ||
		got.Models[0].Price.Currency != "EUR" || got.Models[0].Price.Input != 150_000 {
		t.Errorf("%+v", got)
	}
	if _, _, rec := d.answered("[[echo yes]]"); rec.Cost.Currency != "EUR" {
		t.Errorf("%+v", rec.Cost)
	}
}

func TestEventsTellATabWhatHappens(t *testing.T) {
	t.Parallel()
	d := openDoor(t)
	f := d.stream("/api/events", nil)
	hello, _ := f.next()
	var h struct {
		Epoch      int64
		ServerTime time.Time
	}
	if hello.into(t, &h); hello.name != "hello" || h.Epoch != 1 || time.Since(h.ServerTime).Abs() > time.Minute {
		t.Errorf("%+v", hello)
	}
	type change struct {
		Type, SessionID, RequestID string
		State                      chat.State
		Attempt                    int64
	}
	session, id, _ := d.answered("[[echo yes]]")
	for {
		list := f.until("request")
		var c change
		if list[len(list)-1].into(t, &c); c.SessionID != session || c.RequestID != id || c.Type != "request" {
			t.Errorf("%+v", c)
		}
		if c.State == chat.StateCommitted {
			break
		}
	}
	d.call("PATCH", "/api/conversations/"+session, doc{"title": "New"}).wants(200)
	list := f.until("conversation")
	var c change
	if list[len(list)-1].into(t, &c); c.SessionID != session {
		t.Errorf("%+v", c)
	}
	d.call("DELETE", "/api/conversations/"+session, nil).wants(200)
	f.until("conversation")
	d.post("/api/conversations/"+session+"/restore", nil).wants(200)
	f.until("conversation")
	d.handler.Close()
	f.rest() // it ends
}
