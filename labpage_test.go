package main

import (
	"encoding/json"
	"net"
	"slices"
	"testing"

	"semel/lab"
	"semel/views"
)

// The lab starts programs: where others reach the server, somebody has to want it.
func TestTheLabIsOffWhereOthersReachTheServer(t *testing.T) {
	for _, test := range []struct {
		enabled, at string
		want        bool
	}{
		{"auto", "127.0.0.1", true}, {"auto", "::1", true}, {"auto", "192.0.2.1", false}, {"auto", "::", false}, {"auto", "0.0.0.0", false},
		{"on", "0.0.0.0", true}, {"off", "127.0.0.1", false},
	} {
		l, err := labFor(test.enabled, &net.TCPAddr{IP: net.ParseIP(test.at), Port: 80})
		if err != nil {
			t.Fatal(err)
		}
		if got := l != nil; got != test.want {
			t.Errorf("enabled = %q at %s: there is a lab: %v, want %v", test.enabled, test.at, got, test.want)
		}
	}
}

// The report of the page is that of the command line, and its scenarios are all there are.
func TestThePageReportsAsTheCommandLineDoes(t *testing.T) {
	one := lab.Result{Scenario: "storm", Seed: 7, Naive: lab.Board{Clicks: 1, Answers: 1000}, Semel: lab.Board{Clicks: 1, Answers: 1}, Damage: []string{"answers"}, Broken: []string{}, Facts: "f"}
	want := newReport(labOptions{runs: 1, seed: 7})
	want.Results = append(want.Results, one)
	if err := want.Seal(); err != nil {
		t.Fatal(err)
	}
	got, err := labPage{}.Report("storm", 7, 1, []views.LabResult{{
		Seed: 7, Boards: [views.LabLanes]views.LabBoard{views.LabBoard(one.Naive), views.LabBoard(one.Semel)}, Damage: one.Damage, Broken: one.Broken, Facts: one.Facts}})
	if err != nil {
		t.Fatal(err)
	}
	j, err := json.MarshalIndent(want, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	if string(got.JSON) != string(j) || got.Digest != want.Digest {
		t.Errorf("the page reports %s, the command line %s", got.JSON, j)
	}
	var names []string
	for _, s := range (labPage{}).Scenarios() {
		names = append(names, s.Name)
		if len(s.Steps) == 0 || s.Title == "" {
			t.Errorf("%+v", s)
		}
	}
	if len(names) != len(lab.Scenarios) || slices.Contains(names, "runs") || slices.Contains(names, "naive") { // those are other pages
		t.Errorf("the scenarios are %v", names)
	}
}
