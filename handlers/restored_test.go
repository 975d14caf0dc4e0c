package handlers_test

import (
	"path/filepath"
	"testing"

	"semel/chat"
	"semel/db"
	"semel/db/dbtest"
)

// restored opens a server over the restored backup of another's file.
func (d *door) restored() *door {
	d.t.Helper()
	b, err := d.db.Backup(d.t.Context(), filepath.Join(d.t.TempDir(), "backup.db"))
	if err != nil {
		d.t.Fatal(err)
	}
	file := filepath.Join(d.t.TempDir(), "restored.db")
	if _, err := db.Restore(d.t.Context(), db.Options{Path: file, Schema: dbtest.Schema(d.t)}, b.Path, false); err != nil {
		d.t.Fatal(err)
	}
	return openDoor(d.t, func(s *setup) { s.file = file })
}

// A copy of a retry that a restore made the server forget is nobody's word; with it, the
// retry is made once, by its owner or by a person of operations, in a form or not.
func TestARetryThatARestoreMayHaveLostWantsAPersonsWord(t *testing.T) {
	old := openDoor(t)
	session, id, other := chat.NewID(), chat.NewID(), chat.NewID()
	for _, id := range []string{id, other} {
		old.chat(ask(session, id, "[[fail 400 once]] [[echo alpha]]"), "Prefer", "wait=30").refused(422, "provider_refused")
	}
	d := old.restored()
	path := "/api/chat/retry/" + id
	retry := doc{"sessionId": session, "attempt": 1}
	for range 2 {
		d.post(path, retry).refused(409, "restored_gap")
	}
	d.post(path, doc{"sessionId": session, "attempt": 1, "confirm": "yes"}).refused(400, "bad_request")
	retry["confirm"] = "restored"
	d.post(path, retry, "Prefer", "wait=30").wants(200)
	if rec := d.post(path, retry, "Prefer", "wait=30").wants(200).record(); rec.Attempt != 2 || rec.Content != "alpha" {
		t.Errorf("the same again: %+v", rec)
	}

	page := opsPath(session, other)
	form := []string{"do", "retry", "attempt", "1", "model", "demo", "reason", "they asked for it", "key", d.get(page).key()}
	r := d.hand(page, form...)
	r.wants(409).says(`name="confirm" value="restored"`, "may do it a second time")
	if said := d.byHand(other); said != "" {
		t.Errorf("what was not done is written down: %s", said)
	}
	d.get(page).hides(`name="confirm"`)
	d.hand(page, append(form, "confirm", "restored")...).wants(303)
	d.hand(page, append(form, "confirm", "restored")...).wants(303)
	if said := d.byHand(other); said != "user:1 retry: they asked for it" {
		t.Errorf("written down is %q", said)
	}
	d.settled(session, other)
	dbtest.Check(t, d.db)
}
