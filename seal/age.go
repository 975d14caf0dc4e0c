package seal

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"

	"filippo.io/age"
)

// ErrNotFor: a file was not encrypted to any identity that was given.
var ErrNotFor = errors.New("it was encrypted to others")

// Encrypted is how the name of an encrypted file ends.
const Encrypted = ".age"

// Recipients are those to whom files are encrypted: the public halves of age
// identities. The zero value is nobody.
type Recipients struct {
	texts []string
	keys  []age.Recipient
}

// ParseRecipients reads the public halves of age identities, and sees to it that one
// file can be for all of them.
func ParseRecipients(list []string) (r Recipients, err error) {
	for _, s := range list {
		if IsIdentity(s) {
			// It is not repeated: it would stand in a log.
			return r, errors.New("has a secret key: name the age1… that age-keygen says is its public key")
		}
		keys, err := age.ParseRecipients(strings.NewReader(s))
		if err != nil || len(keys) != 1 || strings.ContainsAny(s, " \r\n") {
			return r, fmt.Errorf("%.80q is no recipient of age, like age1…: age-keygen makes one", s)
		}
		r.texts, r.keys = append(r.texts, s), append(r.keys, keys[0])
	}
	if len(list) == 0 {
		return r, nil
	}
	_, err = r.Encrypt(io.Discard)
	return r, err
}

// IsIdentity reports whether s has the secret half of an age identity.
func IsIdentity(s string) bool { return strings.Contains(strings.ToUpper(s), "AGE-SECRET-KEY-") }

// None reports whether there is nobody.
func (r Recipients) None() bool { return len(r.keys) == 0 }

// Strings are the recipients as they are written.
func (r Recipients) Strings() []string { return r.texts }

// Encrypt returns what is to be closed, and writes to w what any of the recipients can
// decrypt.
func (r Recipients) Encrypt(w io.Writer) (io.WriteCloser, error) { return age.Encrypt(w, r.keys...) }

// With returns what decrypts with the identities in the file at path. What it reads is
// authenticated piece by piece: an error may come after any number of bytes, and until
// the end none of them may be relied upon. The file's content is in no error.
func With(path string) (func(io.Reader) (io.Reader, error), error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close() // it was read only
	if fi, err := f.Stat(); err != nil || !fi.Mode().IsRegular() && fi.Mode()&fs.ModeNamedPipe == 0 {
		return nil, errors.Join(err, fmt.Errorf("%s is no identity file of age", path))
	}
	list, err := age.ParseIdentities(io.LimitReader(f, 1<<20))
	if err != nil {
		return nil, fmt.Errorf("%s is no identity file of age: it has a line AGE-SECRET-KEY-… for each; one that has a passphrase is decrypted with age first", path)
	}
	return func(r io.Reader) (io.Reader, error) {
		out, err := age.Decrypt(r, list...)
		var none *age.NoIdentityMatchError
		if errors.As(err, &none) {
			return nil, fmt.Errorf("%w: %s does not open it, or it is damaged", ErrNotFor, path)
		}
		return out, err
	}, nil
}

// IsEncrypted reports whether the file at path begins as one does that age encrypted.
func IsEncrypted(path string) (_ bool, err error) {
	f, err := os.Open(path)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	const intro = "age-encryption.org/"
	b := make([]byte, len(intro))
	n, err := io.ReadFull(f, b)
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		err = nil
	}
	return string(b[:n]) == intro, err
}
