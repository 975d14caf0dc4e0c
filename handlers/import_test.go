package handlers_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"mime/multipart"
	"reflect"
	"strings"
	"testing"
	"time"

	"semel/chat"
	"semel/handlers"
	"semel/llm"
)

type importDoc struct {
	Imported, Skipped, Failed int
	Items                     []struct{ SessionID, Title, Status, Reason string }
}

func (d *door) importFile(body any) (got importDoc) {
	d.t.Helper()
	d.post("/api/conversations/import", body).wants(200).into(&got)
	if got.Imported+got.Skipped+got.Failed != len(got.Items) {
		d.t.Errorf("the numbers do not add up: %+v", got)
	}
	return got
}

func exportPath(session string) string {
	return "/api/conversations/" + session + "/export?format=json"
}

// eventful makes a conversation in which everything happens that an export keeps,
// one request still runs and another waits behind it.
func eventful(d *door) (session, running string) {
	d.t.Helper()
	session = chat.NewID()
	ask4 := func(what string, more ...any) string {
		d.t.Helper()
		id := chat.NewID()
		d.chat(ask(session, id, what, append([]any{"model", "tap"}, more...)...), "Prefer", "wait=0").wants(202)
		return id
	}
	done := func(id string) {
		d.t.Helper()
		d.settled(session, id)
	}
	id := ask4("你好 <b>first</b>?") // 1, 2
	d.tap.pour(id, 1, llm.Piece{Reasoning: "hm <i>"}, "one & only\x00", chat.FinishStop)
	done(id)
	id = ask4("", "kind", "regenerate", "parentId", session+".2") // 3
	d.tap.pour(id, 1, "uno", chat.FinishLength)
	done(id)
	id = ask4("better?", "kind", "edit", "parentId", session+".1") // 4, 5
	d.tap.pour(id, 1, "yes", chat.FinishStop)
	done(id)
	id = ask4("", "kind", "continue", "parentId", session+".5") // 6
	d.tap.pour(id, 1, " indeed", chat.FinishStop)
	done(id)
	id = ask4("lost?") // 7
	d.tap.pour(id, 1, llm.Piece{Reasoning: "so"}, "half", errLost)
	done(id)
	id = ask4("", "kind", "regenerate", "parentId", session+".7") // 9
	d.tap.pour(id, 1, errDenied)
	done(id)
	id = ask4("stop!") // 10, 11
	d.tap.pour(id, 1, "part")
	d.generating(session, id)
	f := d.stream(streamPath(session, id), nil)
	f.texts("part")
	d.post("/api/chat/stop/"+id, doc{"sessionId": session}).wants(200)
	done(id)
	d.call("PATCH", "/api/conversations/"+session, doc{"title": "<img src=x onerror=alert(1)> & co", "systemPrompt": "be ```brief```",
		"model": "tap", "params": doc{"temperature": 0.5}, "pinned": true}).wants(200)
	running = ask4("running?") // 12
	d.tap.pour(running, 1, "so far")
	d.generating(session, running)
	g := d.stream(streamPath(session, running), nil)
	g.texts("so far")
	ask4("waiting?") // 14
	return session, running
}

