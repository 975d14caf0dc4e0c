package browsertest

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"testing"

	"github.com/chromedp/cdproto/emulation"

	"semel/chat"
)

// choose puts files into the form of the page of imports.
func (tb *tab) choose(files ...string) {
	tb.t.Helper()
	list, err := json.Marshal(files)
	if err != nil {
		tb.t.Fatal(err)
	}
	js[int](tb, `(() => {
		const all = new DataTransfer();
		for (const [i, text] of %s.entries()) all.items.add(new File([text], 'file-' + (i + 1) + '.json', { type: 'application/json' }));
		const input = document.querySelector('#file');
		input.files = all.files;
		return input.files.length;
	})()`, list)
}

// report waits for what became of the files, and returns it.
func (tb *tab) report(items int) []string {
	tb.t.Helper()
	tb.wait(`document.querySelectorAll('#report li').length === %d && !document.querySelector('#importer button').disabled`, items)
	return js[[]string](tb, `[...document.querySelectorAll('#report li')].map((li) => li.dataset.status + ' ' + li.querySelector('strong').textContent.trim())`)
}

// file is the export of all conversations of a server.
func (r *rig) file() string {
	r.t.Helper()
	res, err := http.Get(r.url + "/api/conversations/export?format=json")
	if err != nil {
		r.t.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != http.StatusOK {
		r.t.Fatalf("export: %d, %v", res.StatusCode, err)
	}
	return string(b)
}

// exported is a file as a server gives it out: of each conversation its id, title,
// whether a person gave it, and the answer to its one question.
func exported(conversations ...any) string {
	file := `{"format":"semel.conversations","version":1,"conversations":[`
	for i := 0; i < len(conversations); i += 4 {
		id, answer := conversations[i], conversations[i+3]
		title, err := json.Marshal(conversations[i+1])
		if err != nil {
			panic(err)
		}
		at := fmt.Sprintf("2025-03-0%dT12:00:00.000Z", i/4+1)
		if i > 0 {
			file += ","
		}
		file += "\n" + fmt.Sprintf(`{"format":"semel.conversation","version":1,"conversation":{"id":"%s","title":%s,"named":%v,"pinned":false,"archived":false,"model":"","systemPrompt":"","params":{},`+
			`"head":"%[1]s.2","createdAt":"%[4]s","updatedAt":"%[4]s"},"messages":[{"id":"%[1]s.1","parentId":"","role":"user","kind":"message","requestId":"request-%[1]s","content":%[2]s,"createdAt":"%[4]s"},`+
			`{"id":"%[1]s.2","parentId":"%[1]s.1","role":"assistant","requestId":"request-%[1]s","model":"demo","content":"%[5]s","finish":"stop",`+
			`"usage":{"inputTokens":3,"cachedTokens":0,"outputTokens":2,"estimated":false},"createdAt":"%[4]s"}]}`, id, title, conversations[i+2], at, answer)
	}
	return file + "\n]}\n"
}

func TestConversationsMoveFromOneServerToAnother(t *testing.T) {
	to := newRig(t)
	const evil = `<img src=x onerror=pwned=1>`
	first, second := chat.NewID(), chat.NewID()
	file := exported(first, evil, true, "**one**", second, "A second question", false, "two")

	tb := newProfile(t).open(to.url + "/")
	tb.ready()
	tb.click("#side #import", 1)
	tb.wait(`document.querySelector('#importer')`)
	for _, want := range []string{"imported", "skipped"} { // the same file twice
		tb.choose(file)
		tb.click("#importer button", 1)
		got := tb.report(2)
		if fmt.Sprint(got) != fmt.Sprint([]string{want + " " + evil, want + " A second question"}) {
			t.Errorf("%q", got)
		}
		if want == "imported" {
			tb.titles("A second question", evil) // also at the side, without a reload
		}
	}
	// Without scripts the form says the same, and names the file that is none.
	call(tb, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: true})
	tb.visit(to.url + "/import")
	tb.choose(file, "no JSON at all")
	tb.click("#importer button", 1)
	if got := tb.report(3); fmt.Sprint(got) != fmt.Sprint([]string{"skipped " + evil, "skipped A second question", "failed file-2.json"}) {
		t.Errorf("%q", got)
	}
	call(tb, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: false})

	for _, lang := range []string{"en", "zh-CN"} {
		size(tb, 1200, false)
		tb.visit(to.url + "/import")
		if js[string](tb, `document.documentElement.lang`) != lang {
			tb.click(`.language button[value="`+lang+`"]`, 1)
			tb.wait(`document.documentElement.lang === '%s' && document.querySelector('#importer')`, lang)
		}
		tb.choose(file, `{"format":"semel.conversation","version":7,"conversation":{"id":"x"},"messages":[]}`)
		tb.click("#importer button", 1)
		tb.report(3)
		for _, width := range []int{1200, 390} {
			size(tb, width, width < 600)
			for _, scheme := range []string{"light", "dark"} {
				call(tb, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}})
				name := fmt.Sprintf("import-%s-%s-%d", lang, scheme, width)
				tb.fits(name, width)
				tb.shoot(name)
			}
		}
	}
	size(tb, 1200, false)

	// The conversation is there, says that it was imported, and is given out again.
	tb.visit(to.url + "/c/" + first)
	tb.ready()
	tb.inert()
	tb.wait(`document.querySelector('[data-role=assistant] strong')?.textContent === 'one' && document.querySelector('[data-role=assistant]').textContent.includes('导入')`)
	js[any](tb, `document.querySelector('#conversations li[data-id="%s"] a').focus()`, first)
	tb.click(`#conversations li[data-id="`+first+`"] .actions`, 1)
	tb.wait(`document.querySelector('#row-menu').matches(':popover-open')`)
	tb.shoot("import-menu")
	got := js[[]string](tb, `[...document.querySelectorAll('#row-menu a')].map((a) => a.getAttribute('href') + ' ' + a.hasAttribute('download'))`)
	want := []string{"/api/conversations/" + first + "/export?format=md true", "/api/conversations/" + first + "/export?format=json true"}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("the menu has %q, want %q", got, want)
	}
	if n := to.model.count(); n != 0 {
		t.Errorf("the model was called %d times", n)
	}
	if back := to.file(); back != file {
		t.Errorf("what is given out differs:\n%s\n%s", back, file)
	}
}
