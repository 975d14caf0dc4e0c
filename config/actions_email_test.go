package config

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"semel/outbox"
)

func TestEveryKeyOfAnEmailCanBeSet(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "password"), []byte("hunter2\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "semel.toml")
	c, err := load(path, []byte(strings.Replace(documented, `{ kind = "webhook", url = "http://127.0.0.1:9900/void" }`, `{ kind = "email", server = "mail.example.com:465", tls = "implicit", from = "semel@example.com", to = ["a@example.com", "b@example.com"], subject = "Undo", username = "u", password_file = "password" }`, 1)+`
[[destinations]]
name = "clerk"
kind = "email"
server = "mail.example.com"
from = "semel@example.com"
to = ["clerk@example.com"]
username = "u"
password = "hunter3"
key_mode = "keyed"
`), environ{}, Source{})
	if err != nil {
		t.Fatal(err)
	}
	want := Target{PasswordFile: filepath.Join(dir, "password"), Target: outbox.Target{
		Kind: "email", Server: "mail.example.com:465", TLS: "implicit", From: "semel@example.com",
		To: []string{"a@example.com", "b@example.com"}, Subject: "Undo", Username: "u", Password: "hunter2",
		Timeout: 15 * time.Second, MaxAttempts: 8, Backoff: 5 * time.Second, KeyMode: "none",
	}}
	if got := *c.Actions[0].Compensate; !reflect.DeepEqual(got, want) {
		t.Errorf("got  %s\nwant %s", spelled(got), spelled(want))
	}
	if d := c.Destinations[0]; d.Password != "hunter3" || d.KeyMode != "keyed" || d.KeyTTL != 24*time.Hour || d.Secrets != nil {
		t.Errorf("got %s", spelled(d))
	}
	again, err := load(path, []byte(printed(t, c, false)), environ{}, Source{})
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(again.Actions, c.Actions) || !reflect.DeepEqual(again.Destinations, c.Destinations) {
		t.Errorf("printed and read again:\n%s", printed(t, again, false))
	}
	if text := printed(t, c, true); strings.Contains(text, "hunter") || !strings.Contains(text, `password = "***"`) {
		t.Errorf("redacted:\n%s", text)
	}
}

func TestWhatIsWrongWithAnEmailIsNamed(t *testing.T) {
	const mail = "[[destinations]]\nname = \"d\"\nkind = \"email\"\nto = [\"a@example.com\"]\n"
	for _, tt := range []struct{ toml, want string }{
		{mail + "server = \"mail.example.com\"\nfrom = \"nobody\"", `destinations[0].from (semel.toml:6): `},
		{mail + "from = \"a@example.com\"", `destinations[0].server (semel.toml:1): `},
		{mail + "from = \"a@example.com\"\nserver = \"127.0.0.1\"", `destinations[0].server (semel.toml:6): `},
		{mail + "from = \"a@example.com\"\nserver = \"mail.example.com\"\nurl = \"https://example.com/\"", `destinations[0].url (semel.toml:7): an e-mail has no use for it`},
		{mail + "from = \"a@example.com\"\nserver = \"mail.example.com\"\npassword = \"hunter2\"", `destinations[0].password (semel.toml:7): is given with username`},
		{mail + "tls = \"maybe\"", `destinations[0].tls = "maybe" (semel.toml:5): must be one of starttls, implicit, none`},
	} {
		_, err := load("semel.toml", []byte(tt.toml), environ{}, Source{})
		if err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%q:\n got %v\nwant %s", tt.toml, err, tt.want)
		}
	}
}