func TestAConversationSurvivesExportAndImportByteForByte(t *testing.T) {
	t.Parallel()
	from := openDoor(t)
	session, running := eventful(from)
	// What runs is exported with the text that is stored.
	file := from.get(exportPath(session)).wants(200).body
	if again := from.get(exportPath(session)).wants(200).body; !bytes.Equal(stripPartial(file), stripPartial(again)) {
		t.Errorf("the same conversation has other bytes:\n%s\n%s", file, again)
	}
	to := openDoor(t)
	for i, want := range []string{"imported", "skipped", "skipped"} {
		got := to.importFile(string(file))
		if len(got.Items) != 1 || got.Items[0].Status != want || got.Items[0].SessionID != session {
			t.Errorf("import %d: %+v", i+1, got)
		}
		if there := to.get(exportPath(session)).wants(200).body; !bytes.Equal(there, file) {
			t.Errorf("import %d: the export is\n%s, want\n%s", i+1, there, file)
		}
	}
	var doc struct {
		Messages []struct {
			ID, ParentID, Role, Kind, Content, Reasoning, Finish string
			Error                                                *struct{ Code, Outcome string }
		}
	}
	if err := json.Unmarshal(file, &doc); err != nil {
		t.Fatal(err)
	}
	var told []string
	for _, m := range doc.Messages {
		s := fmt.Sprintf("%s %s%s:%s", m.Role, m.Kind, m.Finish, m.Content)
		if m.Error != nil {
			s += " (" + m.Error.Code + " " + m.Error.Outcome + ")"
		}
		told = append(told, s)
	}
	want := []string{"user message:你好 <b>first</b>?", "assistant stop:one & only\x00", "assistant regeneratelength:uno", "user edit:better?", "assistant stop:yes",
		"assistant continuestop: indeed", "user message:lost?", "assistant :half (line_lost unknown)", "assistant regenerate: (provider_refused definite)",
		"user message:stop!", "assistant stopped:part", "user message:running?", told[12], "user message:waiting?", "assistant : (interrupted unknown)"}
	if !strings.HasSuffix(told[12], "(interrupted unknown)") || !reflect.DeepEqual(told, want) {
		t.Errorf("%q, want\n%q", told, want)
	}
	// What waits follows what runs, as it will.
	if got := doc.Messages[13].ParentID; got != session+".12" {
		t.Errorf("the waiting question hangs under %q", got)
	}
	// No model was called there, and nothing is billed.
	if n := to.tap.asked(); n != 0 {
		t.Errorf("the import called a model %d times", n)
	}
	from.tap.pour(running, 1, chat.FinishStop)
	from.settled(session, running)
	// Its own file is no news to the conversation that has gone on since.
	if got := from.importFile(string(file)); got.Skipped != 1 || got.Items[0].SessionID != session {
		t.Errorf("%+v", got)
	}
}

// stripPartial takes out what had come of the running answer, which grows as it is stored.
func stripPartial(file []byte) []byte {
	return bytes.ReplaceAll(file, []byte(`"so far"`), []byte(`""`))
}

func TestARepeatOfAnImportedRequestReplaysOrConflictsAndNeverRuns(t *testing.T) {
	t.Parallel()
	from := openDoor(t)
	session, id, rec := from.answered("[[echo yes]]")
	file := string(from.get(exportPath(session)).wants(200).body)
	to := openDoor(t)
	to.importFile(file)
	got := to.chat(ask(session, id, "[[echo yes]]")).wants(200).has("X-Idempotent-Replayed", "true").record()
	if got.Content != "yes" || got.Cost.Micros != 0 || *got.Usage != *rec.Usage || !got.Message.CreatedAt.Equal(rec.Message.CreatedAt.Time) {
		t.Errorf("%+v", got)
	}
	to.chat(ask(session, id, "something else")).refused(422, "key_reused")
	var receipt struct {
		Sentence string
		Arrivals []struct{ Source, Decision string }
		Ledger   []struct{ Micros int64 }
	}
	to.get(receiptPath(session, id)).wants(200).into(&receipt)
	if !strings.Contains(receipt.Sentence, "no model was called") || receipt.Arrivals[0].Source != "import" || receipt.Ledger[0].Micros != 0 {
		t.Errorf("%+v", receipt)
	}
	page := string(to.get("/c/"+session+"/r/"+id, "Accept", "text/html").wants(200).body)
	if !strings.Contains(page, "came with a file that was imported") || strings.Contains(page, "before the first byte went") {
		t.Errorf("the receipt says: %s", page)
	}
	if page := string(to.get("/c/"+session, "Accept", "text/html").wants(200).body); !strings.Contains(page, "· imported") || strings.Contains(page, "billed once") {
		t.Error("the page does not say that the answer was imported")
	}
	// The conversation goes on here, with all that was said before.
	if rec := to.chat(ask(session, chat.NewID(), "[[echo on]]")).wants(200).record(); rec.Content != "on" || rec.Message.Seq != 4 {
		t.Errorf("%+v", rec)
	}
}

