package engine_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

func TestEveryTestNamedInTheListOfGuardsExists(t *testing.T) {
	t.Parallel()
	list, err := os.ReadFile("../docs/guards.md")
	if err != nil {
		t.Fatal(err)
	}
	var files []string
	for _, dir := range []string{"catalog", "chat", "db", "engine", "seal"} {
		of, err := filepath.Glob("../" + dir + "/*_test.go")
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, of...)
	}
	var tests strings.Builder
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		tests.Write(b)
	}
	named := regexp.MustCompile(`Test[A-Z0-9]\w+`).FindAllString(string(list), -1)
	if len(named) < 50 {
		t.Errorf("only %d tests are named", len(named))
	}
	for _, name := range named {
		if !strings.Contains(tests.String(), "func "+name+"(t *testing.T)") {
			t.Errorf("%s is named and does not exist", name)
		}
	}
}
