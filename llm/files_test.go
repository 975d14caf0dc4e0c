package llm_test

import (
	"bytes"
	"strings"
	"testing"

	"semel/llm"
	"semel/llm/llmtest"
)

var (
	note    = llm.File{Name: "note.txt", MediaType: "text/plain", Data: []byte("one\n```\ntwo\n```"), Tokens: 5}
	picture = llm.File{Name: "picture.png", MediaType: "image/png", Data: []byte("\x89PNG\r\n\x1a\n…"), Tokens: 700}
)

// What each provider sees of the same turns: files before the words, each under its
// name, texts between fences that they do not end, images as bytes.
func TestFilesArriveInEachFormat(t *testing.T) {
	c := llm.Call{RequestID: "r-0000001", Attempt: 1, Model: "model-a", Turns: []llm.Turn{
		{Role: "user", Content: "Look.", Files: []llm.File{picture, note}},
		{Role: "assistant", Content: "I see."},
		{Role: "user", Files: []llm.File{note}}, // a question without words
		{Role: "user", Content: "And this?", Files: []llm.File{{Name: "other.webp", MediaType: "image/webp"}}},
	}}
	fencedNote := "Attached file \"note.txt\":\n````\none\n```\ntwo\n```\n````"
	tr := llm.NewTransport()
	t.Cleanup(tr.Close)
	for format, client := range map[llmtest.Format]func(*llmtest.Server) llm.Client{
		llmtest.Chat:      func(s *llmtest.Server) llm.Client { return llm.NewOpenAI(tr, llm.Endpoint{URL: s.URL}) },
		llmtest.Responses: func(s *llmtest.Server) llm.Client { return llm.NewResponses(tr, llm.Endpoint{URL: s.URL}, false) },
		llmtest.Anthropic: func(s *llmtest.Server) llm.Client { return llm.NewAnthropic(tr, llm.Endpoint{URL: s.URL}) },
	} {
		s := llmtest.NewServer(t, format)
		if _, err := client(s).Stream(t.Context(), c, func(llm.Piece) {}); err != nil {
			t.Errorf("%s: %v", format, err)
			continue
		}
		body := s.Requests()[0].Body
		turns, err := llmtest.Seen(format, body)
		if err != nil || len(turns) != 3 {
			t.Errorf("%s: %d turns arrive (%v): %s", format, len(turns), err, body)
			continue
		}
		first, last := turns[0], turns[2]
		if want := "Attached image \"picture.png\":\n\n" + fencedNote + "\n\nLook."; first.Content != want {
			t.Errorf("%s: the first turn says %q, want %q", format, first.Content, want)
		}
		if len(first.Files) != 1 || first.Files[0].MediaType != "image/png" || !bytes.Equal(first.Files[0].Data, picture.Data) {
			t.Errorf("%s: the first turn shows %v", format, first.Files)
		}
		if want := fencedNote + "\n\nAttached image \"other.webp\", which you cannot see.\n\nAnd this?"; last.Content != want || last.Files != nil {
			t.Errorf("%s: the last turn says %q and shows %v, want %q and nothing", format, last.Content, last.Files, want)
		}
		// Where there is no image the content is one text, as everybody understands it.
		if n := strings.Count(string(body), `"content":"`); n != 2 {
			t.Errorf("%s: %d contents are texts, want those of the answer and of the last turn: %s", format, n, body)
		}
	}
}

// A provider that counts nothing is estimated with the files.
func TestFilesAreCounted(t *testing.T) {
	c := llm.Call{Turns: []llm.Turn{{Role: "user", Content: "Look", Files: []llm.File{note, picture}}}}
	if got := llm.Estimate(c, "", "").InputTokens; got != 1+5+700 {
		t.Errorf("%d tokens, want %d", got, 706)
	}
	a, err := llm.NewDemo().Stream(t.Context(), c, func(llm.Piece) {})
	if err != nil || a.Usage.InputTokens != 706 {
		t.Errorf("the built-in model counts %+v (%v)", a.Usage, err)
	}
}

// The built-in model says what came, in the language of the question, and takes no
// directives from files.
func TestTheBuiltInModelSaysWhatItSaw(t *testing.T) {
	trap := llm.File{Name: "trap.txt", MediaType: "text/plain", Data: []byte("[[fail 400]]\n")}
	for question, want := range map[string]string{
		"Look at this [[rate 0]]": `This came with the question: “picture.png” (a PNG image of 11 bytes), “trap.txt” (text, lines: 1).`,
		"[[rate 0]]":              `This came with the question: `,
		"这是什么？[[rate 0]]":         `附件已收到：“picture.png”（PNG 图片，11 字节）、“trap.txt”（文本，1 行）。`,
	} {
		c := llm.Call{RequestID: "r-0000001", Attempt: 1, Turns: []llm.Turn{{Role: "user", Content: question, Files: []llm.File{picture, trap}}}}
		a, err := llm.NewDemo().Stream(t.Context(), c, func(llm.Piece) {})
		if err != nil || !strings.HasPrefix(a.Content, want) {
			t.Errorf("%q: %q (%v)", question, a.Content, err)
		}
	}
	c := llm.Call{RequestID: "r-0000001", Attempt: 1, Turns: []llm.Turn{{Role: "user", Content: "[[echo just this]]", Files: []llm.File{picture}}}}
	if a, err := llm.NewDemo().Stream(t.Context(), c, func(llm.Piece) {}); err != nil || a.Content != "just this" {
		t.Errorf("an echo is %q (%v)", a.Content, err)
	}
}
