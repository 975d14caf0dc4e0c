package db_test

import (
	"context"
	"database/sql"
	"errors"
	"go/ast"
	"go/constant"
	"go/parser"
	"go/token"
	"go/types"
	"maps"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	_ "modernc.org/sqlite"

	"semel/db"
	"semel/db/dbtest"
)

// fragments are parts of statements, no statements themselves.
var fragments = []string{"sqlHeld", "sqlComesFirst", "sqlOpen", "sqlAnswersQuestion", "sqlBehind", "sqlMoved", "sqlInTurn", "sqlRequestFields", "sqlAttachmentColumns", "sqlDroppable", "sqlAuditChosen", "sqlSound", "sqlSoundQuestion", "sqlSoundMessage"}

// mayScan lists every statement that walks a whole table or index, with the
// reason why that is right. A new one fails the test below until it has one.
var mayScan = map[string]map[string]string{
	"sqlConversationColumns":  {"conversations": "a beginning of others, never run as it is"},
	"sqlRequestColumns":       {"requests": "a beginning of others, never run as it is"},
	"sqlInsertConversation":   {"sqlite_sequence": "SQLite's own table, a row a table"},
	"sqlInsertRequest":        {"sqlite_sequence": "SQLite's own table, a row a table"},
	"sqlInsertOutbox":         {"sqlite_sequence": "SQLite's own table, a row a table", "restores": "a row a restore"},
	"sqlOutgoingColumns":      {"outbox": "a beginning of others, never run as it is"},
	"sqlSelectDelivering":     {"outbox_busy": "only what is being delivered is in this partial index"},
	"sqlSelectLastLedger":     {"ledger": "the last row of it"},
	"sqlSelectNextCallback":   {"outbox_awaiting": "the first row of it"},
	"sqlImportConversation":   {"sqlite_sequence": "SQLite's own table, a row a table"},
	"sqlImportRequest":        {"sqlite_sequence": "SQLite's own table, a row a table"},
	"sqlMoveHorizon":          {"instance": "one row"},
	"sqlMovePruned":           {"instance": "one row"},
	"sqlMoveIndexed":          {"instance": "one row"},
	"sqlSelectIndexed":        {"instance": "one row"},
	"sqlSelectUnindexed":      {"instance": "one row"},
	"sqlSelectInstance":       {"instance": "one row"},
	"sqlSelectPruned":         {"instance": "one row"},
	"sqlSelectAnyTombstone":   {"tombstones": "one row of it"},
	"sqlSelectAnySettings":    {"settings": "one row of it"},
	"sqlSelectPrunable":       {"instance": "one row"},
	"sqlInsertArrival":        {"instance": "one row"},
	"sqlSelectTx":             {"instance": "one row"},
	"sqlMarkBackup":           {"instance": "one row"},
	"sqlSelectBackedUp":       {"instance": "one row"},
	"sqlSelectBackup":         {"instance": "one row"},
	"sqlRaiseEpoch":           {"instance": "one row"},
	"sqlSelectRestores":       {"restores": "a row a restore"},
	"sqlSettleRestores":       {"restores": "a row a restore"},
	"sqlAnyUnsettled":         {"restores": "a row a restore"},
	"sqlAskAgain":             {"requests": "once a restore, and nobody waits"},
	"sqlDoubtOutbox":          {"outbox": "once a restore, and nobody waits"},
	"sqlSelectModels":         {"models": "a handful of rows, all of them wanted"},
	"sqlUpdateTx":             {"instance": "one row"},
	"sqlUpdateCounts":         {"instance": "one row"},
	"sqlSelectCounts":         {"sqlite_sequence": "SQLite's own table, a row a table"},
	"sqlSummaryColumns":       {"requests": "a beginning of another, never run as it is"},
	"sqlAuditColumns":         {"audit": "a beginning of others, never run as it is"},
	"sqlCountOpen":            {"requests_open": "only what is open is in this partial index"},
	"sqlCountDue":             {"outbox_due": "only what waits is in this partial index"},
	"sqlCountAwaiting":        {"outbox_awaiting": "only what is awaited is in this partial index"},
	"sqlSelectTroubled":       {"outbox_troubled": "only what waits for a person is in this partial index"},
	"sqlCountTroubled":        {"outbox_troubled": "only what waits for a person is in this partial index"},
	"sqlSelectNewest":         {"requests": "from the end, a hundred rows at the most"},
	"sqlSearchTail":           {"messages_tx": "from the end, which is the newest, as far as the index is behind", "conversations_named": "likewise"},
	"sqlSelectTombstones":     {"tombstones_old": "from its beginning, which is the oldest, a slice at the most"},
	"sqlSelectUnsent":         {"attachments_uploaded": "from its beginning, which is the oldest, once an hour"},
	"sqlSelectUnfinished":     {"requests_open": "only what is open is in this partial index"},
	"sqlSelectAnyAccount":     {"users_accounts": "one row of it"},
	"sqlSelectAccounts":       {"sqlite_autoindex_users_1": "the people of a house, all of them wanted"},
	"sqlSelectOpenOfDisabled": {"requests_open": "only what is open is in this partial index", "users": "the people of a house, when one of them is disabled and as often as the reaper looks"},
	"sqlInsertKey":            {"sqlite_sequence": "SQLite's own table, a row a table"},
	"sqlInsertLogin":          {"sqlite_sequence": "SQLite's own table, a row a table"},
	"sqlDeleteTries":          {"login_tries_over": "from its beginning, which is the oldest, as far as it is over"},
	"sqlKeyColumns":           {"api_keys": "a beginning of others, never run as it is"},
	"sqlSelectKeys":           {"api_keys": "the keys of a house, all of them wanted"},
}

