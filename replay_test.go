package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"semel/chat"
	"semel/db"
	"semel/db/dbtest"
)

// asked is a database of answers that asked for actions: two that hold, one that was
// stopped, one that asked for what there is none of, and one that asked for nothing.
func asked(t *testing.T) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "semel.db")
	d := dbtest.OpenAt(t, path, nil)
	dbtest.Answered(t, d, "session-0", "Hello", "Hello.")
	dbtest.Effects(t, d, "session-1", "sign", "note", "never")
	dbtest.Effects(t, d, "session-2", "sign")
	for session, c := range map[string]struct {
		call   chat.ToolCall
		finish chat.Finish
	}{
		"session-3": {chat.ToolCall{Name: "note", Arguments: `{"n":1}`}, chat.FinishStopped},
		"session-4": {chat.ToolCall{Name: "pay", Arguments: "{\"n\":\"\xff\"}"}, chat.FinishTool},
	} {
		a := dbtest.Asking()
		calls := []chat.ToolCall{c.call}
		text, err := json.Marshal(calls)
		if err != nil {
			t.Fatal(err)
		}
		a.ToolCalls, a.Finish = string(text), c.finish
		a.Decisions = dbtest.Declared.Decide(calls, c.finish) // as they came
		r, _ := dbtest.Claim(t, d, dbtest.Accept(t, d, session, "Please."))
		if _, err := d.Finish(context.Background(), r, a); err != nil {
			t.Fatal(err)
		}
	}
	return path
}

func TestReplayDecidesAsBefore(t *testing.T) {
	code, stdout, stderr := semel(t, nil, "replay", "--db", asked(t))
	if code != 0 || stderr != "" || stdout != "5 of 5 decisions on 4 answers are decided so again\n" {
		t.Errorf("exit code %d\n%s%s", code, stdout, stderr)
	}
}

func TestReplayFindsWhatWasDecidedOtherwise(t *testing.T) {
	whole := asked(t)
	for name, c := range map[string]struct {
		damage string // with its table
		want   string // of one line
	}{
		"a verdict":        {`UPDATE decisions SET verdict = 'auto' WHERE action = 'sign' AND position = 0 AND request_id = (SELECT max(request_id) FROM decisions WHERE action = 'sign')`, "session-2 %s, tool call 0: sign auto, now sign ask\n"},
		"a code":           {`UPDATE decisions SET code = 'bad_arguments' WHERE verdict = 'never'`, "tool call 2: never never (bad_arguments: The action \"never\" is declared as one that is never run.), now never never (not_allowed: "},
		"an argument":      {`UPDATE decisions SET arguments = '{"n": 7 }' WHERE action = 'note'`, "tool call 1: note auto with 9 bytes of other arguments, now note auto with 8 bytes of other arguments\n"},
		"a digest":         {`UPDATE decisions SET digest = zeroblob(32) WHERE action = 'note'`, "tool call 1: note auto with the digest 00000000…, now note auto with the digest "},
		"an action":        {`UPDATE decisions SET action = 'sign' WHERE action = 'note'`, "tool call 1: sign auto, now note auto\n"},
		"what it is from":  {`UPDATE snapshots SET declarations_id = NULL WHERE request_id = (SELECT max(request_id) FROM decisions WHERE action = 'sign')`, "tool call 0: sign ask, now sign invalid (unknown_action: "},
		"one less":         {`DELETE FROM decisions WHERE action = 'note'`, "tool call 1: no decision, now note auto\n"},
		"one more":         {`INSERT INTO decisions SELECT request_id, 1000000000, 'msg_x', action, arguments, digest, verdict, code, reason, at, tx FROM decisions WHERE action = 'note'`, "tool call 1000000000: note auto, now no decision\n"},
		"what was asked":   {`UPDATE snapshots SET tool_calls = '[{"id":"call-0","name":"sign","arguments":"{\"n\":\"x\"}"}]' WHERE request_id = (SELECT max(request_id) FROM decisions WHERE action = 'sign')`, "tool call 0: sign ask with 8 bytes of other arguments, now sign invalid (bad_arguments: The arguments do not fit their schema: /n is of type string, not integer.) with 9 bytes"},
		"how it ended":     {`UPDATE snapshots SET finish = 'length' WHERE request_id = (SELECT max(request_id) FROM decisions WHERE action = 'sign')`, "tool call 0: sign ask, now no decision\n"},
		"what is declared": {`UPDATE declarations SET body = replace(body, '"name":"note","description":{"en":"Do note"},"parameters":', '"name":"tone","description":{"en":"Do note"},"parameters":')`, "tool call 1: note auto, now note invalid (unknown_action: "},
	} {
		t.Run(name, func(t *testing.T) {
			path := copyDatabase(t, whole, filepath.Join(t.TempDir(), "semel.db"))
			d := openSQL(t, path)
			for _, table := range []string{"decisions", "snapshots", "declarations"} {
				for _, what := range []string{"update", "delete"} {
					if _, err := d.Exec("DROP TRIGGER " + table + "_no_" + what); err != nil {
						t.Fatal(err)
					}
				}
			}
			if res, err := d.Exec(c.damage); err != nil {
				t.Fatal(err)
			} else if n, err := res.RowsAffected(); n != 1 || err != nil {
				t.Fatalf("%d rows changed, %v", n, err)
			}
			want := c.want
			if strings.Contains(want, "%s") {
				var id string
				if err := d.QueryRow(`SELECT r.request_id FROM requests r JOIN conversations c ON c.id = r.conversation_id WHERE c.session_id = 'session-2'`).Scan(&id); err != nil {
					t.Fatal(err)
				}
				want = fmt.Sprintf(want, id)
			}
			code, stdout, stderr := semel(t, nil, "replay", "--db", path)
			if code != 1 || !strings.Contains(stdout, want) || strings.Count(stdout, "\n") != 2 || !strings.Contains(stderr, "decisions that differ: 1") {
				t.Errorf("exit code %d\n%s%s\nwant one difference with %q", code, stdout, stderr, want)
			}
		})
	}
}

