package handlers

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"semel/chat"
	"semel/db"
	"semel/seal"
	"semel/upkeep"
)

// postBackup makes a backup now, as the schedule does, and returns what it is when it is
// made. One is made at a time. It goes on when the client does not wait for it.
func (s *server) postBackup(w http.ResponseWriter, r *http.Request) error {
	done, err := s.beginBackup(r)
	if err != nil {
		return err
	}
	var o upkeep.Outcome
	select {
	case o = <-done:
	case <-r.Context().Done():
		return errHangUp
	case <-s.closing:
		return errHangUp
	}
	switch {
	case errors.Is(o.Err, upkeep.ErrLow) || errors.Is(o.Err, db.ErrNoRoom):
		return refuse(http.StatusInsufficientStorage, "disk_full", chat.RetrySameID, "There is not enough room on the disk for a backup: "+o.Err.Error()+".")
	case o.Err != nil:
		return o.Err
	}
	b := o.Backup
	s.writeJSON(w, http.StatusOK, struct {
		At        chat.Stamp `json:"at"`
		Path      string     `json:"path"`
		Bytes     int64      `json:"bytes"`
		Requests  int64      `json:"requests"`
		Checks    int        `json:"checks"`
		SHA256    string     `json:"sha256"`
		Encrypted bool       `json:"encrypted"`
		TookMS    int64      `json:"tookMs"`
	}{chat.Stamp{Time: b.At}, b.Path, b.Bytes, b.Requests, b.Checks, b.SHA256, strings.HasSuffix(b.Path, seal.Encrypted), b.Took.Milliseconds()})
	return nil
}

// beginBackup begins a backup, and writes down who asked for it.
func (s *server) beginBackup(r *http.Request) (<-chan upkeep.Outcome, error) {
	if s.Keeper == nil {
		return nil, refuse(http.StatusNotFound, "not_found", chat.RetryNever, "This server makes no backups.")
	}
	done, err := s.Keeper.Begin()
	if errors.Is(err, upkeep.ErrBackingUp) {
		since := ""
		if at := s.Keeper.Making(); !at.IsZero() {
			since = fmt.Sprintf(", since %s", at.UTC().Format(time.RFC3339))
		}
		return nil, refuse(http.StatusConflict, "backing_up", chat.RetrySameID, "A backup is being made already"+since+". Ask again when it has ended.")
	}
	if err != nil {
		return nil, err
	}
	return done, s.DB.WriteDown(r.Context(), "backup", db.Deed{Actor: s.actor(r)})
}

// postBackupPage begins a backup and leads back to the page that shows it. One that is
// made already will do.
func (s *server) postBackupPage(w http.ResponseWriter, r *http.Request) error {
	var p *chat.Problem
	if _, err := s.beginBackup(r); err != nil && !(errors.As(err, &p) && p.Code == "backing_up") {
		return err
	}
	http.Redirect(w, r, "/ops#file", http.StatusSeeOther)
	return nil
}
