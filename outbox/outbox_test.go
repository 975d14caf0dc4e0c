package outbox

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"
)

func TestATargetIsCheckedWithoutTheNetwork(t *testing.T) {
	private := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}
	for _, tt := range []struct {
		name   string
		change func(*Target)
		want   string // "" is nothing wrong
	}{
		{"https", func(*Target) {}, ""},
		{"a port", func(t *Target) { t.URL = "https://example.com:8443/x?y=z" }, ""},
		{"user and password", func(t *Target) { t.URL = "https://u:p@example.com/" }, ""},
		{"all there is", func(t *Target) {
			t.KeyMode, t.StatusURL, t.Timeout, t.MaxAttempts, t.Backoff, t.KeyTTL = KeyModeQuery, "https://example.com/s", time.Minute, 8, time.Second, time.Hour
		}, ""},
		{"plain to an allowed network", func(t *Target) { t.URL, t.Allow = "http://10.1.2.3/", private }, ""},
		{"plain to a name", func(t *Target) { t.URL, t.Allow = "http://erp.internal/", private }, ""}, // judged when it is called
		{"kind", func(t *Target) { t.Kind = "fax" }, "kind: "},
		{"no address", func(t *Target) { t.URL = "" }, "url: "},
		{"another scheme", func(t *Target) { t.URL = "ftp://canary@example.com" }, "url: "},
		{"no host", func(t *Target) { t.URL = "https:///canary" }, "url: "},
		{"no address at all", func(t *Target) { t.URL = "https://u:canary@example.com:x/\x00" }, "url: "},
		{"a port that is none", func(t *Target) { t.URL = "https://example.com:70000/canary" }, "url: "},
		{"port 0", func(t *Target) { t.URL = "https://example.com:0/" }, "url: "},
		{"a fragment", func(t *Target) { t.URL = "https://example.com/#canary" }, "url: "},
		{"a long address", func(t *Target) { t.URL = "https://example.com/" + strings.Repeat("x", 2000) }, "url: "},
		{"loopback", func(t *Target) { t.URL = "https://127.0.0.1/" }, "url: "},
		{"localhost", func(t *Target) { t.URL = "http://LOCALHOST:9900/" }, "url: "},
		{"metadata", func(t *Target) { t.URL = "http://169.254.169.254/canary" }, "url: "},
		{"mapped", func(t *Target) { t.URL = "https://[::ffff:10.0.0.1]/" }, "url: "},
		{"plain", func(t *Target) { t.URL = "http://1.1.1.1/" }, "url: plain http"},
		{"no secret", func(t *Target) { t.Secrets = nil }, "secrets: "},
		{"a bad secret", func(t *Target) { t.Secrets = append(t.Secrets, "whsec_canary") }, "secrets: "},
		{"timeout", func(t *Target) { t.Timeout = -1 }, "timeout: "},
		{"a long timeout", func(t *Target) { t.Timeout = time.Hour }, "timeout: "},
		{"max_attempts", func(t *Target) { t.MaxAttempts = -1 }, "max_attempts: "},
		{"backoff", func(t *Target) { t.Backoff = -1 }, "backoff: "},
		{"key_ttl", func(t *Target) { t.KeyTTL = -1 }, "key_ttl: "},
		{"key_mode", func(t *Target) { t.KeyMode = "maybe" }, "key_mode: "},
		{"no status_url", func(t *Target) { t.KeyMode = KeyModeQuery }, "status_url: "},
		{"a useless status_url", func(t *Target) { t.StatusURL = "https://example.com/" }, "status_url: "},
		{"a status_url inside", func(t *Target) { t.KeyMode, t.StatusURL = KeyModeQuery, "https://10.0.0.1/" }, "status_url: "},
		{"allow", func(t *Target) { t.Allow = []netip.Prefix{{}} }, "allow: "},
		{"a mapped allow", func(t *Target) { t.Allow = []netip.Prefix{netip.MustParsePrefix("::ffff:0:0/96")} }, "allow: "},
		{"keys of an e-mail", func(t *Target) { t.Password = "canary" }, "password: "},
	} {
		t.Run(tt.name, func(t *testing.T) {
			target := Target{Kind: KindWebhook, URL: "https://example.com/sign", Secrets: []string{secretA}}
			tt.change(&target)
			s, err := New(target)
			if tt.want == "" {
				if err != nil || s == nil {
					t.Errorf("got %v", err)
				}
				return
			}
			if err == nil || s != nil || !strings.HasPrefix(err.Error(), tt.want) || strings.Contains(err.Error(), "\n") {
				t.Fatalf("got %v, want one finding that begins with %q", err, tt.want)
			}
			wantNoSecret(t, err.Error())
		})
	}
}

func TestATargetIsShownWithoutItsSecrets(t *testing.T) {
	for _, tt := range []struct {
		target Target
		want   string
	}{
		{Target{Kind: KindWebhook, URL: "https://canary:canary@example.com:8443/a%20b?token=canary#canary", Secrets: []string{secretA}}, "webhook https://example.com:8443/a%20b"},
		{Target{Kind: KindWebhook, URL: "https://canary:x\x00"}, "webhook"},
		{Target{Kind: KindEmail, Server: "mail.example.com", Username: "canary", Password: "canary", To: []string{"a@example.com", "b@example.com"}}, "email a@example.com, b@example.com"},
	} {
		if got := tt.target.String(); got != tt.want {
			t.Errorf("got %q, want %q", got, tt.want)
		}
		asJSON, err := json.Marshal(tt.target)
		if err != nil {
			t.Error(err)
		}
		wantNoSecret(t, fmt.Sprintf("%v %+v %#v %s %s %v", tt.target, tt.target, tt.target, tt.target, asJSON, &tt.target))
	}
}
