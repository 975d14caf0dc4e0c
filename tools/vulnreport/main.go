// Vulnreport reads the JSON of govulncheck and fails if a vulnerable function of
// a module is called. Findings in the standard library are reported only: go.mod
// stays at the oldest Go that builds Semel, and releases are built with a newer
// one, so those are no reason to hold back a change.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
)

type message struct {
	OSV *struct {
		ID      string `json:"id"`
		Summary string `json:"summary"`
	} `json:"osv"`
	Finding *struct {
		OSV          string `json:"osv"`
		FixedVersion string `json:"fixed_version"`
		Trace        []struct {
			Module   string `json:"module"`
			Version  string `json:"version"`
			Function string `json:"function"` // only where it is called
		} `json:"trace"`
	} `json:"finding"`
	Config *struct {
		GoVersion string `json:"go_version"`
	} `json:"config"`
}

func main() {
	failed, err := report(os.Stdin, os.Stdout)
	if err != nil {
		fmt.Fprintln(os.Stderr, "vulnreport:", err)
		os.Exit(2)
	}
	if failed {
		os.Exit(1)
	}
}

func report(r io.Reader, w io.Writer) (failed bool, err error) {
	summaries := map[string]string{}
	lines := map[string]bool{}
	configured := false
	dec := json.NewDecoder(r)
	for {
		var m message
		err := dec.Decode(&m)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return false, err
		}
		if m.Config != nil {
			configured = true
			fmt.Fprintf(w, "checked with %s\n", m.Config.GoVersion)
		}
		if m.OSV != nil {
			summaries[m.OSV.ID] = m.OSV.Summary
		}
		if m.Finding == nil || len(m.Finding.Trace) == 0 {
			continue
		}
		f, at := m.Finding, m.Finding.Trace[0]
		kind := "present, not called"
		switch {
		case at.Module == "stdlib" || at.Module == "toolchain":
			if at.Function == "" {
				continue
			}
			kind = "Go itself"
		case at.Function != "":
			kind = "CALLED"
			failed = true
		}
		lines[fmt.Sprintf("%-20s %s %s@%s, fixed in %s: %s", kind, f.OSV, at.Module, at.Version, f.FixedVersion, summaries[f.OSV])] = true
	}
	if !configured {
		return false, errors.New("this is not the output of govulncheck -format json")
	}
	var sorted []string
	for l := range lines {
		sorted = append(sorted, l)
	}
	slices.Sort(sorted)
	for _, l := range sorted {
		fmt.Fprintln(w, l)
	}
	return failed, nil
}