// statements returns every constant sql… of package db by name, concatenations
// evaluated: the type checker knows them all, so none can be forgotten.
func statements(t *testing.T) map[string]string {
	t.Helper()
	fset := token.NewFileSet()
	names, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	var files []*ast.File
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(fset, name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, f)
	}
	info := &types.Info{Defs: map[*ast.Ident]types.Object{}}
	// What is imported does not matter for constants of text: nothing is loaded,
	// and whatever that leaves undefined is passed over.
	conf := types.Config{Importer: noImports{}, Error: func(error) {}}
	_, _ = conf.Check("db", fset, files, info)
	all := map[string]string{}
	for id, obj := range info.Defs {
		c, ok := obj.(*types.Const)
		if !ok || !strings.HasPrefix(id.Name, "sql") {
			continue
		}
		if c.Val().Kind() != constant.String {
			t.Errorf("%s is no text: %v", id.Name, c.Val())
			continue
		}
		all[id.Name] = constant.StringVal(c.Val())
	}
	if len(all) < 60 {
		t.Fatalf("only %d statements were found", len(all))
	}
	return all
}

type noImports struct{}

func (noImports) Import(string) (*types.Package, error) { return nil, errors.New("not loaded") }

// newFile returns a raw connection to a new database, past package db.
func newFile(t *testing.T) *sql.Conn {
	t.Helper()
	path := filepath.Join(t.TempDir(), "raw.db")
	dbtest.OpenAt(t, path, nil)
	return raw(t, path, "")
}

// raw opens a connection to the file past package db, with pragmas such as
// "&_pragma=foreign_keys(1)".
func raw(t testing.TB, path, pragmas string) *sql.Conn {
	t.Helper()
	pool, err := sql.Open("sqlite", "file:"+(&url.URL{Path: path}).EscapedPath()+"?_pragma=busy_timeout(5000)"+pragmas)
	if err != nil {
		t.Fatal(err)
	}
	c, err := pool.Conn(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(c.Close(), pool.Close()); err != nil {
			t.Error(err)
		}
	})
	return c
}

func TestEveryStatementPrepares(t *testing.T) {
	c := newFile(t)
	for name, text := range statements(t) {
		s, err := c.PrepareContext(context.Background(), text)
		switch fragment := slices.Contains(fragments, name); {
		case err != nil && !fragment:
			t.Errorf("%s: %v", name, err)
		case err == nil && fragment:
			t.Errorf("%s is a statement: take it off the list of fragments", name)
		}
		if err == nil {
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}

// A full walk is an OP_Rewind or OP_Last on a cursor that was opened on a table
// or index of the file. The plan in words would name aliases, and not what
// triggers and foreign keys do.
func TestNoStatementWalksAWholeTableUnlessItSaysWhy(t *testing.T) {
	c := newFile(t)
	roots := map[int64]string{}
	rows, err := c.QueryContext(context.Background(), `SELECT rootpage, name FROM sqlite_schema WHERE rootpage > 0`)
	if err != nil {
		t.Fatal(err)
	}
	for rows.Next() {
		var page int64
		var name string
		if err := rows.Scan(&page, &name); err != nil {
			t.Fatal(err)
		}
		roots[page] = name
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	all := statements(t)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if slices.Contains(fragments, name) {
			continue
		}
		for _, walked := range walks(t, c, all[name], roots) {
			if _, ok := mayScan[name][walked]; !ok {
				t.Errorf("%s walks the whole of %s: give it an index, or give mayScan the reason", name, walked)
			}
		}
	}
	for name, objects := range mayScan {
		for object := range objects {
			if !slices.Contains(walks(t, c, all[name], roots), object) {
				t.Errorf("%s no longer walks %s: take it off the list", name, object)
			}
		}
	}
}

func walks(t *testing.T, c *sql.Conn, text string, roots map[int64]string) (names []string) {
	t.Helper()
	rows, err := c.QueryContext(context.Background(), "EXPLAIN "+text, make([]any, strings.Count(text, "?"))...)
	if err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	cursors := map[int64]string{}
	for rows.Next() {
		var op string
		var p1, p2 int64
		var rest [6]any
		if err := rows.Scan(&rest[0], &op, &p1, &p2, &rest[1], &rest[2], &rest[3], &rest[4]); err != nil {
			t.Fatal(err)
		}
		switch op {
		case "OpenRead", "OpenWrite":
			cursors[p1] = roots[p2]
		case "OpenEphemeral", "OpenAutoindex", "SorterOpen", "OpenPseudo":
			delete(cursors, p1)
		case "Rewind", "Last":
			if name, ok := cursors[p1]; ok && !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
		if op == "OpenAutoindex" {
			names = append(names, "(an index made for this run)")
		}
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return names
}

func TestEveryInvariantPrepares(t *testing.T) {
	d := dbtest.Open(t)
	checks, err := d.Verify(context.Background())
	if err != nil || len(checks) != len(db.Invariants) {
		t.Fatalf("%d of %d invariants ran: %v", len(checks), len(db.Invariants), err)
	}
	seen := map[string]bool{}
	for _, c := range checks {
		if seen[c.ID] {
			t.Errorf("two invariants are called %s", c.ID)
		}
		seen[c.ID] = true
	}
}
