package handlers_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"semel/chat"
	"semel/handlers"
	"semel/views"
)

// A drill is a lab whose applications are numbers: what becomes of three steps is known.
type drill struct {
	begun, ended atomic.Int32 // runs
	steps        atomic.Int32 // that were done, in all runs
	broken       uint64       // the seed with which something does not hold in Semel; 0: none
	fails        bool         // it cannot run
}

const drillSteps = 3

func (*drill) Scenarios() []views.LabScenario {
	return []views.LabScenario{
		{Number: 1, Name: "drill", Title: "lab.network_retry.title", About: "lab.network_retry.about", Want: map[string]int{"answers": 1, "charges": 1},
			Steps: []string{"lab.step.click_lost", "lab.step.resend", "lab.step.look"}},
		{Number: 2, Name: "short", Title: "lab.storm.title", About: "lab.storm.about", Want: map[string]int{"answers": 1}, Steps: []string{"lab.step.click"}},
	}
}

func (*drill) Naive() string { return "package naive // its source <b>as it is</b>\n" }

func (l *drill) Run(ctx context.Context, r handlers.LabRun, emit func(views.LabEvent)) (res views.LabResult, err error) {
	l.begun.Add(1)
	defer l.ended.Add(1)
	if l.fails {
		return res, errors.New("no processes are left")
	}
	steps := map[string]int{"drill": drillSteps, "short": 1}[r.Scenario]
	for i := range steps {
		if i > 0 && r.Next != nil {
			select {
			case <-r.Next:
			case <-ctx.Done():
				return res, ctx.Err()
			}
		}
		if err := ctx.Err(); err != nil {
			return res, err
		}
		emit(views.LabEvent{Step: i})
		l.steps.Add(1)
		res.Boards = [views.LabLanes]views.LabBoard{{Clicks: 1, Arrivals: i + 1, Answers: i + 1, Charges: 1, Micros: 250}, {Clicks: 1, Arrivals: i + 1, Answers: 1, Charges: 1, Micros: 250}}
		for lane := range res.Boards {
			b := res.Boards[lane]
			emit(views.LabEvent{Step: i, Lane: lane, Say: views.LabSentence{Key: "lab.say.answered"}, Board: &b})
		}
	}
	res.Seed, res.Facts = r.Seed, "f00d"
	if steps > 1 {
		res.Damage = []string{"answers"}
	}
	if r.Seed == l.broken && l.broken != 0 {
		res.Broken = []string{"answers: 2, want 1"}
	}
	return res, nil
}

func (*drill) Report(scenario string, seed uint64, runs int, results []views.LabResult) (views.LabReport, error) {
	j, err := json.Marshal(map[string]any{"scenario": scenario, "seed": seed, "runs": runs, "results": len(results)})
	return views.LabReport{Semel: "v9", SQLite: "3.99", Go: "1.99", Digest: "d1635f", JSON: j}, err
}

func withLab(l handlers.Lab) func(*setup) { return func(s *setup) { s.handlers.Lab = l } }

// runs begins a run and returns its id.
func (d *door) runs(fields ...string) string {
	d.t.Helper()
	id := chat.NewID()
	d.form("/lab/runs", append([]string{"id", id, "scenario", "drill"}, fields...)...).wants(303).has("Location", "/lab/runs/"+id)
	return id
}

// stageOf returns the page of a run after everything has come to rest.
func (d *door) stageOf(id string) string {
	d.t.Helper()
	if d.listener != nil {
		synctest.Wait()
	}
	return string(d.get("/lab/runs/" + id).wants(200).body)
}

func (d *door) shows(page string, parts ...string) {
	d.t.Helper()
	for _, part := range parts {
		if !strings.Contains(page, part) {
			d.t.Errorf("the page does not have %q:\n%s", part, page)
		}
	}
}

func TestOnePressIsOneStepOfALabsRun(t *testing.T) {
	l := &drill{}
	inBubble(t, func(t *testing.T, d *door) {
		id := d.runs("do", "step", "seed", "7")
		d.shows(d.stageOf(id), `data-state="paused"`, "1 of 3", `name="at" value="0"`, `content="20; url=/lab/runs/`+id)
		time.Sleep(labTime)
		if got := l.steps.Load(); got != 1 {
			t.Fatalf("%d steps without a press", got)
		}
		for range 2 { // the second is a click too many: it saw the same step
			d.form("/lab/runs/"+id, "do", "next", "at", "0").wants(303)
			synctest.Wait()
		}
		d.shows(d.stageOf(id), "2 of 3", `name="at" value="1"`)
		if got := l.steps.Load(); got != 2 {
			t.Fatalf("%d steps after two presses at the first", got)
		}
		d.form("/lab/runs/"+id, "do", "next", "at", "1").wants(303)
		page := d.stageOf(id)
		d.shows(page, `data-state="ended"`, `data-good="good"`, "wrong about: answers stored.", "d1635f", "semel lab drill --runs 1 --seed 7")
		if strings.Contains(page, `http-equiv="refresh"`) {
			t.Error("the page of a run that has ended still reloads")
		}
	}, withLab(l))
}

