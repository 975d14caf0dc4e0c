// Package seal keeps secrets that a database holds from whoever has only the
// database: a copy, a backup, a disk that was thrown away.
package seal

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
)

var (
	// ErrNoKeyFile: the key file is not there, so nothing that was sealed can be opened.
	ErrNoKeyFile = errors.New("the key file is missing")
	// ErrOtherKey: the secret was sealed under another key file.
	ErrOtherKey = errors.New("sealed under another key file")
	// ErrDamaged: what was sealed was changed, or belongs to something else.
	ErrDamaged = errors.New("not what was sealed here")
)

// A Box seals secrets under the key in a file. The file is read when it is needed,
// so that it may be put back while the program runs. Any number of goroutines may
// use a Box.
type Box struct {
	path string
	mu   sync.Mutex // one at a time makes the file
}

// At returns the box whose key is in the file at path. The file need not be there:
// the first Seal makes it.
func At(path string) *Box { return &Box{path: path} }

// Path returns the path of the key file.
func (b *Box) Path() string { return b.path }

const (
	version   = 1
	nameBytes = 4 // of the key's digest, so that another key is told from damage
	keyBytes  = 32
)

// Seal returns secret so that only Open with the same bound reads it. It makes the
// key file, for its owner alone, where there is none.
func (b *Box) Seal(secret string, bound ...string) ([]byte, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	key, err := b.key()
	if errors.Is(err, ErrNoKeyFile) {
		key, err = b.make()
	}
	if err != nil {
		return nil, err
	}
	out := append([]byte{version}, keyName(key)...)
	nonce := make([]byte, 12)
	rand.Read(nonce) // never fails
	out = append(out, nonce...)
	return aead(key).Seal(out, nonce, []byte(secret), data(bound)), nil
}

// Open returns what Seal was given. Errors: ErrNoKeyFile, ErrOtherKey, ErrDamaged,
// and those of a key file that cannot be used.
func (b *Box) Open(sealed []byte, bound ...string) (string, error) {
	key, err := b.key()
	if err != nil {
		return "", err
	}
	const head = 1 + nameBytes
	if len(sealed) < head+12 || sealed[0] != version {
		return "", ErrDamaged
	}
	if string(sealed[1:head]) != string(keyName(key)) {
		return "", fmt.Errorf("%w than %s", ErrOtherKey, b.path)
	}
	secret, err := aead(key).Open(nil, sealed[head:head+12], sealed[head+12:], data(bound))
	if err != nil {
		return "", ErrDamaged
	}
	return string(secret), nil
}

// key reads the key file. What it says of the file never has its content.
func (b *Box) key() ([]byte, error) {
	fi, err := os.Stat(b.path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("%w: %s", ErrNoKeyFile, b.path)
	case err != nil:
		return nil, err
	case runtime.GOOS != "windows" && fi.Mode().Perm()&0o077 != 0:
		return nil, fmt.Errorf("others may read the key file %s (mode %#o): chmod 600 it", b.path, fi.Mode().Perm())
	case fi.Size() > 1024:
		return nil, fmt.Errorf("%s is no key file", b.path)
	}
	text, err := os.ReadFile(b.path)
	if err != nil {
		return nil, err
	}
	key, err := hex.DecodeString(strings.TrimSpace(string(text)))
	if err != nil || len(key) != keyBytes {
		return nil, fmt.Errorf("%s is no key file", b.path)
	}
	return key, nil
}

// make writes a new key. It is durable before anything is sealed under it, and
// whole whenever it is there: it gets its name last. Another process that makes one
// at the same moment wins or loses as a whole.
func (b *Box) make() (_ []byte, err error) {
	key := make([]byte, keyBytes)
	rand.Read(key) // never fails
	dir := filepath.Dir(b.path)
	f, err := os.CreateTemp(dir, filepath.Base(b.path)+".*") // for its owner alone
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.Remove(f.Name())) }()
	_, err = f.WriteString(hex.EncodeToString(key) + "\n")
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return nil, err
	}
	if err := os.Link(f.Name(), b.path); errors.Is(err, fs.ErrExist) {
		return b.key()
	} else if err != nil {
		return nil, err
	}
	return key, syncFolder(dir)
}

// syncFolder makes the name of a new file durable, where folders can be synced.
func syncFolder(dir string) error {
	if runtime.GOOS == "windows" {
		return nil
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

func aead(key []byte) cipher.AEAD {
	block, err := aes.NewCipher(key)
	if err != nil {
		panic(err) // a key has 32 bytes
	}
	a, err := cipher.NewGCM(block)
	if err != nil {
		panic(err)
	}
	return a
}

func keyName(key []byte) []byte {
	sum := sha256.Sum256(append([]byte("semel key file\x00"), key...))
	return sum[:nameBytes]
}

// data is what a secret is bound to, each with its length: no two lists are alike.
func data(bound []string) []byte {
	out := []byte{version}
	for _, s := range bound {
		out = fmt.Appendf(out, "%d:%s", len(s), s)
	}
	return out
}
