package handlers_test

import (
	"encoding/base64"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"semel/chat"
	"semel/db"
	"semel/db/dbtest"
	"semel/engine"
	"semel/llm/llmtest"
)

// upload stores a file.
func (d *door) upload(name, content string) (a chat.Attachment) {
	d.t.Helper()
	d.uploads(name, content).wants(200).into(&a)
	return a
}

func (d *door) uploads(name, content string) reply {
	d.t.Helper()
	return d.post("/api/attachments?name="+url.QueryEscape(name), content, "Content-Type", "application/octet-stream")
}

// gif is the smallest image there is.
var gif = string(must(base64.StdEncoding.DecodeString("R0lGODlhAQABAIAAAAAAAP///yH5BAEAAAAALAAAAAABAAEAAAIBRAA7")))

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// A model that tells what it was sent, and one that reads text only.
func withEye(eye *llmtest.Client) func(*setup) {
	return func(s *setup) {
		s.engine.Models = append(s.engine.Models,
			engine.Model{Name: "eye", Client: eye, Concurrency: 8}, engine.Model{Name: "blind", Client: eye, NoImages: true, Concurrency: 8})
	}
}

func TestAFileIsWhatItsBytesAre(t *testing.T) {
	t.Parallel()
	d := openDoor(t)
	for _, tt := range []struct{ name, content, as, media string }{
		{"a.png", dbtest.PNG(7, 5), "a.png", "image/png"},
		{"a.html", dbtest.PNG(7, 5), "a.html", "image/png"}, // whatever it calls itself
		{"pixel", gif, "pixel", "image/gif"},
		{"page.html", "<script>alert(1)</script>", "page.html", "text/plain"},
		{"drawing.svg", `<svg xmlns="http://www.w3.org/2000/svg" onload="alert(1)"/>`, "drawing.svg", "text/plain"},
		{"../../etc/pass\nwd", "x", "passwd", "text/plain"},
		{`C:\Users\me\说明.md`, "# 说明", "说明.md", "text/plain"},
		{"a\u202egpj.txt", "x", "agpj.txt", "text/plain"}, // nothing turns its reading round
		{"..", "x", "text.txt", "text/plain"},
		{"", gif, "image.gif", "image/gif"},
		{strings.Repeat("长", 200), "x", strings.Repeat("长", 66), "text/plain"},
	} {
		a := d.upload(tt.name, tt.content)
		if a.Name != tt.as || a.MediaType != tt.media || a.Bytes != int64(len(tt.content)) || !chat.IsAttachmentID(a.ID) || len(a.SHA256) != 64 {
			t.Errorf("%q: %+v, want the name %q and the type %s", tt.name, a, tt.as, tt.media)
		}
		if (a.Width > 0) != a.Image() || (a.Height > 0) != a.Image() {
			t.Errorf("%q: %d × %d", tt.name, a.Width, a.Height)
		}
		media := a.MediaType
		if !a.Image() {
			media += "; charset=utf-8"
		}
		r := d.get("/api/attachments/"+a.ID).wants(200).has("Content-Type", media, "X-Content-Type-Options", "nosniff", "Content-Security-Policy", wantFileCSP)
		if string(r.body) != tt.content || !strings.HasPrefix(r.header.Get("Content-Disposition"), "inline; filename") {
			t.Errorf("%q is served as %q, %q", tt.name, r.header.Get("Content-Disposition"), r.body)
		}
		if again := d.upload(tt.name, tt.content); again != a {
			t.Errorf("the second time %q is %+v, first it was %+v", tt.name, again, a)
		}
		d.get("/api/attachments/"+a.ID, "If-None-Match", `"`+a.SHA256+`"`).wants(304)
	}
}