// labTime is less than a run goes on that nobody looks at, and more than a step is shown.
const labTime = 50 * time.Second

func TestARunThatIsPlayedGoesOnByItselfUnlessPaused(t *testing.T) {
	l := &drill{}
	inBubble(t, func(t *testing.T, d *door) {
		id := d.runs("do", "play")
		steps := func(want int32) {
			t.Helper()
			synctest.Wait()
			if got := l.steps.Load(); got != want {
				t.Fatalf("%d steps, want %d", got, want)
			}
		}
		steps(1)
		d.form("/lab/runs/"+id, "do", "pause").wants(303)
		time.Sleep(labTime)
		steps(1)
		d.shows(d.stageOf(id), `data-state="paused"`)
		d.form("/lab/runs/"+id, "do", "play").wants(303)
		steps(2)
		time.Sleep(handlers.LabPace)
		steps(3)
		d.shows(d.stageOf(id), `data-state="ended"`)
	}, withLab(l))
}

func TestOneRunOfTheLabAtATime(t *testing.T) {
	l := &drill{}
	inBubble(t, func(t *testing.T, d *door) {
		id := d.runs("do", "step")
		d.form("/lab/runs", "id", id, "scenario", "drill", "do", "step").wants(303).has("Location", "/lab/runs/"+id)
		busy := d.form("/lab/runs?projector=1", "id", chat.NewID(), "scenario", "short", "do", "play").wants(409)
		d.shows(string(busy.body), `role="alert"`, "/lab/runs/"+id, "data-projector")
		synctest.Wait()
		if got := l.begun.Load(); got != 1 {
			t.Fatalf("%d runs have begun", got)
		}
		d.shows(string(d.get("/lab").wants(200).body), "/lab/runs/"+id)
		// The same link shows the run that is under way, another one an empty stage.
		d.shows(string(d.get("/lab/drill?seed=1&step=1").wants(200).body), `data-run="`+id)
		d.shows(string(d.get("/lab/drill?seed=2&step=1").wants(200).body), `data-run=""`)
		d.form("/lab/runs/"+id, "do", "stop").wants(303)
		if got := l.ended.Load(); got != 1 {
			t.Fatal("stop is answered before the run is gone")
		}
		d.shows(d.stageOf(id), `data-state="stopped"`)
		d.runs("do", "step")
	}, withLab(l))
}

func TestARestartIsTheSameRunAnewOnce(t *testing.T) {
	l := &drill{}
	inBubble(t, func(t *testing.T, d *door) {
		id, fresh := d.runs("do", "step", "seed", "5"), chat.NewID()
		for range 2 {
			d.form("/lab/runs/"+id, "do", "restart", "fresh", fresh).wants(303).has("Location", "/lab/runs/"+fresh)
		}
		d.shows(d.stageOf(id), `data-state="stopped"`)
		d.shows(d.stageOf(fresh), `data-state="paused"`, "Seed 5")
		if begun, ended := l.begun.Load(), l.ended.Load(); begun != 2 || ended != 1 {
			t.Errorf("%d runs have begun and %d have ended, want 2 and 1", begun, ended)
		}
	}, withLab(l))
}

func TestARunThatNobodyLooksAtEnds(t *testing.T) {
	l := &drill{}
	inBubble(t, func(t *testing.T, d *door) {
		id := d.runs("do", "step")
		for range 3 { // without scripts the page is looked at now and then
			time.Sleep(labTime)
			d.shows(d.stageOf(id), `data-state="paused"`)
		}
		watching := d.stream("/lab/runs/"+id+"/events", nil)
		go io.Copy(io.Discard, watching.res.Body)
		d.stageOf(id) // and somebody else looks once
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if l.ended.Load() != 0 {
			t.Fatal("the run has ended although somebody follows it")
		}
		watching.close()
		time.Sleep(handlers.LabLinger + time.Second)
		synctest.Wait()
		if l.ended.Load() != 1 {
			t.Fatal("the run goes on although nobody looks")
		}
	}, withLab(l))
}

func TestTheEndOfTheServerIsTheEndOfARun(t *testing.T) {
	l := &drill{}
	inBubble(t, func(t *testing.T, d *door) {
		d.runs("do", "step")
		d.handler.Close()
		if l.ended.Load() != 1 {
			t.Error("the run goes on")
		}
		d.form("/lab/runs", "id", chat.NewID(), "scenario", "drill", "do", "step").wants(503)
	}, withLab(l))
}

