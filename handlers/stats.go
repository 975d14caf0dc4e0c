package handlers

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"

	"semel/chat"
	"semel/ops"
)

// getStats tells how the program is doing. minutes says how far back the series goes, an
// hour without it, and step how many minutes are a point.
func (s *server) getStats(w http.ResponseWriter, r *http.Request) error {
	over, err := statsRange(r)
	if err != nil {
		return err
	}
	st, err := s.Ops.Stats(r.Context(), over)
	if err != nil {
		return err
	}
	s.writeJSON(w, http.StatusOK, st)
	return nil
}

func statsRange(r *http.Request) (ops.Range, error) {
	over := ops.Usual
	for _, p := range []struct {
		name string
		at   *int
		most int
	}{{"minutes", &over.Minutes, ops.Most.Minutes}, {"step", &over.Step, ops.Most.Step}} {
		v := r.URL.Query().Get(p.name)
		if v == "" {
			continue
		}
		n, err := strconv.Atoi(v)
		if err != nil || n < 1 || n > p.most {
			return over, badRequest(fmt.Sprintf("%s goes from 1 to %d.", p.name, p.most))
		}
		*p.at = n
	}
	return over, nil
}

// getMetrics is what is measured, for Prometheus.
func (s *server) getMetrics(w http.ResponseWriter, r *http.Request) error {
	var out bytes.Buffer
	if err := s.Ops.WriteMetrics(r.Context(), &out); err != nil {
		return err
	}
	send(w, http.StatusOK, ops.MetricsType, out.Bytes())
	return nil
}

// postVerify runs every invariant now and returns each with what it found. One runs at a
// time: it reads the whole file.
func (s *server) postVerify(w http.ResponseWriter, r *http.Request) error {
	checks, err := s.Ops.Verify(r.Context(), false)
	switch {
	case errors.Is(err, ops.ErrVerifying):
		return refuse(http.StatusConflict, "verifying", chat.RetrySameID, "A check is running already. Ask again when it has ended.")
	case errors.Is(err, context.Canceled):
		return errHangUp
	case err != nil:
		return err
	}
	type check struct {
		ID         string   `json:"id"`
		Name       string   `json:"name"`
		Violations int64    `json:"violations"`
		Samples    []string `json:"samples"`
		TookMS     int64    `json:"tookMs"`
	}
	out := struct {
		OK     bool    `json:"ok"`
		Checks []check `json:"checks"`
	}{OK: true, Checks: []check{}}
	for _, c := range checks {
		out.OK = out.OK && c.Count == 0
		samples := c.Samples
		if samples == nil {
			samples = []string{}
		}
		out.Checks = append(out.Checks, check{c.ID, c.Name, c.Count, samples, c.Took.Milliseconds()})
	}
	s.writeJSON(w, http.StatusOK, out)
	return nil
}