func TestAnImportedFailureIsAskedAgainByAPersonOnly(t *testing.T) {
	t.Parallel()
	from := openDoor(t)
	session, id := chat.NewID(), chat.NewID()
	from.tapped(session, id)
	from.tap.pour(id, 1, errBusyForLong) // which a repeat would restart there
	from.settled(session, id)
	to := openDoor(t)
	to.importFile(string(from.get(exportPath(session)).wants(200).body))
	to.chat(ask(session, id, "Pour.", "model", "tap")).refused(422, "key_reused")
	p := to.chat(ask(session, id, "Pour.")).wants(503).has("X-Idempotent-Replayed", "true").problem()
	if p.Retry != chat.RetryExplicit {
		t.Errorf("%+v", p)
	}
	if to.tap.asked() != 0 {
		t.Error("a repeat called the model")
	}
	to.post("/api/chat/retry/"+id, doc{"sessionId": session, "attempt": 0}).wants(202)
	to.tap.pour(id, 1, "Now.", chat.FinishStop)
	if rec := to.settled(session, id); rec.Content != "Now." || rec.Cost.Micros == 0 {
		t.Errorf("%+v: it is billed as any other", rec)
	}
}

// good is a file with two questions; edits change it as a path says.
func good(edits ...any) doc {
	at := "2025-01-02T03:04:05.006Z"
	d := doc{"format": "semel.conversation", "version": 1, "conversation": doc{"id": "session-good", "title": "Title", "named": true, "head": "session-good.4",
		"createdAt": at, "updatedAt": at, "params": doc{}},
		"messages": []any{
			doc{"id": "session-good.1", "parentId": "", "role": "user", "kind": "message", "requestId": "request-1", "content": "one?", "createdAt": at},
			doc{"id": "session-good.2", "parentId": "session-good.1", "role": "assistant", "requestId": "request-1", "model": "demo", "content": "one", "finish": "stop", "createdAt": at},
			doc{"id": "session-good.3", "parentId": "session-good.2", "role": "user", "kind": "message", "requestId": "request-2", "content": "two?", "createdAt": at},
			doc{"id": "session-good.4", "parentId": "session-good.3", "role": "assistant", "requestId": "request-2", "model": "demo", "content": "two", "finish": "stop", "createdAt": at},
			doc{"id": "session-good.5", "parentId": "session-good.3", "role": "assistant", "kind": "regenerate", "requestId": "request-3", "model": "demo", "content": "",
				"error": doc{"code": "line_lost", "outcome": "unknown", "detail": "far"}},
		}}
	for i := 0; i < len(edits); i += 3 {
		into := d
		switch where := edits[i].(type) {
		case string:
			if where != "" {
				into = d[where].(doc)
			}
		case int:
			into = d["messages"].([]any)[where].(doc)
		}
		if edits[i+2] == nil {
			delete(into, edits[i+1].(string))
		} else {
			into[edits[i+1].(string)] = edits[i+2]
		}
	}
	return d
}

