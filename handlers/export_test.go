package handlers

import (
	"io"
	"net/http"
	"time"

	"semel/db"
	"semel/views"
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

// What the lab waits for.
const (
	LabPace   = labPace
	LabLinger = labLinger
)

// RunLab is a run of the lab that has ended, the same each time.
func (s *Server) RunLab(scenario string) (id string) {
	l := &s.s.labs
	_, err := l.begin(views.LabScenario{Name: scenario}, views.LabRun{ID: "01JDWABCDEFGHJKMNPQRSTVWXY", Scenario: scenario, Seed: 1, Runs: 1})
	if err != nil {
		panic(err)
	}
	l.ended.Wait()
	return l.runs[0].ID
}

// The limits of an import.
const (
	ImportMessages          = importMessages
	ImportConversations     = importConversations
	ImportConversationBytes = importConversationBytes
	ImportDepth             = importDepth
)
