package lab

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// asked sends a question through p and returns what came back of the body.
func asked(p *proxy, path string) (status int, body string, err error) {
	c := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	res, err := c.Post(p.srv.URL+path, "text/plain", strings.NewReader("question"))
	if err != nil {
		return 0, "", err
	}
	b, err := io.ReadAll(res.Body)
	return res.StatusCode, string(b), errors.Join(err, res.Body.Close())
}

func TestProxy(t *testing.T) {
	heard := 0
	app := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		heard++
		if r.Header.Get("X-Refuse") != "" || r.URL.Query().Has("refuse") {
			http.Error(w, "refused", http.StatusBadRequest)
			return
		}
		io.WriteString(w, "an answer of some length")
	}))
	defer app.Close()
	p := newProxy()
	defer p.close()

	if _, _, err := asked(p, "/api/chat"); err == nil || p.arrived() != 0 {
		t.Errorf("nobody is there: %v, %d arrived", err, p.arrived())
	}
	p.setUpstream(strings.TrimPrefix(app.URL, "http://"))
	if status, body, err := asked(p, "/api/chat"); status != 200 || body != "an answer of some length" || err != nil {
		t.Errorf("no fault: %d %q %v", status, body, err)
	}
	for _, f := range []fault{{cut: 0}, {cut: 20}, {cut: 20, reset: true}, {cut: 130}, {cut: 100_000}} {
		before := heard
		p.arm(f)
		if status, _, err := asked(p, "/api/chat?refuse"); status != 400 || err != nil {
			t.Errorf("%+v: a refusal brings no answer, and was lost: %d %v", f, status, err)
		}
		if status, _, err := asked(p, "/other"); status != 200 || err != nil {
			t.Errorf("%+v: what is no question was lost: %d %v", f, status, err)
		}
		if status, body, err := asked(p, "/api/chat"); err == nil {
			t.Errorf("%+v: the client has %d %q", f, status, body)
		}
		if status, _, err := asked(p, "/api/chat"); status != 200 || err != nil {
			t.Errorf("%+v: a fault happened twice: %d %v", f, status, err)
		}
		if heard != before+4 {
			t.Errorf("%+v: the application heard %d of 4", f, heard-before)
		}
	}
	if got := p.arrived(); got != 16 {
		t.Errorf("%d questions arrived, want 16", got)
	}

	reached := p.keepCallbacks()
	done := make(chan int)
	go func() {
		status, _, _ := asked(p, "/callbacks/x")
		done <- status
	}()
	<-reached
	select {
	case status := <-done:
		t.Errorf("a callback passed: %d", status)
	default:
	}
	p.releaseCallbacks()
	if status := <-done; status != 200 {
		t.Errorf("a callback that was let go: %d", status)
	}
}
