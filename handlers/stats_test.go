package handlers_test

import (
	"database/sql"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"semel/chat"
	"semel/db/dbtest"
	"semel/llm"
	"semel/ops"
)

func (d *door) stats(query string) (s ops.Stats) {
	d.t.Helper()
	d.get("/api/ops/stats" + query).wants(200).into(&s)
	return s
}

// execSQL changes a database file behind its server's back.
func execSQL(t *testing.T, file, statements string) {
	t.Helper()
	c, err := sql.Open("sqlite", file+"?_pragma=busy_timeout(5000)")
	if err != nil {
		t.Fatal(err)
	}
	_, err = c.Exec(statements)
	if err := errors.Join(err, c.Close()); err != nil {
		t.Fatal(err)
	}
}

// trigger returns what makes a trigger of the file again.
func trigger(t *testing.T, file, name string) (text string) {
	t.Helper()
	c, err := sql.Open("sqlite", file+"?_pragma=busy_timeout(5000)")
	if err == nil {
		err = c.QueryRow(`SELECT sql || ';' FROM sqlite_schema WHERE name = ?`, name).Scan(&text)
	}
	if err := errors.Join(err, c.Close()); err != nil {
		t.Fatal(err)
	}
	return text
}

func TestStatsCountWhatHappensAndSurviveARestart(t *testing.T) {
	file := filepath.Join(t.TempDir(), "kept.db")
	if err := os.WriteFile(file, emptyFile(), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Run("at work", func(t *testing.T) {
		d := openDoor(t, func(s *setup) {
			s.file, s.ops.Rules = file, []ops.Rule{{On: ops.OnDiskFree, Threshold: 1, Below: true}}
		})
		session, id, rec := d.answered("[[echo yes]]")
		ask := map[string]any{"sessionId": session, "requestId": id, "content": "[[echo yes]]"}
		d.post("/api/chat", ask).wants(200)
		d.post("/api/chat", ask).wants(200)
		ask["content"] = "other words"
		d.post("/api/chat", ask).wants(422)
		d.answered("[[echo no]]")
		if err := d.engine.FlushArrivals(t.Context()); err != nil {
			t.Fatal(err)
		}
		s := d.stats("")
		want := ops.Sums{
			Intents: 2, Replayed: 2, Conflicts: 1, ModelCalls: 2, Answers: 2, Charges: 2,
			Charged: s.Total.Charged, Saved: chat.Money{Currency: "USD", Micros: 2 * rec.Cost.Micros},
		}
		if s.Total != want || s.Total.Charged.Micros <= rec.Cost.Micros {
			t.Errorf("of the whole file: %+v, want %+v", s.Total, want)
		}
		if l := s.Life; l.ModelCalls != 2 || l.Arrivals[chat.DecisionReplayed] != 2 || l.Arrivals[chat.DecisionFirst] != 2 || l.Arrivals[chat.DecisionConflict] != 1 ||
			l.Refused["key_reused"] != 1 || l.Attempts[chat.OutcomeOK] != 2 || l.Charges != 2 || l.Charged != s.Total.Charged {
			t.Errorf("of this life: %+v", l)
		}
		if s.HitRate == nil || *s.HitRate != 0.4 || s.ArrivalsPerMinute != 5 {
			t.Errorf("hit rate %v, arrivals a minute %v, want 2 of 5, and 5", s.HitRate, s.ArrivalsPerMinute)
		}
		if s.Lamps.Calls != (ops.Lamp{State: ops.LampOK, Left: 2, Right: 2}) || s.Lamps.Charges != (ops.Lamp{State: ops.LampOK, Left: 2, Right: 2}) {
			t.Errorf("lamps: %+v", s.Lamps)
		}
		if len(s.Series.Points) != 60 || s.Latency.Answers != 2 || s.Latency.TotalP95 < s.Latency.TotalP50 {
			t.Errorf("%d points; latency %+v", len(s.Series.Points), s.Latency)
		}
		var all ops.Point
		for _, p := range s.Series.Points {
			all.Intents += p.Intents
			all.Replayed += p.Replayed
			all.Charges += p.Charges
		}
		if all.Intents != 2 || all.Replayed != 2 || all.Charges != 2 {
			t.Errorf("the series adds up to %+v", all)
		}
		if s.Backup != nil || s.Disk.Free == 0 || s.Disk.Trouble != "" || s.Database.Bytes == 0 || s.Check.At.Unix() > 0 || len(s.Alerts) != 1 || s.Alerts[0].Firing || s.Epoch != 1 {
			t.Errorf("stats: %+v", s)
		}
	})
	t.Run("after a restart", func(t *testing.T) {
		d := openDoor(t, func(s *setup) { s.file = file })
		s := d.stats("?minutes=120&step=30")
		if s.Total.Intents != 2 || s.Total.Replayed != 2 || s.Total.Saved.Micros == 0 || s.Life.ModelCalls != 0 || len(s.Series.Points) != 4 {
			t.Errorf("after a restart: %+v", s)
		}
		if s.Lamps.Calls != (ops.Lamp{State: ops.LampOK}) || s.Lamps.Charges.State != ops.LampOK {
			t.Errorf("lamps after a restart: %+v", s.Lamps)
		}
		for _, q := range []string{"?minutes=0", "?minutes=1441", "?step=x"} {
			d.get("/api/ops/stats" + q).wants(400)
		}
	})
}

// A call that no attempt allowed turns the lamp red at once, and for good.
func TestTheLampGoesRedWhenAModelIsCalledWithoutARow(t *testing.T) {
	d := openDoor(t)
	d.answered("[[echo yes]]")
	past := llm.Call{RequestID: chat.NewID(), Attempt: 1, Turns: []llm.Turn{{Role: "user", Content: "[[echo past the engine]]"}}}
	if _, err := d.demo.Stream(t.Context(), past, func(llm.Piece) {}); err != nil {
		t.Fatal(err)
	}
	d.answered("[[echo no]]")
	if l := d.stats("").Lamps; l.Calls != (ops.Lamp{State: ops.LampBroken, Left: 3, Right: 2}) || l.Charges.State != ops.LampOK {
		t.Errorf("lamps: %+v", l)
	}
}

// So does a row that nothing was called for.
func TestTheLampGoesRedWhenARowHasNoCall(t *testing.T) {
	d := openDoor(t)
	d.answered("[[echo yes]]")
	r, _ := dbtest.Claim(t, d.db, dbtest.Accept(t, d.db, "session-1", "past the engine"))
	if l := d.stats("").Lamps.Calls; l.State != ops.LampBroken || l.Left != 1 || l.Right != 2 {
		t.Errorf("lamp: %+v", l)
	}
	dbtest.Fail(t, d.db, r, "")
}

func TestTheLampGoesRedWhenAChargeIsMissing(t *testing.T) {
	d := openDoor(t)
	_, id, _ := d.answered("[[echo yes]]")
	d.answered("[[echo no]]")
	take := `DROP TRIGGER ledger_no_delete; CREATE TABLE gone AS SELECT * FROM ledger; DELETE FROM ledger WHERE request_id = (SELECT id FROM requests WHERE request_id = '` + id + `');`
	back := `INSERT OR IGNORE INTO ledger SELECT * FROM gone; DROP TABLE gone; UPDATE instance SET charges = c.n, charged_micros = c.micros
		FROM (SELECT count(*) AS n, sum(micros) AS micros FROM ledger) c; ` + trigger(t, d.file, "ledger_no_delete")
	execSQL(t, d.file, take)
	if l := d.stats("").Lamps.Charges; l != (ops.Lamp{State: ops.LampBroken, Left: 1, Right: 2}) {
		t.Errorf("lamp: %+v", l)
	}
	execSQL(t, d.file, back)
	if l := d.stats("").Lamps.Charges; l != (ops.Lamp{State: ops.LampOK, Left: 2, Right: 2}) {
		t.Errorf("the charge is back: %+v", l)
	}
	// Past the counts too: only a look at every row finds it, and the lamp keeps that.
	uncounted := trigger(t, d.file, "ledger_uncounted")
	execSQL(t, d.file, `DROP TRIGGER ledger_uncounted; `+take+uncounted)
	if l := d.stats("").Lamps.Charges; l.State != ops.LampOK {
		t.Errorf("before the check: %+v", l)
	}
	d.post("/api/ops/verify", nil).wants(200)
	s := d.stats("")
	if s.Lamps.Charges.State != ops.LampBroken || s.Check.Violations == 0 || !strings.Contains(strings.Join(s.Check.Violated, " "), "I23") {
		t.Errorf("after the check: lamp %+v, check %+v", s.Lamps.Charges, s.Check)
	}
	if page := string(d.get("/ops").wants(200).body); !strings.Contains(page, "the check found other numbers in the rows") || strings.Contains(page, "2 ≠ 2") {
		t.Error("the page says that a number is not equal to itself")
	}
	execSQL(t, d.file, back)
}

func TestMetricsAreServedForPrometheus(t *testing.T) {
	d := openDoor(t)
	d.answered("[[echo yes]]")
	r := d.get("/metrics").wants(200).has("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
	for _, line := range []string{`semel_arrivals_total{decision="first"} 1`, `semel_model_calls_total 1`, `semel_lamp_ok{lamp="calls"} 1`, `semel_answer_seconds_count 1`} {
		if !strings.Contains(string(r.body), line+"\n") {
			t.Errorf("the metrics do not say %s", line)
		}
	}
}

func TestAServerWithoutRoomOnItsDiskIsNotReady(t *testing.T) {
	trouble := ""
	d := openDoor(t, func(s *setup) { s.ops.Disk = func() ops.Disk { return ops.Disk{Trouble: trouble} } })
	d.get("/readyz").wants(200)
	trouble = "the disk of the database is full"
	if p := d.get("/readyz").wants(503); !strings.Contains(string(p.body), trouble) {
		t.Errorf("not ready: %s", p.body)
	}
}

// However many ask, and whenever somebody looks, no lamp is ever red.
func TestNoLampIsEverRedUnderLoad(t *testing.T) {
	d := openDoor(t)
	done := make(chan struct{})
	var looks, ended sync.WaitGroup
	looks.Go(func() {
		for {
			select {
			case <-done:
				return
			default:
			}
			l, err := d.ops.Lamps(t.Context())
			if err != nil || l.Calls.State == ops.LampBroken || l.Charges.State == ops.LampBroken {
				t.Errorf("lamps under load: %+v, %v", l, err)
				return
			}
		}
	})
	for range 8 {
		ended.Go(func() {
			for range 5 {
				d.answered("[[echo yes]]")
			}
		})
	}
	ended.Wait()
	close(done)
	looks.Wait()
	if l := d.stats("").Lamps; l.Calls != (ops.Lamp{State: ops.LampOK, Left: 40, Right: 40}) || l.Charges != (ops.Lamp{State: ops.LampOK, Left: 40, Right: 40}) {
		t.Errorf("lamps after it: %+v", l)
	}
}
