package main

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"semel/chat"
)

// mayImport says which packages of this module each package may import. A new
// package needs a line here, and a thought about where it stands.
var mayImport = map[string][]string{
	"chat":                 {},
	"config":               {"chat", "outbox", "seal"},
	"dial":                 {},
	"disk":                 {},
	"llm":                  {"chat", "dial"},
	"llm/llmtest":          {"chat", "llm"},
	"outbox":               {"chat", "dial"},
	"password":             {},
	"search":               {},
	"sink":                 {"chat", "outbox"},
	"seal":                 {},
	"static":               {},
	"views":                {"chat"},
	"db":                   {"chat", "disk", "search"},
	"db/dbtest":            {"chat", "db"},
	"ops":                  {"chat", "db", "disk"},
	"upkeep":               {"db", "disk", "seal"},
	"engine":               {"chat", "db", "llm", "ops", "outbox"},
	"catalog":              {"chat", "config", "db", "engine", "llm", "seal"},
	"handlers":             {"catalog", "chat", "config", "db", "engine", "llm", "ops", "password", "search", "seal", "static", "upkeep", "views"},
	"handlers/browsertest": {},
	"lab":                  {"chat", "db", "llm", "sink"},
	"lab/naive":            {"chat", "llm", "outbox"},
	"chaos":                {"chat", "db"},                                                                                                                                                         // a program of the tests
	"":                     {"catalog", "chat", "config", "db", "disk", "engine", "handlers", "lab", "lab/naive", "llm", "ops", "outbox", "password", "seal", "sink", "static", "upkeep", "views"}, // main
}

// chatMayNot lists what would give the domain I/O or a will of its own.
var chatMayNot = []string{"context", "database/sql", "io/fs", "log/slog", "net", "net/http", "os", "os/exec", "sync"}

// chatMay lists the libraries of others that the domain may use: pure ones.
var chatMay = []string{
	"github.com/oklog/ulid/v2",
	"github.com/santhosh-tekuri/jsonschema/v6",
	"github.com/santhosh-tekuri/jsonschema/v6/kind",
	"golang.org/x/text/unicode/norm",
}

func TestPackagesImportOnlyWhatStandsAboveThem(t *testing.T) {
	for _, p := range listPackages(t) {
		name := strings.TrimPrefix(strings.TrimPrefix(p.ImportPath, "semel"), "/")
		allowed, known := mayImport[name]
		if !known {
			t.Errorf("package %q is not in the table of who may import whom", name)
		}
		for _, imported := range p.Imports {
			inside, own := strings.CutPrefix(imported, "semel/")
			if own && !slices.Contains(allowed, inside) {
				t.Errorf("%s imports %s; it may import %v", p.ImportPath, imported, allowed)
			}
			outside := strings.Contains(strings.Split(imported, "/")[0], ".")
			if outside && (name == "llm" || name == "sink" || name == "static" || name == "outbox" && !strings.HasPrefix(imported, "github.com/wneessen/go-mail")) {
				t.Errorf("%s imports %s; that is not the standard library", p.ImportPath, imported)
			}
			if outside && name == "chat" && !slices.Contains(chatMay, imported) {
				t.Errorf("chat imports %s; of others it may import %v", imported, chatMay)
			}
			if name == "chat" && slices.Contains(chatMayNot, imported) {
				t.Errorf("chat imports %s; the domain does no I/O", imported)
			}
			// SQL is in one package. main reads the version of SQLite from /lib; chaos
			// looks past db on purpose.
			if (imported == "database/sql" || imported == "modernc.org/sqlite") && name != "db" && name != "db/dbtest" && name != "chaos" {
				t.Errorf("%s imports %s; only db may", p.ImportPath, imported)
			}
		}
	}
}

type listedPackage struct {
	ImportPath string
	Imports    []string // of the package itself; tests may import what they need
}

func listPackages(t *testing.T) []listedPackage {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "list", "-e", "-json=ImportPath,Imports", "./...").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	var list []listedPackage
	dec := json.NewDecoder(strings.NewReader(string(out)))
	for {
		var p listedPackage
		err := dec.Decode(&p)
		if errors.Is(err, io.EOF) {
			return list
		}
		if err != nil {
			t.Fatalf("go list: %v", err)
		}
		list = append(list, p)
	}
}

// A code that a model client gives reaches clients and pages, which have words for
// each.
func TestEveryFailureOfAModelHasATitle(t *testing.T) {
	files, err := filepath.Glob("llm/*.go")
	if err != nil || len(files) < 5 {
		t.Fatal(files, err)
	}
	given := regexp.MustCompile(`\bCode(?::| =|, [a-z.]+ =) "([a-z_]+)"`)
	found := 0
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		source, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range given.FindAllStringSubmatch(string(source), -1) {
			found++
			if chat.Title(m[1]) == chat.Title("no such code") {
				t.Errorf("%s gives the code %q, which has no title", name, m[1])
			}
		}
	}
	if found < 10 {
		t.Errorf("only %d codes found", found)
	}
}
