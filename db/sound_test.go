package db_test

import (
	"context"
	"database/sql"
	"errors"
	"path/filepath"
	"testing"

	"semel/db"
	"semel/db/dbtest"
)

// Bits flip, and people write into files. An answer that is not the one that was stored is
// shown to nobody, is sent to no model, and is in no export.
func TestAnAnswerThatIsNotTheOneStoredIsServedToNobody(t *testing.T) {
	ctx := context.Background()
	path := filepath.Join(t.TempDir(), "x.db")
	d := dbtest.OpenAt(t, path, nil)
	r := dbtest.Answered(t, d, "session-1", "one", "The harbour is open.")
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	raw, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	defer raw.Close()
	for _, q := range []string{`DROP TRIGGER snapshots_no_update`, `UPDATE snapshots SET content = 'The harbour is shut.'`} {
		if _, err := raw.Exec(q); err != nil {
			t.Fatalf("%s: %v", q, err)
		}
	}
	d = dbtest.OpenAt(t, path, nil)
	for name, read := range map[string]func() error{
		"record": func() error { _, err := d.Record(ctx, r.Key); return err },
		"thread": func() error { _, err := d.Thread(ctx, db.LocalUser, "session-1"); return err },
		"turns":  func() error { _, err := d.Turns(ctx, r.ConversationID, []int64{1, 2}); return err },
		"export": func() error { _, err := d.Archive(ctx, db.LocalUser, "session-1"); return err },
		"search": func() error {
			_, _, err := d.Conversations(ctx, db.LocalUser, db.List{Query: "harbour", Limit: 10})
			return err
		},
	} {
		if err := read(); !errors.Is(err, db.ErrDamaged) {
			t.Errorf("%s: %v, want that the file is damaged", name, err)
		}
	}
}
