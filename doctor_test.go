package main

import (
	"bytes"
	"database/sql"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"semel/upkeep"
)

// doctored runs doctor and returns what each check found.
func doctored(t *testing.T, args ...string) (code int, found map[string]finding) {
	t.Helper()
	code, stdout, stderr := semel(t, nil, append([]string{"doctor", "--json"}, args...)...)
	var report struct{ Findings []finding }
	if err := json.Unmarshal([]byte(stdout), &report); err != nil {
		t.Fatalf("%v: %s%s", err, stdout, stderr)
	}
	found = map[string]finding{}
	for _, f := range report.Findings {
		if f.Result != "ok" && f.Do == "" {
			t.Errorf("%+v says not what to do", f)
		}
		if before, twice := found[f.Check]; !twice || before.Result == "ok" || f.Result == "fail" {
			found[f.Check] = f
		}
	}
	return code, found
}

func TestDoctorNamesWhatWillHurtAndWhatToDo(t *testing.T) {
	healthy := askedOnce(t)
	if code, found := doctored(t, "--db", healthy); code != 0 || found["structure"].Result != "ok" || found["files"].Result != "ok" || found["backups"].Result != "warn" || found["clock"].Result != "ok" || found["work"].Result != "ok" {
		t.Errorf("a healthy file: exit %d, %v", code, found)
	}
	for _, tt := range []struct {
		check, result, do string
		hurt              func(db string) error
	}{
		{"files", "fail", "chmod 600", func(db string) error { return os.Chmod(db, 0o644) }},
		{"notes", "fail", "start the server", func(db string) error { return upkeep.Suspect(db, errors.New("fsync failed")) }},
		{"notes", "fail", "semel restore FILE --force", func(db string) error { return os.WriteFile(db+".restore-unfinished", nil, 0o600) }},
		{"clock", "fail", "set the clock", func(db string) error {
			_, err := openSQL(t, db).Exec(`DROP TRIGGER requests_identity; UPDATE requests SET created_at = created_at + 3600000`)
			return err
		}},
		{"work", "warn", "/ops?view=stuck", func(db string) error {
			_, err := openSQL(t, db).Exec(`DROP TRIGGER requests_identity; DROP TRIGGER requests_edges; PRAGMA ignore_check_constraints = ON;
				UPDATE requests SET created_at = created_at - 3600000, state = 'pending', acknowledged_at = NULL, completed_at = NULL`)
			return err
		}},
		{"structure", "fail", "restore", damage},
		{"backups", "warn", "log", func(db string) error {
			dir := filepath.Join(filepath.Dir(db), "backups")
			return errors.Join(os.Mkdir(dir, 0o700), os.WriteFile(filepath.Join(dir, "semel-20000101T000000Z.db"), nil, 0o600))
		}},
		{"log", "warn", "end whatever", func(db string) error {
			return errors.Join(emptyLog(db), os.WriteFile(db+"-wal", nil, 0o600), os.Truncate(db+"-wal", 65<<20))
		}},
	} {
		db := copyDatabase(t, healthy, filepath.Join(t.TempDir(), "semel.db"))
		for _, s := range []string{"", "-wal"} {
			if err := os.Chmod(db+s, 0o600); err != nil && !errors.Is(err, os.ErrNotExist) {
				t.Fatal(err)
			}
		}
		if err := tt.hurt(db); err != nil {
			t.Fatalf("%s: %v", tt.check, err)
		}
		code, found := doctored(t, "--db", db)
		if f := found[tt.check]; f.Result != tt.result || !strings.Contains(f.Do, tt.do) || (code == 1) != (tt.result == "fail") {
			t.Errorf("%s: exit %d, %+v, want %s and %q", tt.check, code, f, tt.result, tt.do)
		}
	}
	if code, _, stderr := semel(t, nil, "doctor", "--db", healthy+"x"); code != 2 {
		t.Errorf("of no file: exit %d, %s", code, stderr)
	}
}

// damage hurts the file as a disk does: what each page but the first few says of itself.
func damage(db string) error {
	if err := emptyLog(db); err != nil { // or it has better pages
		return err
	}
	b, err := os.ReadFile(db)
	for page := 4096 * 3; page < len(b); page += 4096 {
		b[page+3], b[page+4] = 0xff, 0xff
	}
	return errors.Join(err, os.WriteFile(db, b, 0o600))
}

