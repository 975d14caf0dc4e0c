package seal

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"filippo.io/age"
)

// identity returns a new identity in a file, and its public half.
func identity(t testing.TB) (path, recipient string) {
	t.Helper()
	id, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	path = filepath.Join(t.TempDir(), "key.txt")
	if err := os.WriteFile(path, []byte("# public key: "+id.Recipient().String()+"\n"+id.String()+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return path, id.Recipient().String()
}

// opened decrypts b with the identity at path, whole or not at all.
func opened(t testing.TB, b []byte, path string) (string, error) {
	t.Helper()
	open, err := With(path)
	if err != nil {
		t.Fatal(err)
	}
	r, err := open(bytes.NewReader(b))
	if err != nil {
		return "", err
	}
	out, err := io.ReadAll(r)
	return string(out), err
}

func TestEachRecipientOpensAFileAndNobodyElse(t *testing.T) {
	one, first := identity(t)
	two, second := identity(t)
	other, _ := identity(t)
	to, err := ParseRecipients([]string{first, second})
	if err != nil || to.None() || strings.Join(to.Strings(), " ") != first+" "+second {
		t.Fatal(to, err)
	}
	text := strings.Repeat("What nobody should read. ", 10_000)
	var b bytes.Buffer
	w, err := to.Encrypt(&b)
	if err == nil {
		_, err = io.WriteString(w, text)
		err = errors.Join(err, w.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{one, two} {
		if got, err := opened(t, b.Bytes(), path); err != nil || got != text {
			t.Errorf("%d bytes, %v", len(got), err)
		}
	}
	if _, err := opened(t, b.Bytes(), other); !errors.Is(err, ErrNotFor) || !strings.Contains(err.Error(), other) {
		t.Errorf("another identity: %v", err)
	}
	for _, secret := range []string{"nobody", first, second, first[4:], second[4:]} {
		if bytes.Contains(b.Bytes(), []byte(secret)) {
			t.Errorf("the file says %q", secret)
		}
	}
	path := filepath.Join(t.TempDir(), "x.age")
	for _, c := range []struct {
		content []byte
		want    bool
	}{{b.Bytes(), true}, {nil, false}, {[]byte("age"), false}, {[]byte("SQLite format 3\x00, and so on"), false}} {
		if err := os.WriteFile(path, c.content, 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := IsEncrypted(path); err != nil || got != c.want {
			t.Errorf("%.20q is encrypted: %t, %v", c.content, got, err)
		}
	}
	// Whatever is cut off or changed, there is no end without an error.
	for at := 0; at < b.Len(); at += 1 + b.Len()/97 {
		if got, err := opened(t, b.Bytes()[:at], one); err == nil {
			t.Errorf("cut off at %d of %d: %d bytes and no error", at, b.Len(), len(got))
		}
		flipped := bytes.Clone(b.Bytes())
		flipped[at] ^= 1
		if got, err := opened(t, flipped, one); err == nil {
			t.Errorf("a bit is flipped at %d of %d: %d bytes and no error", at, b.Len(), len(got))
		}
	}
}

func TestWhatIsNoRecipientIsRefusedAndASecretNotRepeated(t *testing.T) {
	path, first := identity(t)
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	secret := strings.TrimSpace(string(text[bytes.LastIndex(bytes.TrimSpace(text), []byte("\n")):]))
	if to, err := ParseRecipients(nil); err != nil || !to.None() {
		t.Errorf("nobody: %v, %v", to, err)
	}
	for _, s := range []string{"", "age1", first[:len(first)-1], first + "\n" + first, " " + first, "# " + first, "ssh-ed25519 AAAA", secret, strings.ToLower(secret)} {
		if _, err := ParseRecipients([]string{first, s}); err == nil || strings.Contains(strings.ToUpper(err.Error()), secret) {
			t.Errorf("%q: %v", s, err)
		}
	}
	// Those that do not go together are refused before anything is to be encrypted.
	hybrid, err := age.GenerateHybridIdentity()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ParseRecipients([]string{hybrid.Recipient().String()}); err != nil {
		t.Errorf("one of another kind: %v", err)
	}
	if _, err := ParseRecipients([]string{first, hybrid.Recipient().String()}); err == nil {
		t.Error("two kinds in one file: want an error at once")
	}
	for what, text := range map[string]string{"empty": "", "a recipient": first, "encrypted itself": "age-encryption.org/v1\n-> scrypt x\n", "cut off": secret[:len(secret)-1], "a line too many": secret + "\nand this"} {
		path := filepath.Join(t.TempDir(), "key.txt")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := With(path); err == nil || !strings.Contains(err.Error(), "no identity file") || strings.Contains(err.Error(), secret[20:40]) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if _, err := With(filepath.Join(t.TempDir(), "none")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("none: %v", err)
	}
}
