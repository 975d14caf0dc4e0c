package handlers_test

import (
	"database/sql"
	"fmt"
	"net/http"
	"path/filepath"
	"sync"
	"testing"

	"semel/chat"
	"semel/db/dbtest"
)

// F9: the database was locked, and what was sent failed. Here fifty people send at
// once while copies of the file are being made, and none of them hears of it.
func TestManySendAtOnceDuringABackup(t *testing.T) {
	t.Parallel()
	d := openDoor(t)
	other, err := sql.Open("sqlite", d.db.Path()+"?_pragma=busy_timeout(60000)")
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	dir, copies := t.TempDir(), 0
	done, copied := make(chan struct{}), make(chan error, 1)
	begun := make(chan struct{})
	go func() {
		for n := 0; ; n++ {
			path := filepath.Join(dir, fmt.Sprint(n))
			if _, err := other.ExecContext(t.Context(), `VACUUM INTO ?`, path); err != nil {
				copied <- err
				return
			}
			if copies++; copies == 1 {
				close(begun)
			}
			select {
			case <-done:
				copied <- nil
				return
			default:
			}
		}
	}()
	select {
	case <-begun:
	case err := <-copied:
		t.Fatalf("copy: %v", err)
	}
	const each = 4
	replies := make([][each]reply, 50)
	var wg sync.WaitGroup
	for i := range replies {
		session := chat.NewID()
		wg.Go(func() {
			for n := range each {
				replies[i][n] = d.chat(ask(session, chat.NewID(), fmt.Sprintf("[[echo %d of %d]]", n, i)))
			}
		})
	}
	wg.Wait()
	close(done)
	if err := <-copied; err != nil {
		t.Fatalf("copy: %v", err)
	}
	for i, of := range replies {
		for n, r := range of {
			if r.status != http.StatusOK || r.record().Content != fmt.Sprintf("%d of %d", n, i) {
				t.Errorf("question %d of %d: %d %s", n, i, r.status, r.body)
			}
		}
	}
	for n := range copies { // what was copied meanwhile is whole
		path := filepath.Join(dir, fmt.Sprint(n))
		dbtest.Check(t, dbtest.OpenAt(t, path, nil))
	}
	t.Logf("%d copies", copies)
}
