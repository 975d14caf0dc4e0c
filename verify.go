package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"semel/db"
)

// A checkLine is one invariant in the JSON of verify.
type checkLine struct {
	ID         string   `json:"id"`
	Name       string   `json:"name"`
	Violations int64    `json:"violations"`
	Samples    []string `json:"samples,omitempty"`
	Took       float64  `json:"milliseconds"`
}

// verify checks every invariant of the database file at path and writes one line
// each, or JSON. It returns how many are violated; an error means that it could
// not run. The file may be served meanwhile.
func verify(ctx context.Context, path string, asJSON bool, w io.Writer) (violated int, err error) {
	d, err := db.Open(db.Options{Path: path, ReadOnly: true, Readers: 1})
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	started := time.Now()
	checks, err := d.Verify(ctx)
	if err != nil {
		return 0, err
	}
	lines := []checkLine{}
	for _, c := range checks {
		if c.Count > 0 {
			violated++
		}
		lines = append(lines, checkLine{c.ID, c.Name, c.Count, c.Samples, float64(c.Took.Microseconds()) / 1000})
	}
	if asJSON {
		e := json.NewEncoder(w)
		e.SetIndent("", "  ")
		return violated, e.Encode(map[string]any{"database": path, "violated": violated, "checks": lines})
	}
	for _, l := range lines {
		mark := "ok  "
		if l.Violations > 0 {
			mark = "FAIL"
		}
		if _, err := fmt.Fprintf(w, "%s  %-4s %8.1f ms  %s\n", mark, l.ID, l.Took, l.Name); err != nil {
			return violated, err
		}
		for _, s := range l.Samples {
			if _, err := fmt.Fprintf(w, "      %s\n", s); err != nil {
				return violated, err
			}
		}
		if more := l.Violations - int64(len(l.Samples)); more > 0 {
			if _, err := fmt.Fprintf(w, "      and %d more\n", more); err != nil {
				return violated, err
			}
		}
	}
	_, err = fmt.Fprintf(w, "%d of %d invariants hold, in %s\n", len(checks)-violated, len(checks), time.Since(started).Round(time.Millisecond))
	return violated, err
}
