package main

import (
	"cmp"
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"log"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"

	"modernc.org/sqlite"

	"semel/chat"
	"semel/db"
)

// A disk is what is on the medium for certain, and what was written and not synced:
// that may be there when the power goes, or not, or in part.
type disk struct {
	names  map[string]int // durable ones of the folder
	files  map[int][]byte // durable bytes by file
	loose  []traceStep    // not durable, in order
	asked  map[int]int    // by number of a sync that is under way: how many steps of loose it covers
	acks   []*ack
	shared map[int]bool // files whose bytes an image shares
}

func newDisk() *disk {
	return &disk{names: map[string]int{}, files: map[int][]byte{}, asked: map[int]int{}, shared: map[int]bool{}}
}

// share returns the same disk; whichever of the two changes a file copies it first.
func (d *disk) share() *disk {
	for file := range d.files {
		d.shared[file] = true
	}
	return &disk{names: maps.Clone(d.names), files: maps.Clone(d.files), shared: maps.Clone(d.shared)}
}

// of reports whether a sync of file makes s durable.
func (s traceStep) of(file int) bool {
	if s.deed == deedLink || s.deed == deedUnlink {
		return file == folder
	}
	return s.file == file
}

// step is the next one of a record.
func (d *disk) step(s traceStep) {
	switch s.deed {
	case deedAck:
		d.acks = append(d.acks, s.ack)
	case deedSync:
		d.asked[s.sync] = len(d.loose)
	case deedSynced:
		covered := d.asked[s.sync]
		delete(d.asked, s.sync)
		rest := d.loose[:0:0]
		for i, l := range d.loose {
			if i < covered && l.of(s.file) {
				d.apply(l)
				for n, upTo := range d.asked { // they cover fewer now
					if i < upTo {
						d.asked[n]--
					}
				}
				continue
			}
			rest = append(rest, l)
		}
		d.loose = rest
	default:
		d.loose = append(d.loose, s)
	}
}

// apply makes s durable. Images share bytes until one of them changes them.
func (d *disk) apply(s traceStep) {
	switch s.deed {
	case deedLink:
		d.names[s.name] = s.file
	case deedUnlink:
		delete(d.names, s.name)
	case deedWrite:
		b := d.own(s.file)
		if end := s.offset + int64(len(s.data)); end > int64(len(b)) {
			b = append(b, make([]byte, end-int64(len(b)))...)
		}
		copy(b[s.offset:], s.data)
		d.files[s.file] = b
	case deedTruncate:
		b := d.own(s.file)
		if s.offset > int64(len(b)) {
			b = append(b, make([]byte, s.offset-int64(len(b)))...)
		}
		d.files[s.file] = b[:s.offset:s.offset]
	}
}

// own returns the bytes of a file for changing them.
func (d *disk) own(file int) []byte {
	if d.shared[file] {
		delete(d.shared, file)
		d.files[file] = slices.Clone(d.files[file])
	}
	return d.files[file]
}

// What becomes of the bytes that are not synced.
const (
	cutLost = iota
	cutKept
	cutTorn // any of their sectors
	cutTornAgain
	cutWays
)

const sector = 512

// cut is the disk after the power has gone.
func (d *disk) cut(way int, rng *rand.Rand) *disk {
	loose := d.loose
	d = d.share()
	for _, s := range loose {
		switch {
		case way == cutLost:
		case way == cutKept:
			d.apply(s)
		case s.deed != deedWrite:
			if rng.IntN(2) == 0 {
				d.apply(s)
			}
		default:
			for at := 0; at < len(s.data); at += sector {
				if rng.IntN(2) == 0 {
					d.apply(traceStep{deed: deedWrite, file: s.file, offset: s.offset + int64(at), data: s.data[at:min(at+sector, len(s.data))]})
				}
			}
		}
	}
	return d
}

// write puts the files into dir.
func (d *disk) write(dir string) error {
	for name, file := range d.names {
		if err := os.WriteFile(filepath.Join(dir, name), d.files[file], 0o600); err != nil {
			return err
		}
	}
	return nil
}

// unsynced opens connections that wait for no disk: the images are our own.
func unsynced(dsn string) (driver.Conn, error) {
	c, err := sqlite.NewConnector(strings.Replace(dsn, "synchronous%28FULL%29", "synchronous%28OFF%29", 1))
	if err != nil {
		return nil, err
	}
	return c.Connect(context.Background())
}