func TestAFileThatIsNotTakenIsRefusedWithTheReason(t *testing.T) {
	t.Parallel()
	d := openDoor(t, func(s *setup) { s.handlers.Attachments.Bytes = 1000 })
	for _, tt := range []struct {
		what, content string
		status        int
		code, says    string
	}{
		{"nothing", "", 422, "file_empty", "empty"},
		{"a NUL", "a\x00b", 415, "file_kind", "NUL"},
		{"no UTF-8", "caf\xe9", 415, "file_kind", "UTF-8"},
		{"half an image", dbtest.PNG(7, 5)[:20], 415, "file_kind", "PNG"},
		{"an image without a size", "GIF89a\x00\x00\x00\x00\x00\x00\x00", 415, "file_kind", "GIF"},
		{"a document", "%PDF-1.7\n\xe2\xe3\xcf\xd3", 415, "file_kind", "neither"},
		{"too much", strings.Repeat("x", 1001), 413, "file_too_large", "limits.attachment_bytes allows 1000 "},
	} {
		if p := d.uploads("a", tt.content).refused(tt.status, tt.code); !strings.Contains(p.Detail, tt.says) {
			t.Errorf("%s: %s, want %q", tt.what, p.Detail, tt.says)
		}
	}
	// A body whose length nobody says.
	p := d.post("/api/attachments?name=a", &endless{}, "Content-Type", "text/plain").refused(413, "file_too_large")
	if !strings.Contains(p.Detail, "1000") {
		t.Errorf("%s", p.Detail)
	}
	d.upload("just fits", strings.Repeat("x", 1000))
	if n, err := d.db.Attachments(t.Context(), db.LocalUser, []string{"x"}); err != nil || n[0].ID != "" {
		t.Errorf("%+v (%v)", n, err)
	}
}

// A question with files arrives with them, is one question however often it is sent,
// and later turns carry them too.
func TestAQuestionCarriesFiles(t *testing.T) {
	t.Parallel()
	eye := llmtest.New(llmtest.Answer("I see."))
	d := openDoor(t, withEye(eye))
	note, picture := d.upload("note.txt", "one\ntwo\n"), d.upload("picture.png", dbtest.PNG(30, 20))
	renamed := d.upload("renamed.txt", "one\ntwo\n")
	session, id := chat.NewID(), chat.NewID()
	question := ask(session, id, "What is this?", "attachments", []string{picture.ID, note.ID}, "model", "eye")
	first := d.chat(question).wants(200)
	again := d.chat(question).wants(200).has("X-Idempotent-Replayed", "true")
	if first.record().Message.ID != again.record().Message.ID || eye.Count() != 1 {
		t.Errorf("%d calls", eye.Count())
	}
	// The same bytes are the same intent, whatever they are called; others are not.
	d.chat(ask(session, id, "What is this?", "attachments", []string{picture.ID, renamed.ID}, "model", "eye")).wants(200).has("X-Idempotent-Replayed", "true")
	for _, other := range [][]string{{note.ID, picture.ID}, {picture.ID}, nil, {picture.ID, note.ID, note.ID}, {picture.ID, chat.AttachmentID(9, "x", note.SHA256)}} {
		p := d.chat(ask(session, id, "What is this?", "attachments", other, "model", "eye")).refused(422, "key_reused")
		if !slices.Equal(p.Fields, []string{"attachments"}) {
			t.Errorf("with %q the fields %q differ", other, p.Fields)
		}
	}
	got := eye.Calls()[0].Turns
	if f := got[0].Files; len(f) != 2 || f[0].Name != "picture.png" || f[0].MediaType != "image/png" || string(f[0].Data) != dbtest.PNG(30, 20) || string(f[1].Data) != "one\ntwo\n" {
		t.Errorf("the model is sent %+v", got)
	}
	var th struct {
		Messages []struct{ Attachments []chat.Attachment }
	}
	d.get("/api/conversations/" + session).wants(200).into(&th)
	if m := th.Messages; len(m) != 2 || len(m[0].Attachments) != 2 || m[0].Attachments[0].ID != picture.ID || m[0].Attachments[1].Name != "note.txt" || m[1].Attachments != nil {
		t.Errorf("the conversation has %+v", th)
	}
	// Later turns, another answer, and a model that reads text only.
	d.chat(ask(session, chat.NewID(), "And now?", "model", "eye")).wants(200)
	d.chat(ask(session, chat.NewID(), "", "kind", "regenerate", "parentId", chat.MessageID(session, 2), "model", "eye")).wants(200)
	for n, call := range eye.Calls()[1:] {
		if f := call.Turns[0].Files; len(f) != 2 || f[0].Data == nil {
			t.Errorf("call %d is sent %+v", n+1, call.Turns)
		}
	}
	d.chat(ask(session, chat.NewID(), "And you?", "model", "blind")).wants(200)
	if f := eye.Calls()[3].Turns[0].Files; len(f) != 2 || f[0].Data != nil || string(f[1].Data) != "one\ntwo\n" {
		t.Errorf("a model that reads text only is sent %+v", f)
	}
	// A question changed keeps the files that it names.
	edit := chat.NewID()
	d.chat(ask(session, edit, "Once more", "kind", "edit", "parentId", chat.MessageID(session, 1), "attachments", []string{note.ID}, "model", "eye")).wants(200)
	if f := eye.Calls()[4].Turns[0].Files; len(f) != 1 || f[0].Name != "note.txt" {
		t.Errorf("the changed question is sent with %+v", f)
	}
	if used := d.get(statusPath(session, id)).wants(200).record(); used.Usage.InputTokens < picture.Tokens+85 {
		t.Errorf("it counts %+v", used.Usage)
	}
}

