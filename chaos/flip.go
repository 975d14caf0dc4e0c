package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"sync"

	"semel/chat"
	"semel/db"
)

// A flipReport sums up what became of flipped bits, one each.
type flipReport struct {
	Flips   int
	Refused int // the file did not open
	Found   int // an invariant, or SQLite while it was asked, found it
	Kept    int // some answer was not served, because it is not the one that was stored
	Lost    int // what the log had was gone: SQLite takes a torn log for one that was not finished
	Other   int // a time or a count of a record changed, and nobody saw it
	Same    int // everything is served as before
	Changed []string
}

// A served is everything that the file says of its requests: the texts of questions and
// answers, and the rest.
type served struct {
	texts, rest map[string]string
}

// serveAll asks for every request by its key, and for every conversation. What is an
// error is not there.
func serveAll(d *db.DB, keys []chat.Key) served {
	s := served{map[string]string{}, map[string]string{}}
	read := map[string]bool{}
	for _, k := range keys {
		if !read[k.SessionID] {
			read[k.SessionID] = true
			t, _ := d.Thread(context.Background(), k.UserID, k.SessionID)
			for _, m := range t.Messages {
				if m.Role == "user" {
					s.texts[fmt.Sprintf("the question %d of %s", m.Seq, k.SessionID)] = m.Content
				}
			}
		}
		rec, err := d.Record(context.Background(), k)
		if err != nil {
			continue
		}
		if rec.Message != nil {
			s.texts["the answer of "+k.RequestID] = rec.Content + "\x00" + rec.Message.Reasoning
		}
		b, err := json.Marshal(rec)
		if err != nil {
			log.Fatal(err)
		}
		s.rest[k.RequestID] = string(b)
	}
	return s
}

// flip flips one bit at a time in the database at path or in its log, n times in all, and
// compares what is served with what was before.
func flip(path, work string, n int, rng *rand.Rand) (r flipReport) {
	main, err := os.ReadFile(path)
	if err != nil {
		log.Fatal(err)
	}
	wal, err := os.ReadFile(path + "-wal")
	if err != nil {
		log.Fatal(err)
	}
	put := func(dir string, main, wal []byte) (string, error) {
		file := filepath.Join(dir, "semel.db")
		if err := os.WriteFile(file, main, 0o600); err != nil {
			return "", err
		}
		return file, os.WriteFile(file+"-wal", wal, 0o600)
	}
	whole, err := put(work, main, wal)
	if err != nil {
		log.Fatal(err)
	}
	keys := keysOf(whole)
	d, err := open(whole)
	if err != nil {
		log.Fatal(err)
	}
	before := serveAll(d, keys)
	if err := d.Close(); err != nil {
		log.Fatal(err)
	}
	if len(before.texts) == 0 {
		log.Fatal("nothing is said in the file")
	}
	type job struct{ at, bit int }
	jobs := make(chan job)
	var mu sync.Mutex
	var workers sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		workers.Go(func() {
			for j := range jobs {
				dir, err := os.MkdirTemp(work, "flip")
				if err != nil {
					log.Fatal(err)
				}
				m, w := main, wal
				where := fmt.Sprintf("byte %d of the file", j.at)
				if j.at < len(main) {
					m = append([]byte(nil), main...)
					m[j.at] ^= 1 << j.bit
				} else {
					where = fmt.Sprintf("byte %d of the log", j.at-len(main))
					w = append([]byte(nil), wal...)
					w[j.at-len(main)] ^= 1 << j.bit
				}
				file, err := put(dir, m, w)
				if err != nil {
					log.Fatal(err)
				}
				what, changed := lookAfterFlip(file, keys, before, j.at >= len(main))
				mu.Lock()
				r.Flips++
				*map[string]*int{"refused": &r.Refused, "found": &r.Found, "kept": &r.Kept, "lost": &r.Lost, "same": &r.Same, "other": &r.Other, "changed": new(int)}[what]++
				if what == "changed" {
					r.Changed = append(r.Changed, fmt.Sprintf("bit %d of %s: %s", j.bit, where, changed))
				}
				mu.Unlock()
				if err := os.RemoveAll(dir); err != nil {
					log.Fatal(err)
				}
			}
		})
	}
	for i := range n {
		// A quarter in the log, a quarter in where answers are, the rest anywhere.
		at := rng.IntN(len(main))
		if i%4 == 0 && len(wal) > 0 {
			at = len(main) + rng.IntN(len(wal))
		}
		jobs <- job{at, rng.IntN(8)}
	}
	close(jobs)
	workers.Wait()
	return r
}

func open(path string) (*db.DB, error) {
	return db.Open(db.Options{Path: path, Schema: schema, Readers: 1, Driver: unsynced, Fatal: func(error) {}})
}

// keysOf lists the keys of all requests in the file.
func keysOf(path string) (keys []chat.Key) {
	raw := openRaw(path)
	defer raw.Close()
	rows, err := raw.Query(`SELECT c.user_id, c.session_id, r.request_id FROM requests r JOIN conversations c ON c.id = r.conversation_id`)
	if err != nil {
		log.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var k chat.Key
		if err := rows.Scan(&k.UserID, &k.SessionID, &k.RequestID); err != nil {
			log.Fatal(err)
		}
		keys = append(keys, k)
	}
	if err := rows.Err(); err != nil {
		log.Fatal(err)
	}
	return keys
}

// lookAfterFlip opens a file as a start does, and says what became of a flipped bit.
func lookAfterFlip(path string, keys []chat.Key, before served, inLog bool) (what, changed string) {
	d, err := open(path)
	if err != nil {
		return "refused", ""
	}
	defer d.Close() // it may be an error: the file is damaged
	checks, err := d.Verify(context.Background())
	found := err != nil
	for _, c := range checks {
		found = found || c.Count > 0
	}
	now := serveAll(d, keys)
	for what, text := range now.texts {
		if was, ok := before.texts[what]; ok && text != was {
			return "changed", what
		}
	}
	if found {
		return "found", ""
	}
	for id, rest := range before.rest {
		switch is, there := now.rest[id]; {
		case !there && inLog:
			what = "lost"
		case !there:
			what = "kept"
		case is != rest && !inLog:
			what = "other" // a time or a count, of which there is no digest
		case is != rest:
			what = "lost"
		}
	}
	if what == "" {
		what = "same"
	}
	return what, ""
}
