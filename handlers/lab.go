package handlers

import (
	"bytes"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/go-chi/chi/v5"

	"semel/chat"
	"semel/static"
	"semel/views"
)

// labRoutes are the lab. It starts programs, so it is there only where main says so.
func (s *server) labRoutes(r chi.Router) {
	r.Get("/lab", s.page(s.getLab))
	r.Get("/lab/naive", s.page(s.getNaive))
	r.Get("/lab/{scenario}", s.page(s.getScenario))
	r.Post("/lab/runs", s.page(s.postRun))
	r.Get("/lab/runs/{runID}", s.page(s.getRun))
	r.Post("/lab/runs/{runID}", s.page(s.postSteer))
	r.Get("/lab/runs/{runID}/events", s.handle(s.getRunEvents))
	r.Get("/lab/runs/{runID}/report.json", s.handle(s.getRunReport))
}

// theLab returns the runs of this process, and refuses where there is no lab.
func (s *server) theLab() (*labRuns, error) {
	if s.Lab == nil {
		return nil, refuse(http.StatusForbidden, "lab_off", chat.RetryNever, `The lab starts programs and is off on this server; [lab] enabled = "on" switches it on.`)
	}
	return &s.labs, nil
}

func (s *server) getLab(w http.ResponseWriter, r *http.Request) error {
	l, err := s.theLab()
	if err != nil {
		return err
	}
	p := views.LabListPage{Scenarios: s.Lab.Scenarios(), Current: l.underWay()}
	if p.Frame, err = s.framed(r); err != nil {
		return err
	}
	return s.writePage(w, r, http.StatusOK, views.LabList(p))
}

// framed is the frame with the list at the side.
func (s *server) framed(r *http.Request) (f views.Frame, err error) {
	f = s.frame(r)
	f.Side, err = s.side(r)
	return f, err
}

// getNaive is the source of the naive application, as it is.
func (s *server) getNaive(w http.ResponseWriter, _ *http.Request) error {
	if _, err := s.theLab(); err != nil {
		return err
	}
	send(w, http.StatusOK, "text/plain", []byte(s.Lab.Naive()))
	return nil
}

// scenario returns the scenario of that name.
func (s *server) scenario(name string) (views.LabScenario, error) {
	list := s.Lab.Scenarios()
	i := slices.IndexFunc(list, func(c views.LabScenario) bool { return c.Name == name })
	if i < 0 {
		return views.LabScenario{}, refuse(http.StatusNotFound, "not_found", chat.RetryNever, "There is no such scenario.")
	}
	return list[i], nil
}

// A labAsk is what a permalink or a form asks for.
type labAsk struct {
	seed uint64
	runs int
	step bool
}

func parseLabAsk(get func(string) string) (a labAsk, err error) {
	a = labAsk{seed: 1, runs: 1, step: get("step") == "1"}
	if v := get("seed"); v != "" {
		if a.seed, err = strconv.ParseUint(v, 10, 63); err != nil {
			return a, badRequest("seed is a whole number from 0 to 9223372036854775807.")
		}
	}
	if v := get("runs"); v != "" {
		if a.runs, err = strconv.Atoi(v); err != nil || a.runs < 1 || a.runs > labRunsMost {
			return a, badRequest("runs goes from 1 to " + strconv.Itoa(labRunsMost) + ".")
		}
	}
	return a, nil
}

// getScenario is the stage of one scenario, under the address that brings the same run
// back. When just that run is under way, it is shown.
func (s *server) getScenario(w http.ResponseWriter, r *http.Request) error {
	l, err := s.theLab()
	if err != nil {
		return err
	}
	c, err := s.scenario(chi.URLParam(r, "scenario"))
	if err != nil {
		return err
	}
	a, err := parseLabAsk(r.URL.Query().Get)
	if err != nil {
		return err
	}
	run := l.underWay()
	if run != nil && (run.Scenario != c.Name || run.Seed != a.seed || run.Runs != a.runs) {
		run = nil
	}
	return s.stage(w, r, http.StatusOK, c, a, run, nil)
}