// A file alone is a question, and names its conversation.
func TestAFileIsAQuestionWithoutWords(t *testing.T) {
	t.Parallel()
	d := openDoor(t)
	a := d.upload("收据 12.txt", "x")
	session := chat.NewID()
	d.chat(ask(session, chat.NewID(), " ", "attachments", []string{a.ID})).wants(200)
	var c struct{ Title string }
	d.get("/api/conversations/" + session).wants(200).into(&c)
	if c.Title != "收据 12.txt" {
		t.Errorf("the title is %q", c.Title)
	}
	d.chat(ask(session, chat.NewID(), " ")).refused(400, "bad_request")
}

func TestWhatAQuestionMayNotCarryIsRefusedAndNothingIsStored(t *testing.T) {
	t.Parallel()
	eye := llmtest.New(llmtest.Answer("I see."))
	d := openDoor(t, withEye(eye), func(s *setup) {
		s.handlers.Attachments = chat.AttachmentLimits{Count: 2}
		s.engine.AttachedBytes = 100
	})
	small, large, picture := d.upload("a.txt", "a"), d.upload("b.txt", strings.Repeat("b", 99)), d.upload("c.png", dbtest.PNG(1, 1))
	nobodys := chat.AttachmentID(2, "a.txt", small.SHA256)
	session := chat.NewID()
	for _, tt := range []struct {
		more   []any
		status int
		code   string
		says   string
	}{
		{[]any{"attachments", []string{small.ID, small.ID, small.ID}}, 422, "too_many_attachments", "limits.attachments allows 2"},
		{[]any{"attachments", []string{large.ID, large.ID}}, 413, "attachments_too_large", "198 bytes together; limits.attached_bytes allows 100"},
		{[]any{"attachments", []string{nobodys}}, 422, "attachment_unknown", "not here"},
		{[]any{"attachments", []string{small.ID, strings.Repeat("0", 32)}}, 422, "attachment_unknown", "not here"},
		{[]any{"attachments", []string{"../" + small.ID}}, 400, "bad_request", "none"},
		{[]any{"attachments", []string{strings.ToUpper(small.ID)}}, 400, "bad_request", "none"},
		{[]any{"attachments", []string{picture.ID}, "model", "blind"}, 422, "images_not_taken", `"blind" takes no images`},
		{[]any{"attachments", []string{small.ID}, "kind", "continue", "parentId", session + ".2", "content", ""}, 400, "bad_request", "those of the question stay"},
	} {
		id := chat.NewID()
		if p := d.chat(ask(session, id, "Look", tt.more...)).refused(tt.status, tt.code); !strings.Contains(p.Detail, tt.says) || p.RequestID != id {
			t.Errorf("%v: %+v, want %q", tt.more, p, tt.says)
		}
		d.get(statusPath(session, id)).refused(404, "not_found")
	}
	if eye.Count() != 0 {
		t.Errorf("%d calls", eye.Count())
	}
	d.chat(ask(session, chat.NewID(), "Look", "attachments", []string{small.ID, large.ID}, "model", "blind")).wants(200)
	for _, id := range []string{nobodys, strings.Repeat("0", 32), "x"} {
		d.get("/api/attachments/"+id).refused(404, "not_found")
	}
}

