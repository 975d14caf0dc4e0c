package db_test

import (
	"slices"
	"strings"
	"testing"

	"semel/chat"
	"semel/db"
	"semel/db/dbtest"
)

func TestTheNewestRequestsWithTheirDedupeState(t *testing.T) {
	d := dbtest.OpenAt(t, copyHealthy(t), nil)
	all, next, err := d.Requests(bg, db.RequestFilter{Limit: 1000})
	if err != nil || next != 0 || len(all) < 30 {
		t.Fatalf("%d requests, more from %d, %v", len(all), next, err)
	}
	seen := map[chat.State]bool{}
	for i, s := range all {
		if i > 0 && s.Request.ID >= all[i-1].Request.ID {
			t.Errorf("request %d comes after %d", s.Request.ID, all[i-1].Request.ID)
		}
		seen[s.Request.State] = true
		if s.Arrivals[chat.DecisionFirst] != 1 {
			t.Errorf("request %d has the arrivals %v", s.Request.ID, s.Arrivals)
		}
		if answered := s.Request.State.Answered(); answered != (s.Usage.OutputTokens > 0) || answered && (s.Micros == 0 || s.Total < 0) {
			t.Errorf("request %d, %s: %+v", s.Request.ID, s.Request.State, s)
		}
		if (s.Open > 0) != (s.Request.State == chat.StateAcknowledged) || s.Troubled > s.Open {
			t.Errorf("request %d, %s, has %d open effects, %d troubled", s.Request.ID, s.Request.State, s.Open, s.Troubled)
		}
	}
	if len(seen) != len(chat.States) {
		t.Errorf("the states are %v", seen)
	}
	first := all[len(all)-1]
	if first.Arrivals[chat.DecisionReplayed] != 1 || first.Arrivals[chat.DecisionConflict] != 1 {
		t.Errorf("the first has the arrivals %v", first.Arrivals)
	}

	var pages []db.Summary
	for before := int64(0); ; {
		page, next, err := d.Requests(bg, db.RequestFilter{Before: before, Limit: 7})
		if err != nil {
			t.Fatal(err)
		}
		pages = append(pages, page...)
		if before = next; next == 0 {
			break
		}
	}
	if len(pages) != len(all) {
		t.Errorf("page by page there are %d, want %d", len(pages), len(all))
	}

	for _, c := range []struct {
		f    db.RequestFilter
		want func(db.Summary) bool
	}{
		{db.RequestFilter{State: chat.StateFailed}, func(s db.Summary) bool { return s.Request.State == chat.StateFailed }},
		{db.RequestFilter{Decision: chat.DecisionConflict}, func(s db.Summary) bool { return s.Arrivals[chat.DecisionConflict] > 0 }},
		{db.RequestFilter{View: "conflicts"}, func(s db.Summary) bool { return s.Arrivals[chat.DecisionConflict] > 0 }},
		{db.RequestFilter{View: "repeated"}, func(s db.Summary) bool { return len(s.Arrivals) > 1 }},
		{db.RequestFilter{View: "unknown"}, func(s db.Summary) bool { return s.Request.Failure.Outcome == chat.OutcomeUnknown }},
		{db.RequestFilter{ID: strings.ToLower(first.Request.Key.RequestID[10:])}, func(s db.Summary) bool { return s.Request.ID == first.Request.ID }},
		{db.RequestFilter{ID: "session-bus"}, func(s db.Summary) bool { return s.Request.Key.SessionID == busy }},
	} {
		c.f.Limit = 1000
		got, _, err := d.Requests(bg, c.f)
		want := slices.DeleteFunc(slices.Clone(all), func(s db.Summary) bool { return !c.want(s) })
		if err != nil || len(want) == 0 || !slices.EqualFunc(got, want, func(a, b db.Summary) bool { return a.Request.ID == b.Request.ID }) {
			t.Errorf("%+v finds %d (%v), want %d", c.f, len(got), err, len(want))
		}
	}
	waiting, _, err := d.Requests(bg, db.RequestFilter{View: "waiting", Limit: 1000})
	if err != nil || len(waiting) < 3 || slices.ContainsFunc(waiting, func(s db.Summary) bool { return s.Open == 0 }) {
		t.Errorf("%d wait for a person (%v)", len(waiting), err)
	}
	if stuck, _, err := d.Requests(bg, db.RequestFilter{View: "stuck", Limit: 1000}); err != nil || len(stuck) != 0 {
		t.Errorf("%d are stuck (%v)", len(stuck), err)
	}
	execRaw(t, d.Path(), `DROP TRIGGER requests_identity`, `UPDATE requests SET created_at = 1 WHERE state IN ('pending', 'generating')`)
	stuck, _, err := d.Requests(bg, db.RequestFilter{View: "stuck", Limit: 1000})
	if err != nil || len(stuck) < 5 {
		t.Errorf("%d are stuck (%v)", len(stuck), err)
	}
	totals, err := d.Totals(bg)
	if err != nil || totals.Waiting != len(stuck) || totals.Running == 0 || totals.Oldest.UnixMilli() != 1 || totals.Troubled < 3 || totals.Awaiting != 1 ||
		totals.Outbox < 2 || totals.Overdue.IsZero() || totals.Bytes < 4096 {
		t.Errorf("the totals are %+v (%v)", totals, err)
	}
}
