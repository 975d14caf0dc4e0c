package handlers_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"filippo.io/age"
	"github.com/gofrs/flock"

	"semel/chat"
	"semel/seal"
	"semel/upkeep"
)

// A backup is made when somebody asks, one at a time, and who asked is written down.
func TestABackupIsMadeForWhoAsksOneAtATime(t *testing.T) {
	id, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	to, err := seal.ParseRecipients([]string{id.Recipient().String()})
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	d := openDoor(t, func(s *setup) {
		s.keeper = &upkeep.Options{Directory: dir, Keep: upkeep.Keep{Newest: 9}, For: to}
	})
	d.answered("[[echo yes]]")
	d.get("/ops").wants(200).says("Back up now")
	// It cannot begin while another process copies the file.
	lock := flock.New(d.file + ".copying.lock")
	if err := lock.Lock(); err != nil {
		t.Fatal(err)
	}
	form := func() reply { return d.post("/ops/backup", "", "Content-Type", "application/x-www-form-urlencoded") }
	form().wants(303).has("Location", "/ops#file")
	var p chat.Problem
	d.post("/api/ops/backup", nil).wants(409).into(&p)
	if p.Code != "backing_up" || p.Retry != chat.RetrySameID || !strings.Contains(p.Detail, "since 2") {
		t.Errorf("a second one is told %+v", p)
	}
	form().wants(303)
	page := d.get("/ops").wants(200)
	page.says("A backup is being made, since 2")
	page.hides("Back up now")
	if err := lock.Unlock(); err != nil {
		t.Fatal(err)
	}
	for more := true; more; { // the first
		more = strings.Contains(string(d.get("/ops").wants(200).body), "A backup is being made, since")
	}
	var b struct {
		Path      string
		Bytes     int64
		Requests  int64
		Encrypted bool
		SHA256    string
	}
	d.post("/api/ops/backup", nil).wants(200).into(&b)
	fi, err := os.Stat(b.Path)
	if err != nil || fi.Size() != b.Bytes || b.Requests != 1 || !b.Encrypted || len(b.SHA256) != 64 || filepath.Dir(b.Path) != dir {
		t.Errorf("%+v, %v", b, err)
	}
	if list, err := upkeep.Backups(d.file, dir); err != nil || len(list) != 2 {
		t.Errorf("four asked, two while one was made: there are %v, %v", list, err)
	}
	var audit struct {
		Audit []struct{ Action, Actor, Object string }
	}
	d.get("/api/ops/audit?action=backup").wants(200).into(&audit)
	if len(audit.Audit) != 2 || audit.Audit[0].Actor != "user:1" || audit.Audit[0].Object != "database" {
		t.Errorf("it is written down as %+v", audit.Audit)
	}
	d.get("/ops/audit").wants(200).says("Backed up")
}

func TestAServerWithoutAKeeperMakesNoBackup(t *testing.T) {
	d := openDoor(t)
	d.post("/api/ops/backup", nil).wants(404)
	d.get("/ops").wants(200).hides("Back up now")
}
