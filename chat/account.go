package chat

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// A Role says what an account may do: a member has conversations of its own, an
// operator also looks after the machine, an admin also after people and models.
type Role string

// The roles.
const (
	RoleMember   Role = "member"
	RoleOperator Role = "operator"
	RoleAdmin    Role = "admin"
)

// Roles are all roles, each one with all that those before it have.
var Roles = []Role{RoleMember, RoleOperator, RoleAdmin}

// Has reports whether r may do what needs role. A role that there is not has nothing,
// and nobody has it.
func (r Role) Has(role Role) bool { return r.rank() > 0 && role.rank() > 0 && r.rank() >= role.rank() }

func (r Role) rank() int {
	for i, known := range Roles {
		if r == known {
			return i + 1
		}
	}
	return 0
}

// A Scope says what a key opens: what its owner may do with conversations, or with
// the machine.
type Scope string

// The scopes.
const (
	ScopeChat Scope = "chat"
	ScopeOps  Scope = "ops"
)

// maxName bounds the name of an account, in characters.
const maxName = 64

// ParseName returns a name of an account in the one form in which it is stored, or
// false. Two names that look alike but for capitals are one.
func ParseName(s string) (string, bool) {
	s = strings.ToLower(norm.NFKC.String(strings.TrimSpace(s)))
	if s == "" || !utf8.ValidString(s) || utf8.RuneCountInString(s) > maxName {
		return "", false
	}
	for _, r := range s {
		if !unicode.IsLetter(r) && !unicode.IsMark(r) && !unicode.IsDigit(r) && !strings.ContainsRune("._-@", r) {
			return "", false
		}
	}
	return s, true
}

// Passwords are at least this long, in characters, and at most so many bytes.
const (
	MinPassword = 10
	MaxPassword = 1024
)

// GoodPassword reports whether a password may be set. What it is made of is nobody's
// business; that it is no well-known one, or the name, is.
func GoodPassword(password, name string) bool {
	lower := strings.ToLower(password)
	return utf8.ValidString(password) && utf8.RuneCountInString(password) >= MinPassword && len(password) <= MaxPassword &&
		lower != strings.ToLower(name) && strings.Trim(lower, lower[:1]) != "" && !wellKnown[lower]
}

// wellKnown are the first that anybody tries, of those that are long enough.
var wellKnown = map[string]bool{
	"1234567890": true, "0123456789": true, "12345678910": true, "123456789a": true, "1q2w3e4r5t": true, "1qaz2wsx3edc": true, "qwertyuiop": true,
	"qwerty12345": true, "password12": true, "password123": true, "password1234": true, "passw0rd123": true, "administrator": true, "iloveyou123": true,
	"letmein123": true, "welcome123": true, "changeme123": true, "adminadmin": true, "admin12345": true, "abc1234567": true, "9876543210": true,
}

// KeyPrefix begins every key, so that one that lies about somewhere is known for what
// it is.
const KeyPrefix = "semel_"

// NewKey makes a key, and what is stored of it.
func NewKey() (secret string, digest []byte) {
	secret = KeyPrefix + NewToken()
	return secret, DigestToken(secret)
}

// KeyOf makes the key of a form: always the same of the same seed, which is random and
// kept to oneself, and of the same words.
func KeyOf(seed, form string, user int64, scope Scope, name string) (secret string, digest []byte) {
	mac := hmac.New(sha256.New, []byte(seed))
	fmt.Fprintf(mac, "%s %d %s %s", form, user, scope, name) // only the last has spaces
	secret = KeyPrefix + base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
	return secret, DigestToken(secret)
}

// NewToken makes 256 bits that nobody can guess.
func NewToken() string {
	b := make([]byte, 32)
	_, _ = rand.Read(b) // it does not fail
	return base64.RawURLEncoding.EncodeToString(b)
}

// DigestToken is what is stored of a token or a key. They are no passwords: nobody can
// try all of them, so a plain digest does.
func DigestToken(secret string) []byte {
	d := sha256.Sum256([]byte(secret))
	return d[:]
}
