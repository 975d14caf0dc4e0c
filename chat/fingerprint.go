package chat

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/binary"
	"slices"

	"golang.org/x/text/unicode/norm"
)

// Fields are the typed fields a client sent, the only things a fingerprint
// depends on: not the order of keys, not the white space of the JSON, not the
// Unicode form, not the server's defaults.
type Fields struct {
	Kind        Kind
	Content     string
	ParentID    string   // as sent; "" when none
	Model       string   // as sent; "" when none
	Params      string   // canonical JSON, "" when none
	Attachments []string // SHA-256 of each, in the order sent
}

// FingerprintFields names the parts of a fingerprint in the order they are kept.
var FingerprintFields = []string{"kind", "content", "parentId", "model", "params", "attachments"}

const fieldDigestSize = 8

// A Fingerprint is the SHA-256 over the canonical fields, followed by eight
// bytes of each field's own SHA-256, so that a conflict can name the fields that
// differ without the text being compared or revealed.
type Fingerprint string

// Fingerprint returns the fingerprint of f.
func (f Fields) Fingerprint() Fingerprint {
	parts := [][]byte{
		[]byte(f.Kind),
		norm.NFC.Bytes([]byte(f.Content)),
		[]byte(f.ParentID),
		norm.NFC.Bytes([]byte(f.Model)),
		norm.NFC.Bytes([]byte(f.Params)),
		lengthPrefixed(f.Attachments),
	}
	whole := sha256.New()
	out := make([]byte, sha256.Size, sha256.Size+len(parts)*fieldDigestSize)
	for _, p := range parts {
		d := sha256.Sum256(p)
		whole.Write(d[:])
		out = append(out, d[:fieldDigestSize]...)
	}
	whole.Sum(out[:0])
	return Fingerprint(out)
}

// Equal compares in constant time.
func (f Fingerprint) Equal(g Fingerprint) bool {
	return subtle.ConstantTimeCompare([]byte(f), []byte(g)) == 1
}

// Differ returns the names of the fields in which f and g differ.
func (f Fingerprint) Differ(g Fingerprint) []string {
	var names []string
	for _, name := range FingerprintFields {
		if a := f.Field(name); a == "" || a != g.Field(name) {
			names = append(names, name)
		}
	}
	return names
}

// Field returns the digest of one field, which one of FingerprintFields names; "" when
// f is no fingerprint.
func (f Fingerprint) Field(name string) string {
	from := sha256.Size + slices.Index(FingerprintFields, name)*fieldDigestSize
	if len(f) < from+fieldDigestSize {
		return ""
	}
	return string(f[from : from+fieldDigestSize])
}

func lengthPrefixed(list []string) []byte {
	var b []byte
	for _, s := range list {
		b = binary.AppendUvarint(b, uint64(len(s)))
		b = append(b, s...)
	}
	return b
}
