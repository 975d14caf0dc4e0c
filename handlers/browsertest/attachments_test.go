package browsertest

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/emulation"

	"semel/chat"
	"semel/db/dbtest"
	"semel/engine"
	"semel/handlers"
)

// Files beside a question: chosen, dropped, pasted; before they are sent and after.

// picture is an image of 40 × 30, in base64.
var picture = base64.StdEncoding.EncodeToString([]byte(dbtest.PNG(40, 30)))

// A file is what a test hands to a page: a text, or the image.
type file struct{ Name, Text, Base64 string }

// transfer is JavaScript for a DataTransfer with these files.
func transfer(files ...file) string {
	list, err := json.Marshal(files)
	if err != nil {
		panic(err)
	}
	return fmt.Sprintf(`(() => {
		const all = new DataTransfer();
		for (const f of %s) all.items.add(new File([f.Base64 ? Uint8Array.from(atob(f.Base64), (c) => c.charCodeAt(0)) : f.Text], f.Name));
		return all;
	})()`, list)
}

// attach chooses files with the dialog.
func (tb *tab) attach(files ...file) {
	tb.t.Helper()
	js[any](tb, `(() => {
		const pick = document.querySelector('#pick');
		pick.files = %s.files;
		pick.dispatchEvent(new Event('change'));
	})()`, transfer(files...))
}

// chips returns the files that wait to be sent, each with its state.
func (tb *tab) chips() string {
	tb.t.Helper()
	return strings.Join(js[[]string](tb, `[...document.querySelectorAll('#attached li')].map((li) => li.dataset.state + ' ' + li.querySelector('.name').textContent)`), ", ")
}

func (tb *tab) chipsAre(want string) {
	tb.t.Helper()
	got := ""
	defer func() {
		if tb.t.Failed() {
			tb.t.Logf("the chips are %q, want %q", got, want)
		}
	}()
	until(tb.t, "the files that wait are "+want, func() bool { got = tb.chips(); return got == want })
}

// carries returns what the questions on the page carry.
func (tb *tab) carries() string {
	tb.t.Helper()
	return strings.Join(js[[]string](tb, `[...document.querySelectorAll('#log [data-role=user]')].map((a) =>
		[...a.querySelectorAll('.carried li')].map((li) => li.querySelector('img')?.alt ?? li.querySelector('.name').textContent + ' ' + li.querySelector('.size').textContent).join(' + '))`), ", ")
}

// attachmentsOf returns the ids that were sent with a question, each time.
func (r *rig) attachmentsOf(id string) (list [][]string) {
	r.t.Helper()
	for _, e := range r.proxy.posts("/api/chat", id) {
		var b struct{ Attachments []string }
		if err := json.Unmarshal([]byte(e.Body), &b); err != nil {
			r.t.Fatal(err)
		}
		list = append(list, b.Attachments)
	}
	return list
}

func TestFilesAreSentWithAQuestion(t *testing.T) {
	r := newRig(t)
	tb := newProfile(t).open(r.url + "/")
	tb.attach(file{Name: "notes.txt", Text: "one\ntwo\n"}, file{Name: "picture.png", Base64: picture})
	tb.chipsAre("ready notes.txt, ready picture.png")
	id := tb.send("[[rate 0]] What is in these?")
	tb.marked(id, "answered")
	r.check(1, tb)
	if got, want := tb.carries(), "notes.txt 8 B + picture.png"; got != want {
		t.Errorf("the question carries %q, want %q", got, want)
	}
	if got := tb.text(id); !strings.HasPrefix(got, "This came with the question: “notes.txt” (text, lines: 2), “picture.png” (a PNG image of ") {
		t.Errorf("the answer is %q", got)
	}
	if got := tb.chips(); got != "" {
		t.Errorf("after the send %q wait", got)
	}
	// The image is there, in its place, and the text opens as text.
	tb.wait(`document.querySelector('.carried img').naturalWidth === 40`)
	href := js[string](tb, `document.querySelector('.carried .paper').href`)
	res, err := http.Get(href)
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	if got := res.Header.Get("Content-Type"); got != "text/plain; charset=utf-8" {
		t.Errorf("the text is served as %s", got)
	}
	tb.reload()
	r.check(1, tb)
	if got, want := tb.carries(), "notes.txt 8 B + picture.png"; got != want {
		t.Errorf("after a reload the question carries %q, want %q", got, want)
	}
	tb.visit(href) // it is shown, and nothing in it runs
	if got := js[string](tb, `document.body.textContent`); got != "one\ntwo\n" {
		t.Errorf("the text opens as %q", got)
	}
}