// emptyLog puts what is in the log into the file.
func emptyLog(db string) error {
	c, err := sql.Open("sqlite", db)
	if err != nil {
		return err
	}
	_, err = c.Exec(`PRAGMA wal_checkpoint(TRUNCATE)`)
	return errors.Join(err, c.Close())
}

func TestDoctorTriesAProxy(t *testing.T) {
	defer func(d time.Duration) { doctorPatience = d }(doctorPatience)
	doctorPatience = patience
	db := filepath.Join(t.TempDir(), "semel.db")
	l := serveNow(t, db)
	if code, found := doctored(t, "--db", db, "--url", l.url+"/"); code != 0 || found["proxy"].Result != "ok" {
		t.Errorf("no proxy at all: exit %d, %+v", code, found["proxy"])
	}
	// One that wants the whole answer before it passes on the first word of it.
	buffering := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		req, err := http.NewRequestWithContext(r.Context(), r.Method, l.url+r.URL.Path, nil)
		if err != nil {
			return
		}
		res, err := l.http.Do(req)
		if err != nil {
			return
		}
		defer res.Body.Close()
		b, err := io.ReadAll(res.Body)
		if err != nil {
			return
		}
		w.Header().Set("X-Trace-Id", res.Header.Get("X-Trace-Id"))
		_, _ = io.Copy(w, bytes.NewReader(b))
	}))
	defer buffering.Close()
	var code int
	var found map[string]finding
	for doctorPatience = 2 * time.Second; doctorPatience < patience; doctorPatience *= 2 { // until it is long enough for what comes first
		if code, found = doctored(t, "--db", db, "--url", buffering.URL); strings.Contains(found["proxy"].Do, "proxy_buffering") {
			break
		}
	}
	if code != 1 || found["proxy"].Result != "fail" || !strings.Contains(found["proxy"].Do, "proxy_buffering off") {
		t.Errorf("one that holds back: exit %d, %+v", code, found["proxy"])
	}
	refusing := httptest.NewServer(http.NotFoundHandler())
	defer refusing.Close()
	doctorPatience = patience
	if code, found := doctored(t, "--db", db, "--url", refusing.URL); code != 1 || !strings.Contains(found["proxy"].Says, "404") {
		t.Errorf("one that answers itself: exit %d, %+v", code, found["proxy"])
	}
}

// A damaged file is not served, however often it is started, and stays as it is; the
// message has the command that helps, and the command helps.
func TestADamagedFileIsNotServedAndItsMessageHelps(t *testing.T) {
	db := askedOnce(t)
	dir := filepath.Join(filepath.Dir(db), "backups")
	backup := filepath.Join(dir, strings.TrimSuffix(filepath.Base(db), ".db")+"-20300102T030405Z.db")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if out, stderr, code := runSemel(t, "backup", backup, "--db", db); code != 0 {
		t.Fatal(out, stderr)
	}
	if err := errors.Join(damage(db), upkeep.Suspect(db, errors.New("a read failed"))); err != nil {
		t.Fatal(err)
	}
	hurt, err := os.ReadFile(db)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		l := launch(t, db)
		if l.ready(t) {
			t.Fatalf("it is served:\n%s", l.log)
		}
		if code := l.wait(t); code != exitDamaged || !strings.Contains(l.log.String(), "semel restore "+backup+" --db "+db+" --force") {
			t.Fatalf("exit %d:\n%s", code, l.log)
		}
	}
	if now, err := os.ReadFile(db); err != nil || !bytes.Equal(now, hurt) {
		t.Errorf("the damaged file was changed: %v", err)
	}
	if out, stderr, code := runSemel(t, "restore", backup, "--db", db, "--force"); code != 0 {
		t.Fatal(out, stderr)
	}
	l := serveNow(t, db)
	l.kill()
	verifyFile(t, db)

	// Doubt alone: the file is read whole, and served.
	if err := upkeep.Suspect(db, errors.New("a write failed")); err != nil {
		t.Fatal(err)
	}
	l = serveNow(t, db)
	if !strings.Contains(l.log.String(), "it was read whole, and is sound") {
		t.Errorf("not read:\n%s", l.log)
	}
}
