package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// testTexts returns each test of this module, with its comment, by its name, and each
// file of tests in JavaScript by its path.
func testTexts(t *testing.T) map[string]string {
	t.Helper()
	texts := map[string]string{}
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		if !strings.HasSuffix(path, "_test.go") && !strings.HasSuffix(path, ".test.mjs") {
			return nil
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if strings.HasSuffix(path, ".mjs") {
			texts[filepath.ToSlash(path)] = string(b)
			return nil
		}
		files := token.NewFileSet()
		f, err := parser.ParseFile(files, path, b, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		for _, decl := range f.Decls {
			fn, ok := decl.(*ast.FuncDecl)
			if !ok || fn.Recv != nil || !strings.HasPrefix(fn.Name.Name, "Test") {
				continue
			}
			from := fn.Pos()
			if fn.Doc != nil {
				from = fn.Doc.Pos()
			}
			texts[fn.Name.Name] += string(b[files.Position(from).Offset:files.Position(fn.End()).Offset])
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return texts
}

// named are the tests that a line of a document names.
var named = regexp.MustCompile("\\bTest[A-Z0-9]\\w+|`([\\w/]+\\.test\\.mjs)`")

func namedIn(line string) (list []string) {
	for _, name := range named.FindAllString(line, -1) {
		list = append(list, strings.Trim(name, "`"))
	}
	return list
}

func TestEveryTestNamedInTheListOfGuardsExists(t *testing.T) {
	t.Parallel()
	list, err := os.ReadFile("docs/guards.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, other := range []string{"docs/reliability.md", "docs/security.md"} {
		claims, err := os.ReadFile(other)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, claims...)
	}
	texts, n := testTexts(t), 0
	for _, name := range namedIn(string(list)) {
		n++
		if texts[name] == "" {
			t.Errorf("%s is named and does not exist", name)
		}
	}
	if n < 50 {
		t.Errorf("only %d tests are named", n)
	}
}

func TestEveryFaultOfOthersHasATest(t *testing.T) {
	t.Parallel()
	list, err := os.ReadFile("docs/security.md")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for line := range strings.Lines(string(list)) {
		if !strings.HasPrefix(line, "| CVE-") && !strings.HasPrefix(line, "| GHSA-") {
			continue
		}
		n++
		if len(namedIn(line)) == 0 {
			t.Errorf("no test shows that this does not work here: %s", line)
		}
	}
	if n < 20 {
		t.Errorf("only %d lines of faults", n)
	}
}

func TestEveryCaseHasATestThatNamesIt(t *testing.T) {
	t.Parallel()
	list, err := os.ReadFile("docs/cases.md")
	if err != nil {
		t.Fatal(err)
	}
	texts := testTexts(t)
	row := regexp.MustCompile(`^\| ([A-FS]\d+) \|`)
	seen := map[string]bool{}
	for line := range strings.Lines(string(list)) {
		m := row.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		id, tests := m[1], namedIn(line)
		if seen[id] {
			t.Errorf("%s is there twice", id)
		}
		seen[id] = true
		if len(tests) == 0 && !strings.Contains(line, "| — ") {
			t.Errorf("%s has no test, and waits for nothing", id)
		}
		names := regexp.MustCompile(`(?:\b|Test|S\d+)` + id + `(?:\D|$)`)
		for _, name := range tests {
			if texts[name] == "" {
				t.Errorf("%s: %s is named and does not exist", id, name)
			} else if !names.MatchString(texts[name]) {
				t.Errorf("%s: %s does not name it", id, name)
			}
		}
	}
	if len(seen) < 80 {
		t.Errorf("there are only %d cases", len(seen))
	}
}
