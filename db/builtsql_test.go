package db_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// looksLikeSQL matches a text that is a statement, or a part of one.
var looksLikeSQL = regexp.MustCompile(`\b(SELECT|INSERT INTO|UPDATE|DELETE FROM|PRAGMA|WHERE|VALUES|ORDER BY|BEGIN IMMEDIATE)\s`)

// mayBuildSQL names the functions that put a statement together when they run, and from
// what: never from what comes from outside.
var mayBuildSQL = map[string]string{
	"create":    "the schema and two times",
	"migrate":   "a migration and its number",
	"checkCopy": "the names of the file's own tables",
}

// runsSQL are the methods that run or prepare a statement, which is an argument of theirs.
var runsSQL = []string{"exec", "insert", "query", "queryRow", "queryUntil", "heldExec", "execResult", "script", "prepare"}

// No statement is built from what somebody sent: each is a constant, and values are bound.
// So there is nothing to escape.
func TestNoStatementIsBuiltFromValues(t *testing.T) {
	seen := 0
	err := filepath.WalkDir("..", func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() && (strings.HasPrefix(e.Name(), ".") && e.Name() != ".." || e.Name() == "peers" || e.Name() == "testdata" || e.Name() == "oracle") {
			return orSkip(err)
		}
		if e.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") || strings.HasSuffix(path, "_templ.go") {
			return nil
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for _, wrong := range builtSQL(t, path, string(b), &seen) {
			t.Error(wrong)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if seen < 200 {
		t.Errorf("%d statements are run: this looks at the wrong files", seen)
	}
	for _, text := range []string{
		`func f() { tx.exec("DELETE FROM users WHERE name = '" + name + "'") }`,
		`func f() { tx.exec(fmt.Sprintf("SELECT %s", name)) }`,
		`func f() { s := fmt.Sprintf("UPDATE users SET name = '%s'", name); use(s) }`,
		`func f() { s := sqlBeginning + " WHERE name = '" + name + "'"; use(s) }`,
		`func f() { c.queryRow(strings.ReplaceAll(sqlX, "?", name), nil) }`,
	} {
		if len(builtSQL(t, "planted.go", "package db\n"+text, new(int))) == 0 {
			t.Errorf("not found: %s", text)
		}
	}
}

// orSkip is err, or the skip of a folder.
func orSkip(err error) error {
	if err != nil {
		return err
	}
	return fs.SkipDir
}

// builtSQL returns where a file builds statements; it counts those that are run.
func builtSQL(t *testing.T, path, source string, seen *int) (wrong []string) {
	t.Helper()
	set := token.NewFileSet()
	f, err := parser.ParseFile(set, path, source, 0)
	if err != nil {
		t.Fatal(err)
	}
	within := ""
	say := func(n ast.Node, what string) {
		if mayBuildSQL[within] == "" {
			wrong = append(wrong, set.Position(n.Pos()).String()+": "+what)
		}
	}
	look := func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GenDecl:
			return n.Tok != token.CONST // the compiler puts constants together
		case *ast.BinaryExpr:
			if n.Op == token.ADD && sqlIn(n) {
				say(n, "a statement is put together with +")
				return false
			}
		case *ast.CallExpr:
			fun, ok := n.Fun.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			if x, ok := fun.X.(*ast.Ident); ok && (x.Name == "fmt" && strings.HasSuffix(fun.Sel.Name, "printf") || x.Name == "strings") && slices.ContainsFunc(n.Args, func(a ast.Expr) bool { return sqlIn(a) }) {
				say(n, "a statement is put together by "+x.Name+"."+fun.Sel.Name)
				return false
			}
			if filepath.Base(filepath.Dir(path)) == "db" && slices.Contains(runsSQL, fun.Sel.Name) {
				*seen++
			}
		}
		return true
	}
	for _, d := range f.Decls {
		within = ""
		if fn, ok := d.(*ast.FuncDecl); ok {
			within = fn.Name.Name
		}
		ast.Inspect(d, look)
	}
	return wrong
}

// sqlIn reports whether an expression has a text that looks like SQL, or the name of one.
func sqlIn(e ast.Expr) (found bool) {
	ast.Inspect(e, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.BasicLit:
			found = found || n.Kind == token.STRING && looksLikeSQL.MatchString(n.Value)
		case *ast.Ident:
			found = found || strings.HasPrefix(n.Name, "sql") && len(n.Name) > 3 && n.Name[3] >= 'A' && n.Name[3] <= 'Z'
		}
		return !found
	})
	return found
}