func TestAConversationThatIsNotWhatItShouldBeIsRefusedWithAReason(t *testing.T) {
	t.Parallel()
	d := openDoor(t, func(s *setup) { s.handlers.MessageBytes = 1000 })
	long := strings.Repeat("x", 1001)
	for name, c := range map[string]struct {
		edits []any
		says  string
	}{
		"another format":                {[]any{"", "format", "chatgpt"}, "format is not semel.conversation"},
		"a newer version":               {[]any{"", "version", 2}, "version 1"},
		"an unknown field":              {[]any{"conversation", "secret", "x"}, `unknown field "secret"`},
		"an unknown field of a message": {[]any{0, "html", "x"}, `messages[0]: unknown field "html"`},
		"no id":                         {[]any{"conversation", "id", ""}, "conversation: id: an id has 8 to 64"},
		"an id in small letters":        {[]any{"conversation", "id", "01arz3ndektsv4rrffq69g5fav"}, "must be written 01ARZ3"},
		"a title that is too long":      {[]any{"conversation", "title", strings.Repeat("x", 257)}, "title has 1 to 256 bytes"},
		"a system prompt too long":      {[]any{"conversation", "systemPrompt", long}, "limits.message_bytes allows 1000"},
		"parameters nobody knows":       {[]any{"conversation", "params", doc{"x": 1}}, "params"},
		"a head that is not there":      {[]any{"conversation", "head", "session-good.9"}, "head names no message"},
		"a head without an answer":      {[]any{"conversation", "head", "session-good.5"}, "head names no message"},
		"no head":                       {[]any{"conversation", "head", nil}, "head names no message"},
		"no time":                       {[]any{"conversation", "createdAt", nil}, "createdAt is missing"},
		"a time that is none":           {[]any{"conversation", "createdAt", "yesterday"}, `parsing time "yesterday"`},
		"a time before 1970":            {[]any{0, "createdAt", "1969-12-31T23:59:59Z"}, "before 1970"},
		"a time ahead":                  {[]any{1, "createdAt", "2525-01-01T00:00:00Z"}, "lies ahead of the clock"},
		"no messages":                   {[]any{"", "messages", []any{}}, "no messages"},
		"a gap":                         {[]any{1, "id", "session-good.7"}, "id must be session-good.2"},
		"a message of another":          {[]any{0, "id", "session-else.1"}, "id must be session-good.1"},
		"a circle":                      {[]any{2, "parentId", "session-good.4"}, "no earlier message"},
		"its own parent":                {[]any{2, "parentId", "session-good.3"}, "no earlier message"},
		"an unknown parent":             {[]any{2, "parentId", "nonsense"}, "no earlier message"},
		"an answer elsewhere":           {[]any{3, "parentId", "session-good.1"}, "After a question stands its answer"},
		"an answer of another request":  {[]any{1, "requestId", "request-9"}, "After a question stands its answer"},
		"under what was not answered":   {[]any{1, "finish", nil, 1, "createdAt", nil, 1, "error", doc{"code": "x", "outcome": "none"}}, "an answer that was not given"},
		"pinned in the archive":         {[]any{"conversation", "pinned", true, "conversation", "archived", true}, "is not pinned"},
		"a NUL in the title":            {[]any{"conversation", "title", "a\x00b"}, "NUL"},
		"a role nobody has":             {[]any{0, "role", "system"}, "role is user or assistant"},
		"a kind nobody has":             {[]any{0, "kind", "title"}, "kind of a question is message or edit"},
		"an answer with a kind":         {[]any{1, "kind", "regenerate"}, "After a question stands its answer"},
		"an answer of nothing":          {[]any{4, "parentId", ""}, "parentId is missing"},
		"more of a question":            {[]any{4, "kind", "continue"}, "continue hangs under an answer"},
		"a request id twice":            {[]any{2, "requestId", "request-1", 3, "requestId", "request-1"}, "that of an earlier message"},
		"a request id that is none":     {[]any{0, "requestId", "no"}, "requestId: an id has"},
		"an empty question":             {[]any{0, "content", " \n"}, "content is empty"},
		"a question that is too long":   {[]any{0, "content", long}, "limits.message_bytes allows 1000"},
		"a question with a model":       {[]any{0, "model", "demo"}, "A question has no model"},
		"an answer without a model":     {[]any{1, "model", nil}, "model has 1 to"},
		"an end that nobody knows":      {[]any{1, "finish", "done"}, "finish is stop"},
		"no end":                        {[]any{1, "finish", nil}, "finish is stop"},
		"usage below nothing":           {[]any{1, "usage", doc{"inputTokens": -1, "cachedTokens": 0, "outputTokens": 0, "estimated": false}}, "usage counts tokens"},
		"more cached than sent":         {[]any{1, "usage", doc{"inputTokens": 1, "cachedTokens": 2, "outputTokens": 0, "estimated": false}}, "cachedTokens is a part"},
		"usage beyond reason":           {[]any{1, "usage", doc{"inputTokens": int64(1e18), "cachedTokens": 0, "outputTokens": 0, "estimated": false}}, "usage counts tokens"},
		"a thought before it began":     {[]any{1, "thoughtMs", -1}, "thoughtMs"},
		"an answer and an error":        {[]any{4, "finish", "stop"}, "it is no answer"},
		"an error without a code":       {[]any{4, "error", doc{"outcome": "none"}}, "error.code"},
		"an error with a bad code":      {[]any{4, "error", doc{"code": "<b>", "outcome": "none"}}, "error.code"},
		"an outcome of attempts":        {[]any{4, "error", doc{"code": "x", "outcome": "fenced"}}, "error.outcome"},
		"nested too deep":               {[]any{"conversation", "params", doc{"x": doc{"x": doc{"x": doc{"x": doc{"x": doc{"x": doc{"x": doc{}}}}}}}}}, "nested deeper than 8"},
	} {
		got := d.importFile(good(c.edits...))
		if got.Failed != 1 || len(got.Items) != 1 || !strings.Contains(got.Items[0].Reason, c.says) {
			t.Errorf("%s: %+v, want %q", name, got, c.says)
		}
	}
	if got := d.importFile(good()); got.Imported != 1 || got.Items[0].SessionID != "session-good" || got.Items[0].Title != "Title" {
		t.Errorf("the file that all of these are made from: %+v", got)
	}
}

