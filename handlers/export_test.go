package handlers

import "net/http"

// For tests of what reads bytes from outside.

func (s *Server) RequestID(r *http.Request, body string) (string, error) {
	return s.s.requestID(r, body)
}

func ParseCursor(id string) (attempt int64, offset int) {
	c := parseCursor(id)
	return c.attempt, c.offset
}

// Around is a handler behind what is around all of them.
func (s *Server) Around(h http.Handler) http.Handler {
	return s.s.trace(s.s.recovered(s.s.headers(h)))
}