// A conversation is deleted with its files: a question that comes again is told so,
// not that its file is missing.
func TestARepeatWhoseFileIsGoneIsToldOfItsConversation(t *testing.T) {
	inBubble(t, func(t *testing.T, d *door) {
		a := d.upload("a.txt", "a")
		session, id := chat.NewID(), chat.NewID()
		question := ask(session, id, "[[echo yes]]", "attachments", []string{a.ID})
		d.chat(question).wants(200)
		d.call("DELETE", "/api/conversations/"+session, nil).wants(200)
		time.Sleep(db.UndoWindow + 2*time.Hour) // somebody comes round to purge it
		d.get("/api/attachments/"+a.ID).refused(404, "not_found")
		d.chat(question).refused(410, "conversation_gone")
	})
}

// What was exported with its files is the same where it is imported, twice adds
// nothing, and both exports are the same byte for byte.
func TestFilesAreExportedAndImported(t *testing.T) {
	t.Parallel()
	from, to := openDoor(t), openDoor(t)
	note, picture := from.upload("note ``` 1.txt", "a\n```\nb"), from.upload("a [b].png", dbtest.PNG(3, 3))
	again := from.upload("again.txt", "a\n```\nb")
	session := chat.NewID()
	from.chat(ask(session, chat.NewID(), "[[echo one]]", "attachments", []string{picture.ID, note.ID})).wants(200)
	from.chat(ask(session, chat.NewID(), "", "attachments", []string{again.ID})).wants(200)
	path := "/api/conversations/" + session + "/export?format=json"
	file := from.get(path).wants(200)
	if n := strings.Count(string(file.body), `"sha256":"`+note.SHA256+`","mediaType"`); n != 1 {
		t.Errorf("the note is in the file %d times", n)
	}
	for range 2 {
		got := to.importFile(string(file.body))
		if got.Failed != 0 {
			t.Fatalf("%+v", got)
		}
	}
	if there := to.get(path).wants(200); string(there.body) != string(file.body) {
		t.Errorf("exported again it is\n%s, before\n%s", there.body, file.body)
	}
	if c := to.get("/api/attachments/" + picture.ID).wants(200); string(c.body) != dbtest.PNG(3, 3) {
		t.Error("the image differs")
	}
	all := from.get("/api/conversations/export").wants(200)
	if !strings.Contains(string(all.body), strings.TrimSpace(string(file.body))) {
		t.Errorf("all of it is %s", all.body)
	}
	if got := to.importFile(string(all.body)); got.Skipped != 1 || len(got.Items) != 1 {
		t.Errorf("%+v", got)
	}
	md := string(from.get("/api/conversations/" + session + "/export?format=md").wants(200).body)
	for _, want := range []string{
		"![a \\[b\\].png](data:image/png;base64," + base64.StdEncoding.EncodeToString([]byte(dbtest.PNG(3, 3))) + ")",
		"**note \\`\\`\\` 1.txt**\n\n````\na\n```\nb\n````\n", "**again.txt**",
	} {
		if !strings.Contains(md, want) {
			t.Errorf("%q is missing in\n%s", want, md)
		}
	}
}

