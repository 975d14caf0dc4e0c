package db_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"semel/db"
	"semel/db/dbtest"
)

// meaning is what a statement of the schema says, without its comments and its
// spaces.
func meaning(statement string) string {
	statement = regexp.MustCompile(`--[^\n]*`).ReplaceAllString(statement, " ")
	return strings.NewReplacer(" )", ")", " ,", ",").Replace(strings.Join(strings.Fields(statement), " "))
}

// meanings returns every object of a file's schema, with what it means.
func meanings(t *testing.T, path string) (all []string) {
	t.Helper()
	rows, err := raw(t, path, "").QueryContext(bg, `SELECT type || ' ' || name || ' of ' || tbl_name, coalesce(sql, '') FROM sqlite_schema ORDER BY 1`)
	if err != nil {
		t.Fatal(err)
	}
	for rows.Next() {
		var name, text string
		if err := rows.Scan(&name, &text); err != nil {
			t.Fatal(err)
		}
		all = append(all, name+": "+meaning(text))
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return all
}

// oldFile writes a file of an earlier version with all that the healthy file has,
// as far as that version could keep it.
func oldFile(t *testing.T, version int) string {
	t.Helper()
	healthy := copyHealthy(t)
	if version < 2 { // there were no files
		forget(t, healthy, carries)
	}
	schema, err := os.ReadFile(fmt.Sprintf("testdata/schema-%d.sql", version))
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "old.db")
	execRaw(t, path, `PRAGMA auto_vacuum = INCREMENTAL`, `PRAGMA application_id = 0x53454D4C`, fmt.Sprintf(`PRAGMA user_version = %d`, version), string(schema))
	c := raw(t, path, "")
	mustExec(t, c, `ATTACH '`+healthy+`' AS healthy`)
	rows, err := c.QueryContext(bg, `SELECT s.name, (SELECT group_concat(c.name) FROM pragma_table_info(s.name) c)
		FROM main.sqlite_schema s WHERE s.type = 'table' AND s.name NOT LIKE 'sqlite_%' AND s.sql NOT LIKE 'CREATE VIRTUAL%'`)
	if err != nil {
		t.Fatal(err)
	}
	var copies []string // a search index is copied by the tables behind it, which are not empty at first
	for rows.Next() {
		var table, columns string
		if err := rows.Scan(&table, &columns); err != nil {
			t.Fatal(err)
		}
		copies = append(copies, fmt.Sprintf(`INSERT OR REPLACE INTO main.%s (%s) SELECT %[2]s FROM healthy.%[1]s`, table, columns))
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	if len(copies) < 10 {
		t.Fatalf("%d tables: no test", len(copies))
	}
	for _, s := range copies {
		mustExec(t, c, s)
	}
	if version < 2 { // there were no effects
		of := ` WHERE request_id IN (SELECT r.id FROM requests r JOIN conversations c ON c.id = r.conversation_id WHERE c.session_id IN ('` + effects + `', '` + given + `'))`
		var without []string
		for _, table := range []string{"arrivals", "transitions", "attempts", "partials", "snapshots", "messages", "ledger"} {
			without = append(without, `DELETE FROM `+table+of)
		}
		without = append(without, strings.Replace(`DELETE FROM processed`+of, "request_id IN", "request IN", 1), strings.Replace(`DELETE FROM requests`+of, "request_id IN", "id IN", 1),
			`DELETE FROM conversations WHERE session_id IN ('`+effects+`', '`+given+`')`)
		breakFile(t, path, without)
	}
	return path
}

// forget removes a conversation from a file, as a purge does.
func forget(t *testing.T, path, session string) {
	t.Helper()
	execRaw(t, path, `UPDATE conversations SET deleted_at = 1 WHERE session_id = '`+session+`'`)
	d, err := db.Open(options(t, path))
	if err != nil {
		t.Fatal(err)
	}
	for more := true; more && err == nil; {
		more, err = d.PurgeConversations(bg, time.UnixMilli(2))
	}
	if err := errors.Join(err, d.Close()); err != nil {
		t.Fatal(err)
	}
}

func TestAnUpgradedFileIsLikeANewOneAndKeepsWhatItHad(t *testing.T) {
	for version := 1; version < db.Version(); version++ {
		path := oldFile(t, version)
		d := dbtest.OpenAt(t, path, nil)
		dbtest.Check(t, d)
		fresh := filepath.Join(t.TempDir(), "fresh.db")
		if err := openClose(t, options(t, fresh)); err != nil {
			t.Fatal(err)
		}
		if got, want := meanings(t, path), meanings(t, fresh); !slices.Equal(got, want) {
			t.Errorf("version %d: the upgraded schema differs:\n%s", version, diff(want, got))
		}
		// Old conversations are listed, are as new to their owner as they were (in version 1
		// nothing was), and are found whether they are in the index or not.
		before, err := d.News(bg, db.LocalUser)
		if err != nil || (before == 0) != (version < 2) {
			t.Errorf("version %d: %d are news (%v)", version, before, err)
		}
		for _, indexed := range []bool{false, true} {
			if indexed {
				index(t, d)
			}
			for q, want := range map[string]string{
				"":             stopped + " " + rerun + " " + refusedS + " " + revived + " " + busy + " " + branches,
				"vegetables":   branches, // a title that a person gave
				"better":       branches,
				"tell me all":  stopped,
				"forget":       "",
				"hello":        "", // deleted
				"mine":         "", // another user's
				"no such word": "",
			} {
				list, _, err := d.Conversations(bg, db.LocalUser, db.List{Query: q, Limit: 100})
				if err != nil {
					t.Fatal(err)
				}
				var got []string
				for _, c := range list {
					if c.Named != (c.SessionID == branches) {
						t.Errorf("%s was named by a person: %t", c.SessionID, c.Named)
					}
					got = append(got, c.SessionID)
				}
				if q == "" {
					for _, session := range strings.Fields(want) {
						if !slices.Contains(got, session) {
							t.Errorf("%s is not listed", session)
						}
					}
				} else if strings.Join(got, " ") != want {
					t.Errorf("%q finds %q, want %q", q, got, want)
				}
			}
		}
		// And it goes on.
		dbtest.Answered(t, d, archived, "and now?", "here we go")
		dbtest.Check(t, d)
		if n, err := d.News(bg, db.LocalUser); err != nil || n != before+1 {
			t.Errorf("%d are news (%v), want the one that was answered now beside %d", n, err, before)
		}
	}
}