func TestReplayShowsWhatOtherDeclarationsWouldDecide(t *testing.T) {
	path := asked(t)
	file := filepath.Join(t.TempDir(), "other.toml")
	write := func(approval string) {
		t.Helper()
		var text strings.Builder
		for _, a := range []struct{ name, approval string }{{"sign", approval}, {"note", "auto"}, {"never", "never"}} {
			fmt.Fprintf(&text, "[[actions]]\nname = %q\ndescription = \"Do it\"\napproval = %q\nparameters = '{\"type\":\"object\",\"properties\":{\"n\":{\"type\":\"integer\"}}}'\n"+
				"destination = { kind = \"webhook\", url = \"https://example.com/\", secrets = [\"whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIz\"] }\n", a.name, a.approval)
		}
		if err := os.WriteFile(file, []byte(text.String()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("ask")
	if code, stdout, stderr := semel(t, nil, "replay", "--db", path, "--against", file); code != 0 || !strings.HasPrefix(stdout, "5 of 5") {
		t.Errorf("the same: exit code %d\n%s%s", code, stdout, stderr)
	}
	write("never")
	code, stdout, _ := semel(t, nil, "replay", "--db", path, "--against", file)
	if code != 1 || strings.Count(stdout, "sign ask, now sign never (not_allowed: ") != 2 || !strings.HasSuffix(stdout, "3 of 5 decisions on 4 answers are decided so again\n") {
		t.Errorf("others: exit code %d\n%s", code, stdout)
	}
	// The first configuration is that of the database.
	if code, stdout, stderr := semel(t, nil, "replay", "--db", path, "--config", file); code != 0 {
		t.Errorf("the settings decide about the past: exit code %d\n%s%s", code, stdout, stderr)
	}
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if code, stdout, _ := semel(t, nil, "replay", "--db", path, "--against", file); code != 1 || !strings.HasSuffix(stdout, "\n1 of 5 decisions on 4 answers are decided so again\n") {
		t.Errorf("against nothing: exit code %d\n%s", code, stdout)
	}
}

func TestReplayThatCannotRunExitsWithTwo(t *testing.T) {
	path := asked(t)
	dir := t.TempDir()
	bad := filepath.Join(dir, "bad.toml")
	if err := os.WriteFile(bad, []byte("[[actions]]\nname = \"a\"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	unread := copyDatabase(t, path, filepath.Join(dir, "unread.db"))
	for _, q := range []string{`DROP TRIGGER declarations_no_update`, `UPDATE declarations SET body = '{}'`} {
		if _, err := openSQL(t, unread).Exec(q); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		args []string
		says string
	}{
		{[]string{"--db", filepath.Join(dir, "missing.db")}, "missing.db"},
		{[]string{"--db", path, "--against", filepath.Join(dir, "missing.toml")}, "missing.toml"},
		{[]string{"--db", path, "--against", bad}, "destination is missing"},
		{[]string{"--db", path, "--against="}, "--against: must not be empty"},
		{[]string{"--db", unread}, "read declarations"},
		{[]string{"--db", path, "extra"}, `unknown command "extra"`},
	} {
		code, _, stderr := semel(t, nil, append([]string{"replay"}, c.args...)...)
		if code != 2 || !strings.Contains(stderr, c.says) {
			t.Errorf("%v: exit code %d, %q; want 2 and %q", c.args, code, stderr, c.says)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "missing.db")); err == nil {
		t.Error("looking at a file made it")
	}
}

// Slices of answers follow each other without a gap.
func TestProposalsGoOnWhereTheyStopped(t *testing.T) {
	d, err := db.Open(db.Options{Path: asked(t), ReadOnly: true, Readers: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	whole, err := d.Proposals(t.Context(), 0, 100)
	if err != nil || len(whole) != 4 || len(whole[0].Decisions) != 3 || len(whole[1].Decisions) != 1 {
		t.Fatalf("%+v, %v", whole, err)
	}
	last := int64(0)
	for i := range whole {
		list, err := d.Proposals(t.Context(), last, 1)
		if err != nil || len(list) != 1 || list[0].ID != whole[i].ID || len(list[0].Decisions) != len(whole[i].Decisions) {
			t.Errorf("slice %d: %+v, %v", i, list, err)
		}
		last = whole[i].ID
	}
	if list, err := d.Proposals(t.Context(), last, 1); err != nil || len(list) != 0 {
		t.Errorf("after the last: %+v, %v", list, err)
	}
}