func TestABadConversationSpoilsNoOther(t *testing.T) {
	t.Parallel()
	d := openDoor(t)
	one := func(id string, edits ...any) string {
		b, err := json.Marshal(good(edits...))
		if err != nil {
			t.Fatal(err)
		}
		return strings.ReplaceAll(string(b), "session-good", id)
	}
	file := func(end string, list ...string) string {
		return `{"format":"semel.conversations","version":1,"conversations":[` + strings.Join(list, ",\n") + end
	}
	evil := `<svg onload=alert(1)>`
	got := d.importFile(file("]}", one("session-one"), one("session-two", 0, "role", "system", "conversation", "title", evil), "17", strings.Replace(one("session-bad"), "one?", "on\xff?", 1),
		one("session-one"), one("session-three")))
	var told []string
	for _, i := range got.Items {
		told = append(told, i.Status+" "+i.SessionID+" "+i.Title)
	}
	want := []string{"imported session-one Title", "failed session-two " + evil, "failed  ", "failed  ", "skipped session-one Title", "imported session-three Title"}
	if !reflect.DeepEqual(told, want) || !strings.Contains(got.Items[3].Reason, "UTF-8") {
		t.Errorf("%q, want %q: %+v", told, want, got)
	}
	// A file that breaks off has given what came before.
	for end, says := range map[string]string{"": "ends too early", ",{]}": "breaks at byte", `]} x`: "something after", `]}{}`: "something after", `],"format":1}`: "there twice"} {
		id := fmt.Sprintf("session-%d-%x", len(says), end)
		got := d.importFile(file(end, one(id)))
		if got.Imported != 1 || got.Failed != 1 || got.Items[0].SessionID != id || !strings.Contains(got.Items[1].Reason, says) {
			t.Errorf("%q: %+v, want %q", end, got, says)
		}
	}
	// A file that is none is refused.
	for body, says := range map[string]string{"": "too early", "[]": "JSON object", "{": "too early", `{"conversations":3}`: "must be a list", `{"a":1}`: "unknown field", `nonsense`: "breaks"} {
		if p := d.post("/api/conversations/import", body).refused(400, "bad_request"); !strings.Contains(p.Detail, says) {
			t.Errorf("%q: %s, want %q", body, p.Detail, says)
		}
	}
	d.post("/api/conversations/import", "x", "Content-Type", "text/plain").refused(415, "unsupported_media")
	// The other order of fields, and none at all.
	if got := d.importFile(`{"conversations":[` + one("session-four") + `],"version":1,"format":"semel.conversations"}`); got.Imported != 1 {
		t.Errorf("%+v", got)
	}
	if got := d.importFile(`{"conversations":[],"version":1,"format":"semel.conversations"}`); len(got.Items) != 0 || got.Items == nil {
		t.Errorf("%+v", got)
	}
}

