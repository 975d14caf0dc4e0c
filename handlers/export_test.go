package handlers

import (
	"io"
	"net/http"
	"time"

	"semel/db"
)

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

// ParseConversation is the parser of an imported conversation.
func ParseConversation(raw []byte, now time.Time) (db.Archive, error) {
	return conversationParser{maxText: 262144, now: now}.parse(raw)
}

// ReadConversations reads a file as an import does.
func ReadConversations(file io.Reader, each func([]byte) error) error {
	return readConversations(file, each)
}

// ExportJSON is an archive as a file has it.
func ExportJSON(a db.Archive) []byte { return encode(archiveOf(a)) }

// The limits of an import.
const (
	ImportMessages          = importMessages
	ImportConversations     = importConversations
	ImportConversationBytes = importConversationBytes
	ImportDepth             = importDepth
)
