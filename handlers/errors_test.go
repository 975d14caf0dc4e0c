package handlers

import (
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"

	"semel/chat"
)

func TestWhatNobodyForesawNeverEndsAQuestion(t *testing.T) {
	s := &server{Options: Options{Log: slog.New(slog.DiscardHandler)}}
	for _, tt := range []struct {
		method, path string
		status       int
	}{
		{http.MethodPost, "/api/chat", http.StatusServiceUnavailable},
		{http.MethodGet, "/api/chat/status/x", http.StatusInternalServerError},
		{http.MethodGet, "/c/x", http.StatusInternalServerError},
	} {
		p := s.told(httptest.NewRequest(tt.method, tt.path, nil), errors.New("unforeseen"))
		if p.Status != tt.status || p.Retry != chat.RetrySameID {
			t.Errorf("%s %s: got %d %s, want %d same-id", tt.method, tt.path, p.Status, p.Retry, tt.status)
		}
	}
}