// An endless file begins somehow and goes on with one letter.
type endless struct {
	begin string
	read  int
}

func (e *endless) Read(p []byte) (int, error) {
	for i := range p {
		if p[i] = 'x'; e.read+i < len(e.begin) {
			p[i] = e.begin[e.read+i]
		}
	}
	e.read += len(p)
	return len(p), nil
}

func TestAnImportHasLimitsThatItNames(t *testing.T) {
	t.Parallel()
	var list []any
	for i := range handlers.ImportMessages + 1 {
		list = append(list, doc{"id": fmt.Sprint("session-good.", i+1)})
	}
	raw := []byte(mustJSON(good("", "messages", list)))
	if _, err := handlers.ParseConversation(raw, time.Now()); err == nil || !strings.Contains(fmt.Sprint(problemIn(err)), "limit is 10000") {
		t.Errorf("%v", err)
	}
	count := 0
	each := func(b []byte) error { count++; return nil }
	big := &endless{begin: `{"format":"semel.conversations","version":1,"conversations":[1,"`}
	err := handlers.ReadConversations(big, each)
	if p := problemIn(err); p == nil || p.Status != 413 || !strings.Contains(p.Detail, fmt.Sprint(handlers.ImportConversationBytes)) || count != 1 {
		t.Errorf("%v after %d", err, count)
	}
	if big.read > handlers.ImportConversationBytes+1<<10 {
		t.Errorf("%d bytes were read", big.read)
	}
	d := openDoor(t)
	many := `{"format":"semel.conversations","version":1,"conversations":[` + strings.Repeat("1,", handlers.ImportConversations) + `1]}`
	got := d.importFile(many)
	if last := got.Items[len(got.Items)-1]; got.Failed != handlers.ImportConversations+1 || !strings.Contains(last.Reason, "more than 10000 conversations") {
		t.Errorf("%d, %+v", got.Failed, last)
	}
}

func problemIn(err error) *chat.Problem {
	p, _ := err.(*chat.Problem)
	return p
}

func TestAllConversationsAreOneFile(t *testing.T) {
	t.Parallel()
	from := openDoor(t)
	if got := string(from.get("/api/conversations/export?format=json").wants(200).body); got != `{"format":"semel.conversations","version":1,"conversations":[`+"\n]}\n" {
		t.Errorf("%q", got)
	}
	session, running := eventful(from)
	from.tap.pour(running, 1, chat.FinishStop)
	from.settled(session, running)
	other, _, _ := from.answered("[[echo other]]")
	gone, _, _ := from.answered("[[echo gone]]")
	from.call("DELETE", "/api/conversations/"+gone, nil).wants(200)
	from.post("/api/chat/stop/"+lastRequest(from, session), doc{"sessionId": session})
	file := from.get("/api/conversations/export").wants(200).has("Content-Disposition", `attachment; filename="semel.json"`).body
	to := openDoor(t)
	got := to.importFile(string(file))
	if got.Imported != 2 || got.Items[0].SessionID != session || got.Items[1].SessionID != other {
		t.Errorf("%+v", got)
	}
	if again := to.get("/api/conversations/export").wants(200).body; !bytes.Equal(again, file) {
		t.Errorf("the export of what was imported differs:\n%s\n%s", again, file)
	}
	from.get("/api/conversations/export?format=md").refused(400, "bad_request")
}

// lastRequest is the request that waits last in a conversation.
func lastRequest(d *door, session string) string {
	var th threadDoc
	d.get("/api/conversations/" + session).wants(200).into(&th)
	return th.Requests[len(th.Requests)-1].RequestID
}