func TestTheStageIsStreamedUntilTheRunEnds(t *testing.T) {
	inBubble(t, func(t *testing.T, d *door) {
		id := d.runs("do", "step")
		synctest.Wait()
		f := d.stream("/lab/runs/"+id+"/events", nil, "Accept-Language", "zh-CN")
		var last struct {
			HTML, Said string
			Live       bool
		}
		var cursor string
		for at := 0; ; {
			e, ok := f.next()
			if !ok {
				break
			}
			if e.name == "" {
				continue // it is still here
			}
			e.into(t, &last)
			cursor = e.id
			if last.Live && last.Said != "" && at < 2 {
				d.form("/lab/runs/"+id, "do", "next", "at", fmt.Sprint(at)).wants(303)
				at++
			}
		}
		if last.Live || !strings.Contains(last.Said, "Semel 一切正确") || !strings.Contains(last.HTML, `id="stage-controls"`) {
			t.Errorf("the last event is %+v", last)
		}
		d.get("/lab/runs/"+id+"/events", "Last-Event-ID", cursor).wants(204)
		if e, ok := d.stream("/lab/runs/"+id+"/events", nil, "Last-Event-ID", "1").next(); !ok || e.id != cursor {
			t.Errorf("who has less gets %+v", e)
		}
	}, withLab(&drill{}))
}

func TestManyRunsAreCountedAndTheFailingSeedIsALink(t *testing.T) {
	inBubble(t, func(t *testing.T, d *door) {
		id := d.runs("do", "many", "runs", "5", "seed", "3")
		page := d.stageOf(id)
		d.shows(page, "5 of 5 runs", `value="5"`, "Semel was wrong in 1 of 5 runs, the naive application in 5.", `href="/lab/drill?seed=6&amp;step=1"`, "answers: 2, want 1",
			"5 things are wrong", "1 thing is wrong", "3 – 7", `href="/lab/runs/`+id+`/report.json"`)
		d.get("/lab/runs/"+id+"/report.json").wants(200).has("Content-Disposition", `attachment; filename="semel-lab-drill.json"`)
	}, withLab(&drill{broken: 6}))
}

func TestARunThatCannotRunSaysNothingAboutEither(t *testing.T) {
	var log bytes.Buffer
	inBubble(t, func(t *testing.T, d *door) {
		id := d.runs("do", "play")
		d.shows(d.stageOf(id), `data-state="failed"`, `data-good="open"`)
		d.get("/lab/runs/" + id + "/report.json").wants(404)
		if !strings.Contains(log.String(), "no processes are left") {
			t.Errorf("the log says %q", log.String())
		}
	}, withLab(&drill{fails: true}), func(s *setup) { s.handlers.Log = slog.New(slog.NewTextHandler(&log, nil)) })
}

func TestWhatTheLabCannotRunIsRefused(t *testing.T) {
	t.Parallel()
	d := openDoor(t, withLab(&drill{}))
	for _, path := range []string{"/lab/drill?seed=-1", "/lab/drill?seed=99999999999999999999", "/lab/drill?runs=0", "/lab/drill?runs=1001", "/lab/drill?runs=x"} {
		d.get(path).wants(400)
	}
	d.get("/lab/nothing").wants(404)
	for _, path := range []string{"", "/events", "/report.json"} {
		d.get("/lab/runs/" + chat.NewID() + path).wants(404)
	}
	d.form("/lab/runs", "id", "!", "scenario", "drill", "do", "play").wants(400)
	d.form("/lab/runs", "id", chat.NewID(), "scenario", "drill", "do", "dance").wants(400)
	d.form("/lab/runs", "id", chat.NewID(), "scenario", "dance", "do", "play").wants(404)
	d.form("/lab/runs/"+chat.NewID(), "do", "stop").wants(404)
	d.form("/lab/runs/"+chat.NewID(), "do", "dance").wants(400)
	d.form("/lab/runs/"+chat.NewID(), "do", "next", "at", "").wants(400)
	if got := d.get("/lab/naive").wants(200).has("Content-Type", "text/plain; charset=utf-8"); string(got.body) != (&drill{}).Naive() {
		t.Errorf("the source is %q", got.body)
	}
}

func TestALabThatIsOffStartsNothing(t *testing.T) {
	t.Parallel()
	d := openDoor(t, withLab(nil))
	for _, path := range []string{"/lab", "/lab/naive", "/lab/drill", "/lab/runs/" + chat.NewID()} {
		d.shows(string(d.get(path).wants(403).body), "enabled = &#34;on&#34;")
	}
	d.form("/lab/runs", "id", chat.NewID(), "scenario", "drill", "do", "play").wants(403)
	if strings.Contains(string(d.get("/").wants(200).body), `href="/lab"`) {
		t.Error("the list at the side leads there")
	}
}
