package main

import (
	"strings"
	"testing"
)

const configured = `{"config":{"go_version":"go1.26.8"}}`

func TestOnlyACalledFunctionOfAModuleFails(t *testing.T) {
	for _, tt := range []struct {
		finding string
		failed  bool
		line    string
	}{
		{`{"osv":"GO-1","trace":[{"module":"example.org/m","version":"v1.0.0","function":"F"}]}`, true, "CALLED"},
		{`{"osv":"GO-1","trace":[{"module":"example.org/m","version":"v1.0.0"}]}`, false, "present, not called"},
		{`{"osv":"GO-1","trace":[{"module":"stdlib","version":"v1.26.8","function":"F"}]}`, false, "Go itself"},
	} {
		var out strings.Builder
		failed, err := report(strings.NewReader(configured+`{"osv":{"id":"GO-1","summary":"bad"}}{"finding":`+tt.finding+`}`), &out)
		if failed != tt.failed || err != nil || !strings.Contains(out.String(), tt.line) || !strings.Contains(out.String(), "bad") {
			t.Errorf("%s: got %v, %v, %q", tt.finding, failed, err, out.String())
		}
	}
}

func TestWhatIsNoReportIsAnError(t *testing.T) {
	for _, in := range []string{"", "{}", "not JSON", configured + `{"finding":`} {
		if _, err := report(strings.NewReader(in), &strings.Builder{}); err == nil {
			t.Errorf("%q: got no error", in)
		}
	}
}