// stage writes the page of a scenario.
func (s *server) stage(w http.ResponseWriter, r *http.Request, status int, c views.LabScenario, a labAsk, run *views.LabRun, problem *chat.Problem) error {
	p := s.stagePage(r, c, a, run)
	var err error
	if p.Frame, err = s.framed(r); err != nil {
		return err
	}
	if p.Problem = problem; problem != nil && problem.Code == "lab_busy" {
		p.Busy = s.labs.underWay()
	}
	return s.writePage(w, r, status, views.Lab(p))
}

func (s *server) stagePage(r *http.Request, c views.LabScenario, a labAsk, run *views.LabRun) views.LabPage {
	if run != nil {
		a = labAsk{run.Seed, run.Runs, run.Step}
	}
	return views.LabPage{
		Script: static.URL("lab.js"), Currency: s.Currency, Scenario: c, Of: len(s.Lab.Scenarios()), Seed: a.seed, Runs: a.runs, Step: a.step,
		Projector: r.URL.Query().Get("projector") == "1", Fresh: chat.NewID(), Run: run,
	}
}

// postRun begins a run. Its id was minted with the page: a second click is the same run.
func (s *server) postRun(w http.ResponseWriter, r *http.Request) error {
	l, err := s.theLab()
	if err != nil {
		return err
	}
	form, err := s.readForm(w, r)
	if err != nil {
		return err
	}
	id, err := chat.ParseID(form.Get("id"))
	if err != nil {
		return badRequest("id: a run needs one.")
	}
	c, err := s.scenario(form.Get("scenario"))
	if err != nil {
		return err
	}
	a, err := parseLabAsk(form.Get)
	if err != nil {
		return err
	}
	switch form.Get("do") {
	case "many":
		a.step = false
	case "play", "step":
		a.runs, a.step = 1, form.Get("do") == "step"
	default:
		return badRequest("do is play, step or many.")
	}
	run, err := l.begin(c, views.LabRun{ID: id, Scenario: c.Name, Seed: a.seed, Runs: a.runs, Step: a.step})
	if p := (*chat.Problem)(nil); errors.As(err, &p) && p.Code == "lab_busy" {
		return s.stage(w, r, p.Status, c, a, nil, s.told(r, err))
	}
	if err != nil {
		return err
	}
	s.toRun(w, r, run.ID)
	return nil
}

// toRun leads to the page of a run.
func (s *server) toRun(w http.ResponseWriter, r *http.Request, id string) {
	to := "/lab/runs/" + id
	if r.URL.Query().Get("projector") == "1" {
		to += "?projector=1"
	}
	http.Redirect(w, r, to, http.StatusSeeOther)
}

// getRun is the stage with a run, and its report when it has ended.
func (s *server) getRun(w http.ResponseWriter, r *http.Request) error {
	l, err := s.theLab()
	if err != nil {
		return err
	}
	run, err := l.look(chi.URLParam(r, "runID"))
	if err != nil {
		return err
	}
	c, err := s.scenario(run.Scenario)
	if err != nil {
		return err
	}
	return s.stage(w, r, http.StatusOK, c, labAsk{}, &run, nil)
}

// postSteer does what a button of a run says.
func (s *server) postSteer(w http.ResponseWriter, r *http.Request) error {
	l, err := s.theLab()
	if err != nil {
		return err
	}
	form, err := s.readForm(w, r)
	if err != nil {
		return err
	}
	id, do := chi.URLParam(r, "runID"), form.Get("do")
	at, err := strconv.Atoi(form.Get("at"))
	if err != nil && do == "next" {
		return badRequest("at is the step that was seen.")
	}
	switch do {
	case "next", "play", "pause", "stop":
		if err := l.steer(r.Context(), id, do, at); err != nil {
			return err
		}
	case "restart":
		fresh, err := chat.ParseID(form.Get("fresh"))
		if err != nil {
			return badRequest("fresh: the new run needs an id.")
		}
		if id, err = s.restart(r, l, id, fresh); err != nil {
			return err
		}
	default:
		return badRequest("do is next, play, pause, stop or restart.")
	}
	s.toRun(w, r, id)
	return nil
}

