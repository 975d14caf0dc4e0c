package main

import (
	"context"
	"encoding/json"
	"net"
	"net/netip"

	"semel/handlers"
	"semel/lab"
	"semel/lab/naive"
	"semel/views"
)

// labPage is the lab as the pages know it: what it says in keys, they say in words.
type labPage struct{ lab *lab.Lab }

// labFor returns the lab of a server at that address, nil where it is off.
func labFor(enabled string, at net.Addr) (handlers.Lab, error) {
	here := false
	if a, err := netip.ParseAddrPort(at.String()); err == nil {
		here = a.Addr().IsLoopback()
	}
	if enabled == "off" || enabled == "auto" && !here {
		return nil, nil
	}
	l, err := lab.New(lab.Options{Schema: schema})
	if err != nil {
		return nil, err
	}
	return labPage{l}, nil
}

// Scenarios implements [handlers.Lab].
func (labPage) Scenarios() (list []views.LabScenario) {
	for _, s := range lab.Scenarios {
		v := views.LabScenario{Number: s.Number, Name: s.Name, Title: s.Title, About: s.About, Want: s.Want}
		for _, step := range s.Steps {
			v.Steps = append(v.Steps, step.Say)
		}
		list = append(list, v)
	}
	return list
}

// Naive implements [handlers.Lab].
func (labPage) Naive() string { return naive.Source }

// Run implements [handlers.Lab].
func (p labPage) Run(ctx context.Context, r handlers.LabRun, emit func(views.LabEvent)) (views.LabResult, error) {
	res, err := p.lab.Run(ctx, lab.Run{Scenario: r.Scenario, Seed: r.Seed, Next: r.Next}, func(e lab.Event) {
		v := views.LabEvent{Step: e.Step, Say: views.LabSentence(e.Say)}
		switch e.Kind {
		case lab.KindStep:
		case lab.KindOutcome:
			b := views.LabBoard(*e.Board)
			v.Board = &b
			if e.Lane == lab.Semel {
				v.Lane = views.LabSemel
			}
		default:
			return // that it is ready, the first step says; how it ended, the result
		}
		emit(v)
	})
	return views.LabResult{
		Seed: res.Seed, Boards: [views.LabLanes]views.LabBoard{views.LabBoard(res.Naive), views.LabBoard(res.Semel)},
		Damage: res.Damage, Broken: res.Broken, Facts: res.Facts,
	}, err
}

// Report implements [handlers.Lab]. It is what the command line prints.
func (labPage) Report(scenario string, seed uint64, runs int, results []views.LabResult) (v views.LabReport, err error) {
	r := newReport(labOptions{runs: runs, seed: seed})
	for _, one := range results {
		r.Results = append(r.Results, lab.Result{
			Scenario: scenario, Seed: one.Seed, Naive: lab.Board(one.Boards[views.LabNaive]), Semel: lab.Board(one.Boards[views.LabSemel]),
			Damage: one.Damage, Broken: one.Broken, Facts: one.Facts,
		})
	}
	if err := r.Seal(); err != nil {
		return v, err
	}
	v = views.LabReport{Semel: r.Semel, SQLite: r.SQLite, Go: r.Go, Digest: r.Digest}
	v.JSON, err = json.MarshalIndent(r, "", "  ")
	return v, err
}