// What the page shows at once is what the server renders: nothing jumps when it comes.
func TestWhatAQuestionCarriesStaysWhereItIs(t *testing.T) {
	r := newRig(t)
	tb := newProfile(t).open(r.url + "/")
	tb.attach(file{Name: "notes <1>.txt", Text: strings.Repeat("x", 3000)}, file{Name: "picture.png", Base64: picture})
	tb.chipsAre("ready notes <1>.txt, ready picture.png")
	hold := make(chan struct{}) // the server has nothing of it yet
	r.proxy.lose(1, fault{Hold: hold})
	id := tb.send("[[tokens 5]] Look")
	js[any](tb, `window.looks = () => { const list = document.querySelector('.carried').cloneNode(true); for (const li of list.children) li.dataset.file = JSON.stringify(JSON.parse(li.dataset.file)); return list.outerHTML; }; window.first = looks(); window.image = document.querySelector('.carried img')`)
	close(hold)
	tb.marked(id, "answered")
	r.check(1, tb)
	served := js[string](tb, `looks()`) // JSON has more than one way to write a sign
	if first := js[string](tb, `first`); first != served {
		t.Errorf("made in the page it is\n%s\nthe server renders\n%s", first, served)
	}
	if !js[bool](tb, `image.isConnected`) {
		t.Error("the image was replaced")
	}
}

// Dropped anywhere on the page, a file is beside the question; the browser does not
// leave the page for it.
func TestDroppedFilesAreAttached(t *testing.T) {
	r := newRig(t)
	tb := newProfile(t).open(r.url + "/")
	for _, event := range []string{"dragover", "drop"} {
		if !js[bool](tb, `!document.querySelector('main').dispatchEvent(new DragEvent('%s', {dataTransfer: %s, bubbles: true, cancelable: true}))`, event, transfer(file{Name: "picture.png", Base64: picture})) {
			t.Errorf("the browser does what it does with %s", event)
		}
	}
	tb.chipsAre("ready picture.png")
	if js[bool](tb, `document.body.classList.contains('dropping')`) {
		t.Error("after the drop it looks as before")
	}
	id := tb.send("[[echo seen]]")
	tb.marked(id, "answered")
	r.check(1, tb)
}

func (tb *tab) paste(transfer string) (prevented bool) {
	tb.t.Helper()
	return js[bool](tb, `!document.querySelector('#text').dispatchEvent(new ClipboardEvent('paste', {clipboardData: %s, bubbles: true, cancelable: true}))`, transfer)
}

func pastedText(text string) string {
	quoted, _ := json.Marshal(text)
	return fmt.Sprintf(`(() => { const all = new DataTransfer(); all.setData('text/plain', %s); return all; })()`, quoted)
}

