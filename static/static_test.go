package static

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestFilesAreServedForEverAtTheirVersion(t *testing.T) {
	for name, contentType := range map[string]string{
		"app.css":  "text/css; charset=utf-8",
		"chat.js":  "text/javascript; charset=utf-8",
		"icon.svg": "image/svg+xml",
	} {
		rec := get(URL(name))
		if rec.Code != http.StatusOK || rec.Header().Get("Content-Type") != contentType {
			t.Errorf("%s: got %d %q, want 200 %q", name, rec.Code, rec.Header().Get("Content-Type"), contentType)
		}
		if got := rec.Header().Get("Cache-Control"); got != "public, max-age=31536000, immutable" {
			t.Errorf("%s: Cache-Control %q", name, got)
		}
	}
}

func TestNothingElseIsServed(t *testing.T) {
	for _, path := range []string{
		Prefix + "000000000000/chat.js", Prefix + "chat.js", Prefix, Prefix + version, Prefix + version + "/",
		URL("chat.js") + "/", Prefix + version + "/js_test.go", Prefix + version + "/outbox.test.mjs", Prefix + version + "/../static.go",
	} {
		rec := get(path)
		if rec.Code != http.StatusNotFound {
			t.Errorf("%s: got %d, want 404", path, rec.Code)
		}
		if got := rec.Header().Get("Cache-Control"); got != "no-store" {
			t.Errorf("%s: Cache-Control %q, want no-store", path, got)
		}
	}
}

// The policy forbids inline script and style, and a module that fails to load
// fails silently for its users.
func TestModulesImportWhatExists(t *testing.T) {
	list, err := files.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range list {
		source, err := files.ReadFile(f.Name())
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(source)) {
			if !strings.HasPrefix(line, "import ") {
				continue
			}
			_, from, ok := strings.Cut(line, "'./")
			name, _, _ := strings.Cut(from, "'")
			if _, err := files.Open(name); !ok || err != nil {
				t.Errorf("%s: %s: %v", f.Name(), strings.TrimSpace(line), err)
			}
		}
	}
}

func get(path string) *httptest.ResponseRecorder {
	rec := httptest.NewRecorder()
	Handler(http.NotFoundHandler()).ServeHTTP(rec, httptest.NewRequest("GET", path, nil))
	return rec
}
