package static

import (
	"bytes"
	"compress/gzip"
	"regexp"
	"testing"
)

// A page is style and script before it is a page: what its first view loads stays
// small enough for a telephone on a bad line.
func TestTheFirstViewIsSmall(t *testing.T) {
	const most = 150_000
	imports := regexp.MustCompile(`(?m)^import .*'\./([\w.-]+)'`)
	todo, seen := []string{"app.css", "chat.js"}, map[string]bool{}
	plain, packed := 0, 0
	for len(todo) > 0 {
		name := todo[0]
		todo = todo[1:]
		if seen[name] {
			continue
		}
		seen[name] = true
		content, err := files.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		w := gzip.NewWriter(&out)
		if _, err := w.Write(content); err != nil {
			t.Fatal(err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		plain, packed = plain+len(content), packed+out.Len()
		for _, m := range imports.FindAllSubmatch(content, -1) {
			todo = append(todo, string(m[1]))
		}
	}
	t.Logf("%d files, %d bytes, %d compressed", len(seen), plain, packed)
	if len(seen) < 10 || packed > most {
		t.Errorf("%d files have %d bytes compressed, want at most %d", len(seen), packed, most)
	}
}