// An image that is pasted is attached; one that comes with words, as from an office, is
// a picture of them; a short text is typed, a long one becomes a file that can be
// turned back.
func TestWhatIsPastedBecomesWhatItIs(t *testing.T) {
	r := newRig(t)
	tb := newProfile(t).open(r.url + "/")
	if !tb.paste(transfer(file{Name: "image.png", Base64: picture})) {
		t.Error("the browser pastes an image its own way")
	}
	tb.chipsAre("ready image.png")
	tb.click("#attached [data-do=remove]", 1)
	tb.chipsAre("")
	if tb.paste(`(() => { const all = ` + transfer(file{Name: "image.png", Base64: picture}) + `; all.setData('text/plain', 'words'); return all; })()`) {
		t.Error("words with a picture of them are no text")
	}
	if tb.paste(pastedText(strings.Repeat("x", 4999))) {
		t.Error("a short text becomes a file")
	}
	long := strings.Repeat("a line of many\r\n", 400)
	if !tb.paste(pastedText(long)) {
		t.Error("a long text becomes no file")
	}
	tb.chipsAre("ready pasted text.txt")
	tb.reload()
	tb.chipsAre("ready pasted text.txt")
	tb.typeText("Before.")
	tb.click("#attached [data-do=text]", 1)
	want := "Before.\n\n" + strings.ReplaceAll(long, "\r\n", "\n")
	tb.wait(`document.querySelector('#text').value.length === %d`, len(want))
	if got := tb.field(); got != want || tb.chips() != "" {
		t.Errorf("turned back the field holds %d bytes, and %q wait", len(got), tb.chips())
	}
}

// E5: what is too large is refused before it is uploaded, or by the server; the reason
// is said, and a pasted text is not lost, not by a reload either.
func TestARefusedFileIsSaidAndNothingIsLost(t *testing.T) {
	r := newRig(t, func(_ *engine.Options, h *handlers.Options) {
		h.Attachments = chat.AttachmentLimits{Bytes: 6000, Count: 3}
	})
	tb := newProfile(t).open(r.url+"/").allow("status of 413", "status of 415")
	tb.attach(file{Name: "large.txt", Text: strings.Repeat("x", 6001)})
	tb.chipsAre("failed large.txt")
	if n := len(r.proxy.posts("/api/attachments", "")); n != 0 {
		t.Errorf("%d files that are too large were sent", n)
	}
	tb.wait(`document.querySelector('#live').textContent === 'large.txt: The file is too large.'`)
	tb.click("#attached [data-do=remove]", 1)
	tb.attach(file{Name: "tool.exe", Text: "\x00"})
	tb.chipsAre("failed tool.exe")
	tb.wait(`document.querySelector('#attached .size').textContent.startsWith('Only images')`)
	// Nothing leaves while a file is not there; the text stays.
	tb.typeText("Look at this")
	tb.enter()
	tb.wait(`document.querySelector('#notice span').textContent.startsWith('Some files')`)
	if n := len(r.proxy.posts("/api/chat", "")); n != 0 || tb.field() != "Look at this" {
		t.Errorf("%d questions left, the field holds %q", n, tb.field())
	}
	tb.click("#attached [data-do=remove]", 1)
	long := strings.Repeat("0123456789", 700)
	tb.paste(pastedText(long))
	tb.chipsAre("failed pasted text.txt")
	tb.wait(`Object.keys(localStorage).some((k) => k.startsWith('semel.draft.') && localStorage[k].includes('%s'))`, long[:100])
	tb.reload()
	tb.chipsAre("failed pasted text.txt") // the server said so this time
	tb.click("#attached [data-do=text]", 1)
	if got := tb.field(); !strings.HasSuffix(got, long) {
		t.Errorf("turned back the field holds %d bytes", len(got))
	}
	// More than a question may carry.
	tb.attach(file{Name: "1.txt", Text: "1"}, file{Name: "2.txt", Text: "2"}, file{Name: "3.txt", Text: "3"}, file{Name: "4.txt", Text: "4"})
	tb.chipsAre("ready 1.txt, ready 2.txt, ready 3.txt")
	tb.wait(`document.querySelector('#notice span').textContent.startsWith('That is too many')`)
}

