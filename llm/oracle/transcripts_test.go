package oracle

import (
	"bytes"
	"compress/gzip"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"semel/llm/llmtest"
)

// transcriptsDir has the bodies of responses, one a file: <format>/recorded are
// those of llmtest.Server, <format>/documented follow what providers document (its
// README.md says which page). They are streams (.sse) or documents (.json).
var transcriptsDir = filepath.Join("..", "testdata", "transcripts")

// A transcript is the body of one response.
type transcript struct {
	name   string // its path below transcriptsDir, with slashes
	format llmtest.Format
	body   []byte
}

func (s transcript) stream() bool { return path.Ext(s.name) == ".sse" }

// transcripts returns all of them. A file that is none fails the test.
func transcripts(t *testing.T) []transcript {
	t.Helper()
	var list []transcript
	err := fs.WalkDir(os.DirFS(transcriptsDir), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || name == "README.md" {
			return err
		}
		format, rest, _ := strings.Cut(name, "/")
		origin, file, _ := strings.Cut(rest, "/")
		known := []llmtest.Format{llmtest.Chat, llmtest.Responses, llmtest.Anthropic}
		if !slices.Contains(known, llmtest.Format(format)) || origin != "recorded" && origin != "documented" ||
			strings.Contains(file, "/") || path.Ext(file) != ".sse" && path.Ext(file) != ".json" {
			t.Errorf("%s is no transcript; no test uses it", name)
			return nil
		}
		body, err := os.ReadFile(filepath.Join(transcriptsDir, filepath.FromSlash(name)))
		list = append(list, transcript{name, llmtest.Format(format), body})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// Each file is replayed, so one is unused only when nobody knows where it is from.
func TestEveryTranscriptHasAnOrigin(t *testing.T) {
	readme, err := os.ReadFile(filepath.Join(transcriptsDir, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	cited := map[string]bool{} // by the table in README.md
	for line := range strings.Lines(string(readme)) {
		cells := strings.Split(line, "|")
		if len(cells) < 3 || !strings.Contains(cells[1], "`") {
			continue
		}
		if !strings.Contains(cells[2], "https://") {
			t.Errorf("README.md cites no page in %q", line)
		}
		for i, name := range strings.Split(cells[1], "`") {
			if i%2 == 1 {
				cited[name] = false
			}
		}
	}
	all := transcripts(t)
	if len(all) == 0 {
		t.Fatal("no transcripts")
	}
	for _, s := range all {
		if strings.Contains(s.name, "/recorded/") {
			if _, ok := recordings()[s.name]; !ok {
				t.Errorf("%s is recorded by no script", s.name)
			}
		} else if _, ok := cited[s.name]; !ok {
			t.Errorf("%s: README.md does not say which page it follows", s.name)
		}
		cited[s.name] = true
	}
	for name, there := range cited {
		if !there {
			t.Errorf("README.md names %s, which is not there", name)
		}
	}
}

// A way is how a body comes over the line. It must make no difference.
type way string

const (
	inOne   way = "whole"
	byBytes way = "bytes" // each byte in a write of its own, so that it is cut at every place
	gzipped way = "gzip"
)

// replay serves transcripts at /<way>/<name>/…, whatever is asked for there.
func replay(t *testing.T, list []transcript) (url string) {
	t.Helper()
	byName := map[string]transcript{}
	for _, s := range list {
		byName[s.name] = s
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		how, rest, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
		parts := strings.SplitN(rest, "/", 4)
		s, ok := byName[strings.Join(parts[:min(3, len(parts))], "/")]
		if !ok {
			http.Error(w, "no such transcript", http.StatusTeapot)
			return
		}
		w.Header().Set("Content-Type", map[bool]string{true: "text/event-stream", false: "application/json"}[s.stream()])
		switch way(how) {
		case byBytes:
			c := http.NewResponseController(w)
			for i := range s.body {
				w.Write(s.body[i : i+1]) // a client that is gone fails its own test
				c.Flush()
			}
		case gzipped:
			var b bytes.Buffer
			z := gzip.NewWriter(&b)
			z.Write(s.body)
			z.Close() // into memory
			w.Header().Set("Content-Encoding", "gzip")
			w.Write(b.Bytes())
		default:
			w.Write(s.body)
		}
	}))
	t.Cleanup(server.Close)
	return server.URL
}

// at is where a transcript is served: a base address without a version.
func (s transcript) at(url string, how way) string { return url + "/" + string(how) + "/" + s.name }