func TestAFormImportsFilesAndThePageSaysWhatBecameOfThem(t *testing.T) {
	t.Parallel()
	d := openDoor(t)
	form := func(files ...string) (string, string) {
		var b bytes.Buffer
		w := multipart.NewWriter(&b)
		for i, f := range files {
			part, err := w.CreateFormFile("file", fmt.Sprintf("file-%d.json", i+1))
			if err != nil {
				t.Fatal(err)
			}
			if _, err := part.Write([]byte(f)); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		return b.String(), w.FormDataContentType()
	}
	evil := `<img src=x onerror=alert(1)>`
	for lang, words := range map[string][]string{"en": {"1 conversation imported", "1 could not be imported", "Import and export"}, "zh-CN": {"导入与导出", "1 个无法导入"}} {
		body, ct := form(mustJSON(good("conversation", "title", evil)), "no JSON "+evil)
		page := string(d.call("POST", "/import", body, "Content-Type", ct, "Accept-Language", lang).wants(200).body)
		if strings.Contains(page, evil) || !strings.Contains(page, "&lt;img src=x") || !strings.Contains(page, `href="/c/session-good"`) || !strings.Contains(page, "file-2.json") {
			t.Errorf("%s: %s", lang, page)
		}
		for _, w := range words[len(words)-1:] {
			if !strings.Contains(page, w) {
				t.Errorf("%s: %q is not on the page", lang, w)
			}
		}
	}
	body, ct := form()
	if page := string(d.call("POST", "/import", body, "Content-Type", ct).wants(400).body); !strings.Contains(page, "The form has no file.") {
		t.Error(page)
	}
	page := string(d.get("/import").wants(200).body)
	for _, part := range []string{`enctype="multipart/form-data"`, `href="/api/conversations/export?format=json"`, "importer.js"} {
		if !strings.Contains(page, part) {
			t.Errorf("%q is not on the page", part)
		}
	}
	if side := string(d.get("/c/session-good").wants(200).body); !strings.Contains(side, `/api/conversations/session-good/export?format=md`) || !strings.Contains(side, `href="/import"`) {
		t.Error("the page leads nowhere")
	}
}

func TestMarkdownKeepsItsCodeApart(t *testing.T) {
	t.Parallel()
	d := openDoor(t)
	session, _, _ := d.answered("[[echo ```go\nfunc main() {]]")
	d.call("PATCH", "/api/conversations/"+session, doc{"systemPrompt": "Use ````fences````."}).wants(200)
	id := chat.NewID()
	d.tapped(session, id)
	d.tap.pour(id, 1, llm.Piece{Reasoning: "```\nhm"}, "half", errLost)
	d.settled(session, id)
	got := string(d.get("/api/conversations/" + session + "/export?format=md").wants(200).body)
	for _, part := range []string{
		"`````system\nUse ````fences````.\n`````\n",
		"\n```go\nfunc main() {\n```\n\n## You · ",
		"\n````reasoning\n```\nhm\n````\n\nhalf\n\n> The line to the model was lost: ",
	} {
		if !strings.Contains(got, part) {
			t.Errorf("%q is not in\n%s", part, got)
		}
	}
}

// FuzzImport: what the parser takes, it takes whole, and an export of it is a file
// that says the same.
func FuzzImport(f *testing.F) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	f.Add([]byte(mustJSON(good())))
	f.Add([]byte(mustJSON(good(4, "kind", "continue", 4, "parentId", "session-good.4", "conversation", "named", false))))
	f.Add([]byte(`{"format":"semel.conversation","version":1,"conversation":{},"messages":[{}]}`))
	f.Add([]byte(`{"conversation":{"id":"\ud800"}}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		_ = handlers.ReadConversations(bytes.NewReader(raw), func([]byte) error { return nil })
		a, err := handlers.ParseConversation(raw, now)
		if err != nil {
			if problemIn(err) == nil {
				t.Fatalf("%q: %v is no problem", raw, err)
			}
			return
		}
		file := handlers.ExportJSON(a)
		again, err := handlers.ParseConversation(file, now)
		if err != nil || !reflect.DeepEqual(a, again) {
			t.Fatalf("%q becomes %s, which is %+v (%v), want %+v", raw, file, again, err, a)
		}
		if next := handlers.ExportJSON(again); !bytes.Equal(next, file) {
			t.Fatalf("%s becomes %s", file, next)
		}
	})
}