func TestAnImportRefusesFilesThatAreNotWhatTheySay(t *testing.T) {
	t.Parallel()
	d := openDoor(t, func(s *setup) { s.handlers.Attachments = chat.AttachmentLimits{Count: 2, Bytes: 200, Total: 300} })
	f := must(chat.ReadFile("", []byte("a note")))
	other := must(chat.ReadFile("", []byte("another")))
	carried := func(name, sha string) doc { return doc{"name": name, "sha256": sha} }
	text := doc{"sha256": f.SHA256, "mediaType": "text/plain", "text": "a note"}
	big := strings.Repeat("x", 201)
	for i, tt := range []struct {
		attachments, files []any
		says               string
	}{
		{[]any{carried("a.txt", f.SHA256)}, nil, "names none of files"},
		{nil, []any{text}, "No question carries"},
		{[]any{carried("a.txt", f.SHA256)}, []any{text, text}, "twice"},
		{[]any{carried("a/b.txt", f.SHA256)}, []any{text}, "no name of a file"},
		{[]any{carried("", f.SHA256)}, []any{text}, "no name of a file"},
		{[]any{carried("a.txt", f.SHA256), carried("b.txt", f.SHA256), carried("c.txt", f.SHA256)}, []any{text}, "limits.attachments allows 2"},
		{[]any{carried("a.txt", other.SHA256)}, []any{doc{"sha256": other.SHA256, "mediaType": "text/plain", "text": "a note"}}, "sha256 is not that"},
		{[]any{carried("a.txt", f.SHA256)}, []any{doc{"sha256": f.SHA256, "mediaType": "image/png", "text": "a note"}}, "mediaType must be text/plain"},
		{[]any{carried("a.txt", f.SHA256)}, []any{doc{"sha256": f.SHA256, "mediaType": "text/plain", "text": "a note", "base64": "YQ=="}}, "not both"},
		{[]any{carried("a.txt", f.SHA256)}, []any{doc{"sha256": f.SHA256, "mediaType": "text/plain", "base64": "%"}}, "files[0]"},
		{[]any{carried("a.txt", f.SHA256)}, []any{doc{"sha256": f.SHA256, "mediaType": "text/plain"}}, "empty"},
		{[]any{carried("a.txt", f.SHA256)}, []any{doc{"sha256": must(chat.ReadFile("", []byte(big))).SHA256, "mediaType": "text/plain", "text": big}}, "limits.attachment_bytes allows 200"},
	} {
		id := fmt.Sprint("session-bad-", i)
		question := doc{"id": id + ".1", "parentId": "", "role": "user", "kind": "message", "requestId": "request-1", "content": "look", "createdAt": "2025-01-01T00:00:00.000Z"}
		if tt.attachments != nil {
			question["attachments"] = tt.attachments
		}
		c := doc{"format": "semel.conversation", "version": 1, "messages": []any{question,
			doc{"id": id + ".2", "parentId": id + ".1", "role": "assistant", "requestId": "request-1", "model": "m", "content": "yes", "finish": "stop", "createdAt": "2025-01-01T00:00:01.000Z"}},
			"conversation": doc{"id": id, "title": "look", "named": false, "pinned": false, "archived": false, "model": "", "systemPrompt": "", "params": doc{}, "head": id + ".2",
				"createdAt": "2025-01-01T00:00:00.000Z", "updatedAt": "2025-01-01T00:00:01.000Z"}}
		if tt.files != nil {
			c["files"] = tt.files
		}
		got := d.importFile(mustJSON(c))
		if got.Failed != 1 || !strings.Contains(got.Items[0].Reason, tt.says) {
			t.Errorf("%d: %+v, want %q", i, got, tt.says)
		}
	}
}

// The form without scripts sends the files of the question that it changes again.
func TestTheFormKeepsTheFilesOfAnEditedQuestion(t *testing.T) {
	t.Parallel()
	d := openDoor(t)
	a := d.upload("<b>.txt", "x")
	session := chat.NewID()
	d.chat(ask(session, chat.NewID(), "[[echo one]]", "attachments", []string{a.ID})).wants(200)
	page := string(d.get("/c/"+session+"?edit=1", "Accept", "text/html").wants(200).body)
	for _, want := range []string{`<input type="hidden" name="attachments" value="` + a.ID + `">`, `&lt;b&gt;.txt`, `data-file-bytes="5242880"`, `href="/api/attachments/` + a.ID + `"`} {
		if !strings.Contains(page, want) {
			t.Errorf("%s is missing", want)
		}
	}
	form := url.Values{"requestId": {chat.NewID()}, "content": {"[[echo two]]"}, "kind": {"edit"}, "parentId": {session + ".1"}, "attachments": {a.ID}}
	d.post("/c/"+session, form.Encode(), "Content-Type", "application/x-www-form-urlencoded").wants(303)
	th := must(d.db.Thread(t.Context(), db.LocalUser, session))
	if m := th.Messages[0]; m.Content != "[[echo two]]" || len(m.Attachments) != 1 || m.Attachments[0].ID != a.ID {
		t.Errorf("the changed question is %+v", m)
	}
}

// What nobody sends goes after a while, whatever else is kept.
func TestUploadsThatNobodySendsGo(t *testing.T) {
	inBubble(t, func(t *testing.T, d *door) {
		sent, left := d.upload("sent.txt", "sent"), d.upload("left.txt", "left")
		d.chat(ask(chat.NewID(), chat.NewID(), "[[echo yes]]", "attachments", []string{sent.ID})).wants(200)
		time.Sleep(46 * time.Hour)
		d.get("/api/attachments/" + left.ID).wants(200)
		time.Sleep(4 * time.Hour)
		d.get("/api/attachments/"+left.ID).refused(404, "not_found")
		d.get("/api/attachments/" + sent.ID).wants(200)
	}, func(s *setup) { s.engine.Uploads = 48 * time.Hour })
}
