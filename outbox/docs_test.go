package outbox

import (
	"bytes"
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func destinationsPage(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../docs/destinations.md")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestEveryCodeIsOnThePageAboutDestinations(t *testing.T) {
	text := destinationsPage(t)
	for _, code := range Codes {
		if !strings.Contains(text, "`"+code+"`") {
			t.Errorf("docs/destinations.md does not name %s", code)
		}
	}
}

// The page shows a receiver's own verification; it must believe what we sign and
// nothing else.
func TestTheVerificationInTheDocumentsWorks(t *testing.T) {
	_, rest, _ := strings.Cut(destinationsPage(t), "```go\n")
	example, _, found := strings.Cut(rest, "```")
	if !found {
		t.Fatal("docs/destinations.md has no example in Go")
	}
	dir := t.TempDir()
	program := `package main

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"
)

` + example + `
func main() {
	var cases []struct {
		Secret, Body string
		Header       http.Header
	}
	if err := json.NewDecoder(os.Stdin).Decode(&cases); err != nil {
		panic(err)
	}
	for _, c := range cases {
		fmt.Println(verify(c.Secret, c.Header, []byte(c.Body)) == nil)
	}
}
`
	for name, text := range map[string]string{"go.mod": "module receiver\n\ngo 1.26\n", "main.go": program} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	type one struct {
		Secret, Body string
		Header       http.Header
	}
	now := time.Now()
	var cases []one
	var want []string
	add := func(secret, body string, h http.Header, believed string) {
		cases = append(cases, one{secret, body, h})
		want = append(want, believed)
	}
	add(secretA, "{}", mustSign(t, []string{secretA}, "msg_1", now, "{}"), "true")
	add(secretA, "{}", mustSign(t, []string{secretB, secretA}, "msg_1", now, "{}"), "true")
	add(secretB, "{}", mustSign(t, []string{secretA}, "msg_1", now, "{}"), "false")
	add(secretA, "{ }", mustSign(t, []string{secretA}, "msg_1", now, "{}"), "false")
	add(secretA, "{}", mustSign(t, []string{secretA}, "msg_1", now.Add(-time.Hour), "{}"), "false")
	add(secretA, "{}", mustSign(t, []string{secretA}, "msg_1", now.Add(time.Hour), "{}"), "false")
	add(secretA, "{}", http.Header{}, "false")
	in, err := json.Marshal(cases)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "go", "run", ".")
	cmd.Dir, cmd.Stdin = dir, bytes.NewReader(in)
	cmd.Env = append(os.Environ(), "GOFLAGS=", "GOWORK=off")
	out, err := cmd.CombinedOutput()
	if got := strings.Join(strings.Fields(string(out)), " "); err != nil || got != strings.Join(want, " ") {
		t.Errorf("got %s, %v, want %s", out, err, strings.Join(want, " "))
	}
}
