package chat

import (
	"strconv"
	"strings"
)

// MessageID names a message outside: its conversation and its number there. It
// survives export and import, and needs no index of its own.
func MessageID(sessionID string, seq int64) string {
	if seq == 0 {
		return ""
	}
	return sessionID + "." + strconv.FormatInt(seq, 10)
}

// ParseMessageID returns the number inside id, and whether id names a message of
// that conversation.
func ParseMessageID(sessionID, id string) (int64, bool) {
	rest, ok := strings.CutPrefix(id, sessionID+".")
	if !ok {
		return 0, false
	}
	seq, err := strconv.ParseInt(rest, 10, 64)
	if err != nil || seq <= 0 || strconv.FormatInt(seq, 10) != rest {
		return 0, false
	}
	return seq, true
}
