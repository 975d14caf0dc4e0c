package chat

import (
	"fmt"
	"strings"
	"time"

	"github.com/oklog/ulid/v2"
)

// MaxIDLength is the longest request or session id.
const MaxIDLength = 64

// ParseID returns the canonical form of a request or session id: a ULID in upper
// case, a UUID in lower case, or 8 to 64 letters, digits and ". _ : -" as they
// are (contract, section 1). Anything else is an error that says what is wrong.
func ParseID(s string) (string, error) {
	if len(s) < 8 || len(s) > MaxIDLength {
		return "", fmt.Errorf("an id has 8 to %d characters, this one has %d", MaxIDLength, len(s))
	}
	for i := range len(s) {
		if !idByte(s[i]) {
			return "", fmt.Errorf("an id consists of letters, digits and . _ : - only; character %d is another", i+1)
		}
	}
	if isULIDShaped(s) {
		u := strings.ToUpper(s)
		if u[0] > '7' {
			return "", fmt.Errorf("this ULID is larger than any time: it must start with 0 to 7")
		}
		return u, nil
	}
	if isUUIDShaped(s) {
		return strings.ToLower(s), nil
	}
	return s, nil
}

// IDTime returns the time inside a canonical ULID, and whether id is one.
func IDTime(id string) (time.Time, bool) {
	if !isULIDShaped(id) {
		return time.Time{}, false
	}
	u, err := ulid.ParseStrict(id)
	if err != nil {
		return time.Time{}, false
	}
	return ulid.Time(u.Time()), true
}

// NewID mints a ULID. It is safe for use by many goroutines at once.
func NewID() string { return ulid.Make().String() }

func idByte(c byte) bool {
	switch {
	case c >= '0' && c <= '9', c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z':
		return true
	}
	return c == '.' || c == '_' || c == ':' || c == '-'
}

// isULIDShaped reports whether s is 26 characters of Crockford's base 32, in
// either case. The letters I, L, O and U are not in it: such a string is an
// ordinary id.
func isULIDShaped(s string) bool {
	if len(s) != ulid.EncodedSize {
		return false
	}
	for i := range len(s) {
		c := s[i] &^ 0x20 // upper case; leaves digits wrong, so they are looked at first
		switch {
		case s[i] >= '0' && s[i] <= '9':
		case c >= 'A' && c <= 'Z' && c != 'I' && c != 'L' && c != 'O' && c != 'U':
		default:
			return false
		}
	}
	return true
}

func isUUIDShaped(s string) bool {
	if len(s) != 36 {
		return false
	}
	for i := range len(s) {
		c := s[i]
		if i == 8 || i == 13 || i == 18 || i == 23 {
			if c != '-' {
				return false
			}
			continue
		}
		if !(c >= '0' && c <= '9' || c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F') {
			return false
		}
	}
	return true
}