// Send waits in sight for what is uploaded, and however often it is pressed, with a
// double click too, one question leaves, once.
func TestSendWaitsForItsFiles(t *testing.T) {
	r := newRig(t)
	tb := newProfile(t).open("").handed()
	tb.visit(r.url + "/")
	arrived := make(chan struct{})
	r.proxy.do(func(e exchange) fault {
		if strings.HasPrefix(e.Path, "/api/attachments") {
			return fault{Hold: arrived}
		}
		return fault{}
	})
	tb.attach(file{Name: "picture.png", Base64: picture})
	tb.chipsAre("uploading picture.png")
	tb.typeText("[[echo seen]]")
	tb.click("#send", 2)
	tb.enter()
	tb.wait(`document.querySelector('#send.waiting') && document.querySelector('#files').textContent === 'It is sent when 1 file is uploaded.'`)
	// Escape takes the sending back, and nothing else.
	tb.key("Escape", 27, "")
	tb.wait(`!document.querySelector('#send.waiting')`)
	tb.enter()
	if n := len(r.proxy.posts("/api/chat", "")); n != 0 {
		t.Errorf("%d questions left without their file", n)
	}
	close(arrived)
	tb.wait(`document.querySelector('#log [data-role=user] .mark[data-mark=answered]')`)
	r.check(1, tb)
	if got := tb.carries(); got != "picture.png" || tb.field() != "" {
		t.Errorf("it carries %q, the field holds %q", got, tb.field())
	}
	// And with the file there: a double click is one question.
	tb.attach(file{Name: "notes.txt", Text: "x"})
	tb.chipsAre("ready notes.txt")
	tb.typeText("[[echo twice]]")
	tb.click("#send", 2)
	tb.wait(`document.querySelectorAll('#log [data-role=user] .mark[data-mark=answered]').length === 2`)
	r.check(2, tb)
}

// What was chosen outlives a reload, and so does what is on its way: each try sends
// the same files.
func TestFilesOutliveReloadsAndLostReplies(t *testing.T) {
	r := newRig(t)
	tb := newProfile(t).open(r.url + "/").allow(lostRequests)
	tb.attach(file{Name: "notes.txt", Text: "x"}, file{Name: "picture.png", Base64: picture})
	tb.chipsAre("ready notes.txt, ready picture.png")
	tb.typeText("[[echo seen]]")
	tb.reload()
	tb.chipsAre("ready notes.txt, ready picture.png")
	if got := tb.field(); got != "[[echo seen]]" {
		t.Errorf("after a reload the field holds %q", got)
	}
	r.proxy.lose(1000, fault{Drop: true})
	tb.focused("#text") // a page that begins gives it the focus when it is drawn
	tb.enter()
	tb.wait(`document.querySelector('#log [data-role=user]')`)
	id := js[string](tb, `document.querySelector('#log [data-role=user]').dataset.request`)
	tb.marked(id, "kept")
	tb.reload()
	tb.marked(id, "kept")
	if got := tb.carries(); got != "notes.txt 1 B + picture.png" || tb.chips() != "" {
		t.Errorf("on its way it carries %q, %q wait", got, tb.chips())
	}
	r.proxy.do(nil)
	tb.marked(id, "answered")
	r.check(1, tb)
	sent := r.attachmentsOf(id)
	for _, ids := range sent {
		if len(ids) != 2 || fmt.Sprint(ids) != fmt.Sprint(sent[0]) {
			t.Errorf("the tries carried %q", sent)
		}
	}
	if len(sent) < 2 {
		t.Errorf("%d tries: no test", len(sent))
	}
}

// A question that waits for its turn keeps its files, and taken back it brings them.
func TestAWaitingQuestionKeepsItsFiles(t *testing.T) {
	r := newRig(t)
	tb := newProfile(t).open(r.url + "/")
	r.model.upTo(40)
	first := tb.send("[[tokens 60]] [[rate 200]] alpha")
	tb.grown(first, 20)
	tb.attach(file{Name: "notes.txt", Text: "x"})
	tb.chipsAre("ready notes.txt")
	second := tb.queue("[[echo beta]]")
	tb.chipsAre("")
	tb.reload()
	tb.click(in(second, "edit"), 1)
	tb.chipsAre("ready notes.txt")
	second = tb.queue("")
	r.model.upTo(whole)
	tb.marked(second, "answered")
	r.check(2, tb)
	if got := tb.carries(); got != ", notes.txt 1 B" {
		t.Errorf("the questions carry %q", got)
	}
}