// openRaw opens a file with nothing of Semel in between.
func openRaw(path string) *sql.DB {
	raw, err := sql.Open("sqlite", path)
	if err != nil {
		log.Fatal(err)
	}
	return raw
}

// lookAfterCut opens what is in dir as a start does and says what is wrong with it, and
// which answers or questions are lost that clients were told of.
func lookAfterCut(dir string, acks []*ack) (wrong, lost []string, err error) {
	path := filepath.Join(dir, "semel.db")
	var fatal error
	d, err := db.Open(db.Options{Path: path, Schema: schema, Readers: 1, Driver: unsynced, Fatal: func(err error) { fatal = err }})
	if err != nil {
		return []string{fmt.Sprintf("it does not open: %v", err)}, nil, nil
	}
	checks, err := d.Verify(context.Background())
	if err := cmp.Or(err, d.Close(), fatal); err != nil {
		return nil, nil, err
	}
	for _, c := range checks {
		if c.Count > 0 {
			wrong = append(wrong, fmt.Sprintf("%s (%s): %v", c.ID, c.Name, c.Samples))
		}
	}
	raw := openRaw(path)
	defer raw.Close()
	var quick string
	if err := raw.QueryRow(`PRAGMA quick_check`).Scan(&quick); err != nil || quick != "ok" {
		wrong = append(wrong, fmt.Sprintf("quick_check: %s %v", quick, err))
	}
	type stored struct {
		state   chat.State
		content string
	}
	there := map[string]stored{}
	rows, err := raw.Query(`SELECT c.session_id || ' ' || r.request_id, r.state, coalesce(s.content, '')
		FROM requests r JOIN conversations c ON c.id = r.conversation_id LEFT JOIN snapshots s ON s.request_id = r.id`)
	if err != nil {
		return nil, nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var key string
		var s stored
		if err := rows.Scan(&key, &s.state, &s.content); err != nil {
			return nil, nil, err
		}
		there[key] = s
	}
	for _, a := range acks {
		s, ok := there[a.SessionID+" "+a.RequestID]
		switch {
		case !ok:
			lost = append(lost, fmt.Sprintf("the question %s is lost, of which a client was told", a.RequestID))
		case a.State.Answered() && (!s.state.Answered() || s.content != a.Content):
			lost = append(lost, fmt.Sprintf("the answer to %s is lost or another, of which a client was told: %s", a.RequestID, s.state))
		}
	}
	return wrong, lost, rows.Err()
}

// A report sums up what power cuts would have left.
type report struct {
	States, Steps, Answers, Questions int
	Wrong, Lost                       []string
}

// cutEverywhere looks at n files that a power cut during the record could have left:
// after each word to a client, and at random moments.
func cutEverywhere(dir string, steps []traceStep, n int, rng *rand.Rand) report {
	at := map[int]bool{}
	for i, s := range steps {
		if s.deed == deedAck && len(at) < n/cutWays/2 {
			at[i] = true
		}
	}
	for len(at) < n/cutWays && len(at) < len(steps) {
		at[rng.IntN(len(steps))] = true
	}
	type job struct {
		step, way int
		disk      *disk
		acks      []*ack
	}
	jobs := make(chan job)
	var mu sync.Mutex
	var r report
	var workers sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		workers.Go(func() {
			for j := range jobs {
				image, err := os.MkdirTemp(dir, "cut")
				if err == nil {
					err = j.disk.write(image)
				}
				var wrong, lost []string
				if err == nil {
					wrong, lost, err = lookAfterCut(image, j.acks)
				}
				if err := cmp.Or(err, os.RemoveAll(image)); err != nil {
					log.Fatalf("step %d, way %d: %v", j.step, j.way, err)
				}
				mu.Lock()
				r.States++
				for _, w := range wrong {
					r.Wrong = append(r.Wrong, fmt.Sprintf("step %d, way %d: %s", j.step, j.way, w))
				}
				for _, l := range lost {
					r.Lost = append(r.Lost, fmt.Sprintf("step %d, way %d: %s", j.step, j.way, l))
				}
				mu.Unlock()
			}
		})
	}
	d := newDisk()
	for i, s := range steps {
		d.step(s)
		if at[i] {
			for way := range cutWays {
				jobs <- job{i, way, d.cut(way, rng), slices.Clone(d.acks)}
			}
		}
	}
	close(jobs)
	workers.Wait()
	for _, a := range d.acks {
		if a.State.Answered() {
			r.Answers++
		} else {
			r.Questions++
		}
	}
	return r
}