// restart ends a run and begins the same anew.
func (s *server) restart(r *http.Request, l *labRuns, id, fresh string) (string, error) {
	old, err := l.look(id)
	if err != nil {
		return "", err
	}
	c, err := s.scenario(old.Scenario)
	if err != nil {
		return "", err
	}
	if err := l.steer(r.Context(), id, "stop", 0); err != nil {
		return "", err
	}
	run, err := l.begin(c, views.LabRun{ID: fresh, Scenario: old.Scenario, Seed: old.Seed, Runs: old.Runs, Step: old.Step})
	return run.ID, err
}

// getRunReport is the report of a run for programs and archives.
func (s *server) getRunReport(w http.ResponseWriter, r *http.Request) error {
	l, err := s.theLab()
	if err != nil {
		return err
	}
	run, err := l.look(chi.URLParam(r, "runID"))
	if err != nil {
		return err
	}
	if run.State != views.LabEnded {
		return refuse(http.StatusNotFound, "not_found", chat.RetrySameID, "Only a run that has ended has a report.")
	}
	w.Header().Set("Content-Disposition", `attachment; filename="semel-lab-`+run.Scenario+`.json"`)
	send(w, http.StatusOK, "application/json", run.Report.JSON)
	return nil
}

// getRunEvents is the stage of a run each time it changes, until it has ended.
func (s *server) getRunEvents(w http.ResponseWriter, r *http.Request) error {
	l, err := s.theLab()
	if err != nil {
		return err
	}
	next, leave, err := l.watch(chi.URLParam(r, "runID"))
	if err != nil {
		return err
	}
	defer leave()
	run, changed := next()
	c, err := s.scenario(run.Scenario)
	if err != nil {
		return err
	}
	if !run.Live() && r.Header.Get("Last-Event-ID") == strconv.Itoa(run.Version) {
		w.WriteHeader(http.StatusNoContent) // an EventSource stops at this
		return nil
	}
	h := w.Header()
	h.Set("Content-Type", "text/event-stream; charset=utf-8")
	h.Set("Cache-Control", "no-store, no-transform")
	h.Set("X-Accel-Buffering", "no")
	w.WriteHeader(http.StatusOK)
	if r.Method == http.MethodHead {
		return nil
	}
	rc := http.NewResponseController(w)
	frame := s.frame(r)
	comment := time.NewTicker(commentEvery)
	defer comment.Stop()
	for write := true; ; {
		var out []byte
		if write {
			p := s.stagePage(r, c, labAsk{}, &run)
			p.Frame = frame
			if out, err = stageEvent(r, p); err != nil {
				s.Log.Error("the stage of the lab cannot be drawn", "trace_id", traceID(r), "error", err)
				return errHangUp
			}
		} else {
			out = []byte(": still here\n\n")
		}
		_ = rc.SetWriteDeadline(time.Now().Add(writeTimeout)) // recorders in tests have none
		if _, err := w.Write(out); err != nil {
			return errHangUp
		}
		if err := rc.Flush(); err != nil {
			return errHangUp
		}
		if !run.Live() {
			return nil
		}
		select {
		case <-changed:
			run, changed = next()
			write = true
		case <-comment.C:
			write = false
		case <-r.Context().Done():
			return errHangUp
		case <-s.closing:
			return errHangUp
		}
	}
}

// stageEvent is the stage as an event of a stream.
func stageEvent(r *http.Request, p views.LabPage) ([]byte, error) {
	var html bytes.Buffer
	if err := views.LabStage(p).Render(r.Context(), &html); err != nil {
		return nil, err
	}
	return appendEvent(nil, "stage", strconv.Itoa(p.Run.Version), map[string]any{"html": html.String(), "said": p.Said(), "live": p.Run.Live()}), nil
}
