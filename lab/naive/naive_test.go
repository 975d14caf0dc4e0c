package naive

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// It must be fair: what it has stored it finds again, and a line that a crash cut short
// does not keep it from starting.
func TestItStartsWithWhatItHasStored(t *testing.T) {
	file := filepath.Join(t.TempDir(), "naive.jsonl")
	open := func() *app {
		t.Helper()
		a := &app{o: Options{File: file}}
		if err := a.open(); err != nil {
			t.Fatal(err)
		}
		return a
	}
	a := open()
	if err := a.store(line{Kind: "question", Session: "s", Text: "one"}, line{Kind: "answer", Session: "s", Text: "1"}); err != nil {
		t.Fatal(err)
	}
	if _, err := a.file.WriteString(`{"kind":"question","session":"s","text":"` + strings.Repeat("long ", 100)); err != nil {
		t.Fatal(err)
	}
	if err := a.file.Close(); err != nil {
		t.Fatal(err)
	}
	a = open()
	if err := a.store(line{Kind: "question", Session: "s", Text: "two"}); err != nil {
		t.Fatal(err)
	}
	if err := a.file.Close(); err != nil {
		t.Fatal(err)
	}
	a = open()
	defer a.file.Close()
	var got []string
	for _, turn := range a.turns("s") {
		got = append(got, turn.Role+" "+turn.Content)
	}
	if want := "user one, assistant 1, user two"; strings.Join(got, ", ") != want {
		t.Errorf("got %v, want %s", got, want)
	}
}

// The page shows it, and whoever reads it must be able to believe that it was not
// written to lose.
func TestItKnowsNothingOfTheLab(t *testing.T) {
	file, err := os.ReadFile("naive.go")
	if err != nil {
		t.Fatal(err)
	}
	if Source != string(file) {
		t.Error("what is shown is not the file")
	}
	_, code, _ := strings.Cut(Source, "import (")
	for _, word := range []string{"seed", "scenario", "semel/lab", "rand", "requestId", "Idempotency"} {
		if strings.Contains(strings.ToLower(code), strings.ToLower(word)) {
			t.Errorf("it speaks of %s", word)
		}
	}
}
