// Package password keeps passwords as argon2id hashes, a few at a time: each takes
// 19 MiB and some thirty milliseconds of a core, which many at once must not take
// from those who chat.
package password

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"

	"golang.org/x/crypto/argon2"
	"golang.org/x/text/unicode/norm"
)

// OWASP's first choice for argon2id; the memory is in KiB.
const (
	memory  = 19 * 1024
	passes  = 2
	threads = 1
	length  = 32
)

// ErrBusy: as many hash as may, and as many wait as may; nothing was looked at.
var ErrBusy = errors.New("too many passwords are looked at")

const (
	atOnce = 2
	queue  = 16 // who waits behind those is told so at once, not after a second
)

// A Hasher hashes for all of a process. It may be used by many goroutines.
type Hasher struct {
	places chan struct{} // of those who hash or wait
	turns  chan struct{}
}

// NewHasher returns a Hasher.
func NewHasher() *Hasher {
	return &Hasher{places: make(chan struct{}, atOnce+queue), turns: make(chan struct{}, atOnce)}
}

// nobody is the hash of a password that nobody knows, made when the first is looked at.
var nobody = sync.OnceValue(func() string { return encode(rand.Text()) })

// Hash returns what is to be stored of a password. Errors: ErrBusy, or ctx's.
func (h *Hasher) Hash(ctx context.Context, password string) (hash string, err error) {
	err = h.inTurn(ctx, func() { hash = encode(password) })
	return hash, err
}

// Fits reports whether a password is the one of which hash is stored. Of "", an account
// that there is not, it says no, in the same time. Errors: ErrBusy, or ctx's.
func (h *Hasher) Fits(ctx context.Context, password, hash string) (fits bool, err error) {
	err = h.inTurn(ctx, func() {
		other := nobody() // for every account alike
		if hash == "" {
			hash = other
		}
		fits = matches(password, hash)
	})
	return fits, err
}

func (h *Hasher) inTurn(ctx context.Context, do func()) error {
	select {
	case h.places <- struct{}{}:
	default:
		return ErrBusy
	}
	defer func() { <-h.places }()
	select {
	case h.turns <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-h.turns }()
	do()
	return nil
}

// Hash is Hasher.Hash for a process that hashes once.
func Hash(password string) string { return encode(password) }

var b64 = base64.RawStdEncoding

// derived is how often that was done: a test sees by it that as much is done for nobody.
var derived atomic.Int64

// derive hashes a password in the one form in which keyboards may have typed it.
func derive(password string, salt []byte, m, t uint32, p uint8) []byte {
	derived.Add(1)
	return argon2.IDKey([]byte(norm.NFC.String(password)), salt, t, m, p, length)
}

func encode(password string) string {
	salt := make([]byte, 16)
	_, _ = rand.Read(salt) // it does not fail
	key := derive(password, salt, memory, passes, threads)
	return fmt.Sprintf("$argon2id$v=%d$m=%d,t=%d,p=%d$%s$%s", argon2.Version, memory, passes, threads, b64.EncodeToString(salt), b64.EncodeToString(key))
}

// matches compares by the parameters that the hash names, so that they can be raised
// later; they are bounded, for a file that somebody else has written.
func matches(password, hash string) bool {
	var version int
	var m, t uint32
	var p uint8
	parts := strings.Split(hash, "$")
	if len(parts) != 6 || parts[0] != "" || parts[1] != "argon2id" {
		return false
	}
	if _, err := fmt.Sscanf(parts[2], "v=%d", &version); err != nil || version != argon2.Version {
		return false
	}
	if _, err := fmt.Sscanf(parts[3], "m=%d,t=%d,p=%d", &m, &t, &p); err != nil || m < 8 || m > 1<<20 || t < 1 || t > 100 || p < 1 {
		return false
	}
	salt, err1 := b64.DecodeString(parts[4])
	key, err2 := b64.DecodeString(parts[5])
	if err1 != nil || err2 != nil || len(salt) < 8 || len(key) != length {
		return false
	}
	return subtle.ConstantTimeCompare(derive(password, salt, m, t, p), key) == 1
}