// A changed question keeps its files, but for those that are taken out; another answer
// is one to the same files.
func TestAChangedQuestionKeepsItsFiles(t *testing.T) {
	r := newRig(t)
	tb := newProfile(t).open(r.url + "/")
	tb.attach(file{Name: "notes.txt", Text: "x"}, file{Name: "picture.png", Base64: picture})
	tb.chipsAre("ready notes.txt, ready picture.png")
	id := tb.send("[[echo seen]]")
	tb.marked(id, "answered")
	r.check(1, tb)
	tb.press(`[data-role=user] [data-action=edit]`)
	tb.wait(`document.querySelectorAll('.editor .attached li').length === 2`)
	tb.click(".editor .attached li:first-child [data-do=remove]", 1)
	tb.click(".editor button[type=submit]", 1)
	tb.wait(`document.querySelector('[data-role=user] .versions') && document.querySelector('[data-role=user] .mark[data-mark=answered]')`)
	r.check(2, tb)
	if got := tb.carries(); got != "picture.png" {
		t.Errorf("the changed question carries %q", got)
	}
	tb.press(`[data-role=assistant] [data-action=regenerate]`)
	tb.wait(`document.querySelector('[data-role=assistant] .versions')`)
	r.check(3, tb)
	last := r.model.of(js[string](tb, `document.querySelector('[data-role=assistant]').dataset.request`))
	if f := last[0].Turns[0].Files; len(f) != 1 || f[0].Name != "picture.png" {
		t.Errorf("another answer is given to %+v", f)
	}
}

// What questions carry, on a desk and on phones, by day and by night, in both languages:
// images are bounded, long names are cut, and the editor has room for them.
func TestCarriedFilesFitEveryScreen(t *testing.T) {
	r := newRig(t)
	tb := newProfile(t).open(r.url + "/")
	wide := base64.StdEncoding.EncodeToString([]byte(dbtest.PNG(3000, 200)))
	tall := base64.StdEncoding.EncodeToString([]byte(dbtest.PNG(200, 3000)))
	tb.attach(file{Name: "notes-of-a-meeting-with-a-very-long-name-" + strings.Repeat("0123456789", 6) + ".txt", Text: strings.Repeat("x", 3000)},
		file{Name: "wide.png", Base64: wide}, file{Name: "会议记录.txt", Text: "一"}, file{Name: "tall.png", Base64: tall}, file{Name: "small.png", Base64: picture})
	until(t, "all are uploaded", func() bool { return strings.Count(tb.chips(), "ready") == 5 })
	id := tb.send("What is in these?")
	tb.marked(id, "answered")
	r.check(1, tb)
	session := tb.session()
	for _, lang := range []string{"en", "zh-CN"} {
		size(tb, 1200, false)
		tb.visit(r.url + "/c/" + session)
		if js[string](tb, `document.documentElement.lang`) != lang {
			tb.click(`.language button[value="`+lang+`"]`, 1)
			tb.wait(`document.documentElement.lang === '%s'`, lang)
		}
		for _, edits := range []bool{false, true} {
			if edits {
				tb.press(`[data-role=user] [data-action=edit]`)
				tb.wait(`document.querySelectorAll('.editor .attached li').length === 5`)
			}
			for _, width := range []int{1200, 390, 320} {
				size(tb, width, width < 600)
				for _, scheme := range []string{"light", "dark"} {
					call(tb, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}})
					name := fmt.Sprintf("carried-%s-%s-%d-%t", lang, scheme, width, edits)
					tb.fits(name, width)
					if tall := tb.none(`[...document.querySelectorAll('.carried img')].map((e) => e.offsetHeight).filter((h) => h > 260).map(String)`); len(tall) > 0 {
						t.Errorf("%s: images are %s px high", name, tall)
					}
					js[any](tb, `document.querySelector('#log article').scrollIntoView({block: 'start', behavior: 'instant'})`)
					tb.shoot(name)
				}
			}
		}
	}
	if bad := tb.barriers(everyRule); len(bad) > 0 {
		t.Errorf("%q", bad)
	}
}
