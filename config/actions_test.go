package config

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"semel/chat"
	"semel/outbox"
)

const (
	secretA = "whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIz"
	secretB = "whsec_YWJjZGVmZ2hpamtsbW5vcHFyc3R1dnd4"
)

// documented is the example of the documentation.
const documented = `
[[actions]]
name = "sign_contract"
description = { en = "Have a contract signed", zh-CN = "签署合同" }
parameters = '''{"type":"object","required":["title","party"],"properties":{"title":{"type":"string"},"party":{"type":"string"}},"additionalProperties":false}'''
approval = "ask"             # auto | ask | never
await_callback = true
callback_timeout = "24h"
destination = { kind = "webhook", url = "http://127.0.0.1:9900/sign", secrets = ["` + secretA + `"], timeout = "15s", max_attempts = 8, backoff = "5s", allow = ["127.0.0.0/8"] }
compensate  = { kind = "webhook", url = "http://127.0.0.1:9900/void" }
`

func TestTheDocumentedActionIsUnderstood(t *testing.T) {
	c := mustLoad(t, documented)
	to := func(path string) Target {
		return Target{Target: outbox.Target{
			Kind: "webhook", URL: "http://127.0.0.1:9900" + path, Secrets: []string{secretA},
			Timeout: 15 * time.Second, MaxAttempts: 8, Backoff: 5 * time.Second,
			Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, KeyMode: "keyed", KeyTTL: 24 * time.Hour,
		}}
	}
	void := to("/void")
	want := []Action{{
		Action: chat.Action{
			Name:        "sign_contract",
			Description: map[string]string{"en": "Have a contract signed", "zh-CN": "签署合同"},
			Parameters:  json.RawMessage(`{"type":"object","required":["title","party"],"properties":{"title":{"type":"string"},"party":{"type":"string"}},"additionalProperties":false}`),
			Approval:    "ask", AwaitCallback: true, CallbackTimeout: 24 * time.Hour,
			To: "webhook http://127.0.0.1:9900/sign", Compensates: true,
		},
		Destination: to("/sign"),
		Compensate:  &void,
	}}
	if !reflect.DeepEqual(c.Actions, want) {
		got, _ := json.Marshal(c.Actions)
		t.Errorf("got %s\n%#v\n%#v", got, c.Actions[0].Destination.Target, c.Actions[0].Compensate)
	}
	d, err := c.Declared()
	if err != nil {
		t.Fatal(err)
	}
	if a, ok := d.Action("sign_contract"); !ok || a.Approval != chat.ApprovalAsk {
		t.Errorf("declared %+v", d.Actions())
	}
	if strings.Contains(string(d.Frozen()), "whsec_") {
		t.Error("a secret is declared")
	}
}

func TestEveryKeyOfAnActionAndADestinationCanBeSet(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "secrets"), []byte(secretA+"\n\n"+secretB+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := load(filepath.Join(dir, "semel.toml"), []byte(`
[[actions]]
name = "a"
description = "Do it"
approval = "auto"
[actions.destination]
kind = "webhook"
url = "https://example.com/a?token=t"
secrets_file = "secrets"
timeout = "1m"
max_attempts = 3
backoff = "1s"
key_mode = "query"
key_ttl = "72h"
status_url = "https://example.com/status"
[actions.compensate]
url = "https://example.com/undo"
key_mode = "none"
[[actions]]
name = "b"
description.en = "Never"
approval = "never"
[[destinations]]
name = "billing"
kind = "webhook"
url = "https://example.com/b"
secrets = ["`+secretB+`", "`+secretA+`"]
[billing]
deliver = "billing"
`), environ{}, Source{})
	if err != nil {
		t.Fatal(err)
	}
	defaults := func(o outbox.Target) outbox.Target {
		o.Timeout, o.MaxAttempts, o.Backoff = 15*time.Second, 8, 5*time.Second
		return o
	}
	undo := Target{SecretsFile: filepath.Join(dir, "secrets"), Target: outbox.Target{
		Kind: "webhook", URL: "https://example.com/undo", Secrets: []string{secretA, secretB},
		Timeout: time.Minute, MaxAttempts: 3, Backoff: time.Second, KeyMode: "none",
	}}
	wantActions := []Action{{
		Action: chat.Action{
			Name: "a", Description: map[string]string{"en": "Do it"}, Parameters: json.RawMessage(noParameters),
			Approval: "auto", To: "webhook https://example.com/a", Compensates: true,
		},
		Destination: Target{SecretsFile: filepath.Join(dir, "secrets"), Target: outbox.Target{
			Kind: "webhook", URL: "https://example.com/a?token=t", Secrets: []string{secretA, secretB},
			Timeout: time.Minute, MaxAttempts: 3, Backoff: time.Second,
			KeyMode: "query", KeyTTL: 72 * time.Hour, StatusURL: "https://example.com/status",
		}},
		Compensate: &undo,
	}, {
		Action: chat.Action{Name: "b", Description: map[string]string{"en": "Never"}, Parameters: json.RawMessage(noParameters), Approval: "never"},
	}}
	wantDestinations := []Destination{
		{"billing", Target{Target: defaults(outbox.Target{
			Kind: "webhook", URL: "https://example.com/b", Secrets: []string{secretB, secretA}, KeyMode: "keyed", KeyTTL: 24 * time.Hour})}},
	}
	for i := range wantActions {
		if !reflect.DeepEqual(c.Actions[i], wantActions[i]) {
			t.Errorf("action %d:\n%s\nwant\n%s", i, spelled(c.Actions[i]), spelled(wantActions[i]))
		}
	}
	for i := range wantDestinations {
		if !reflect.DeepEqual(c.Destinations[i], wantDestinations[i]) {
			t.Errorf("destination %d:\n%s\nwant\n%s", i, spelled(c.Destinations[i]), spelled(wantDestinations[i]))
		}
	}
	if d, ok := c.Destination(c.Billing.Deliver); !ok || d.URL != "https://example.com/b" {
		t.Errorf("charges go to %q", d.URL)
	}

	// What is printed gives the same again.
	path := filepath.Join(dir, "semel.toml")
	again, err := load(path, []byte(printed(t, c, false)), environ{}, Source{})
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(again.Actions, c.Actions) || !reflect.DeepEqual(again.Destinations, c.Destinations) || again.Billing != c.Billing {
		t.Errorf("printed and read again:\n%s", printed(t, again, false))
	}
}

// spelled is v with its secrets, which v itself would not show.
func spelled(v any) string {
	switch v := v.(type) {
	case Action:
		s := fmt.Sprintf("%+v %s", v.Action, spelled(v.Destination))
		if v.Compensate != nil {
			s += " " + spelled(*v.Compensate)
		}
		return s
	case Destination:
		return v.Name + " " + spelled(v.Target)
	case Target:
		type bare outbox.Target
		return fmt.Sprintf("%+v %s %s", bare(v.Target), v.SecretsFile, v.PasswordFile)
	}
	panic(v)
}

func TestWhatIsWrongWithAnActionIsNamed(t *testing.T) {
	const (
		head = "[[actions]]\nname = \"a\"\ndescription = \"Do it\"\n"
		to   = "destination = { kind = \"webhook\", url = \"https://example.com/\", secrets = [\"" + secretA + "\"] }\n"
		dest = "[[destinations]]\nname = \"d\"\n"
	)
	for _, tt := range []struct{ toml, want string }{
		{head + to + "aproval = \"ask\"", `unknown key "actions.aproval" (semel.toml:5); the nearest known key is "actions.approval"`},
		{head + "destination.kind = \"webhook\"\ndestination.ur = \"x\"", `unknown key "actions.destination.ur" (semel.toml:5); the nearest known key is "actions.destination.url"`},
		{head + to + "compensate.max_atempts = 1", `unknown key "actions.compensate.max_atempts" (semel.toml:5); the nearest known key is "actions.compensate.max_attempts"`},
		{head + to + "parameters = { type = \"object\" }", `actions[0].parameters = … (semel.toml:5): must be a string that holds a JSON Schema`},
		{dest + "kid = \"webhook\"", `unknown key "destinations.kid" (semel.toml:3); the nearest known key is "destinations.kind"`},
		{"[[action]]\nname = \"a\"", `unknown key "action" (semel.toml:1)`},
		{"actions = 1", `actions (semel.toml:1): must be written as [[actions]]`},
		{"[actions]\nname = \"a\"", `actions (semel.toml:1): must be written as [[actions]]`},
		{"destinations = [1]", `destinations[0] (semel.toml:1): must be a table`},

		{"[[actions]]\ndescription = \"Do it\"\n" + to, `actions[0] (semel.toml:1): name is missing`},
		{"[[actions]]\nname = \"a\"\n" + to, `actions[0] (semel.toml:1): description is missing`},
		{head, `actions[0] (semel.toml:1): destination is missing`},
		{head + to + head + to, `actions[1] (semel.toml:5): there is another action named "a"`},
		{strings.Replace(head, `"a"`, `"a.b"`, 1) + to, `actions[0] (semel.toml:1): action "a.b": the name must be`},
		{strings.Replace(head, `"Do it"`, `1`, 1) + to, `actions[0].description = 1 (semel.toml:3): must be a string, or a table`},
		{strings.Replace(head, `"Do it"`, `{}`, 1) + to, `actions[0].description = … (semel.toml:3): must be a string, or a table`},
		{strings.Replace(head, `"Do it"`, `{ en = 1 }`, 1) + to, `en must be a string`},
		{strings.Replace(head, `"Do it"`, `{ "e n" = "x" }`, 1) + to, `"e n" is no language tag`},
		{strings.Replace(head, `"Do it"`, `""`, 1) + to, `the description in en must be`},
		{head + to + "approval = \"maybe\"", `actions[0].approval = "maybe" (semel.toml:5): must be one of auto, ask, never`},
		{head + to + "parameters = 1", `actions[0].parameters = 1 (semel.toml:5): must be a string that holds`},
		{head + to + "parameters = '{'", `actions[0] (semel.toml:1): action "a": parameters: the schema cannot be used: no JSON`},
		{head + to + `parameters = '{"type":"object","properties":{"x":{"type":"strin"}}}'`, `parameters: the schema does not compile: /properties/x/type`},
		{head + to + `parameters = '{"type":"object","properties":{"x":{"$ref":"https://example.com/x"}}}'`, `a schema may refer to its own parts only`},
		{head + to + "callback_timeout = \"1h\"", `actions[0].callback_timeout (semel.toml:5): nothing is waited for`},
		{head + to + "await_callback = true\ncallback_timeout = \"0s\"", `actions[0].callback_timeout = "0s" (semel.toml:6): must be between`},
		{head + "approval = \"never\"\nawait_callback = true", `actions[0] (semel.toml:1): what goes nowhere is neither`},
		{head + "approval = \"never\"\n" + strings.Replace(to, "destination", "compensate", 1), `actions[0] (semel.toml:1): what goes nowhere is neither`},

		{head + "destination.url = \"https://example.com/\"", `actions[0].destination (semel.toml:1): kind is missing`},
		{head + "destination.kind = \"pigeon\"", `actions[0].destination.kind = "pigeon" (semel.toml:4): must be one of webhook, email`},
		{head + "destination = { kind = \"webhook\", url = \"https://example.com/\" }", `actions[0].destination.secrets (semel.toml:1): `},
		{head + "destination = { kind = \"webhook\", url = \"https://example.com/\", secrets = [\"whsec_AAAA\"] }", `actions[0].destination.secrets (semel.toml:4): `},
		{head + "destination = { kind = \"webhook\", url = \"https://example.com/\", secrets = \"" + secretA + "\" }", `actions[0].destination.secrets = *** (semel.toml:4): must be a list of strings`},
		{head + "destination = { kind = \"webhook\", url = \"https://example.com/\", secrets = [1] }", `must be a list of strings`},
		{head + "destination = { kind = \"webhook\", url = \"ftp://example.com/\", secrets = [\"" + secretA + "\"] }", `actions[0].destination.url (semel.toml:4): must be an http or https address`},
		{head + "destination = { kind = \"webhook\", url = \"http://127.0.0.1/\", secrets = [\"" + secretA + "\"] }", `actions[0].destination.url (semel.toml:4): `},
		{head + "destination = { kind = \"webhook\", url = \"https://example.com/\", secrets = [\"" + secretA + "\"], allow = [\"127.0.0.1\"] }", `actions[0].destination.allow = […] (semel.toml:4): "127.0.0.1" is no range`},
		{head + "destination = { kind = \"webhook\", url = \"https://example.com/\", secrets = [\"" + secretA + "\"], secrets_file = \"s\" }", `secrets and secrets_file are both given`},
		{head + "destination = { kind = \"webhook\", url = \"https://example.com/\", secrets_file = \"/nowhere/s\" }", `actions[0].destination.secrets_file (semel.toml:4): `},
		{head + "destination = { kind = \"webhook\", url = \"https://example.com/\", secrets = [\"" + secretA + "\"], key_mode = \"none\", key_ttl = \"1h\" }", `actions[0].destination.key_ttl (semel.toml:4): with key_mode = "none"`},
		{head + "destination = { kind = \"webhook\", url = \"https://example.com/\", secrets = [\"" + secretA + "\"], key_mode = \"query\" }", `actions[0].destination.status_url (semel.toml:1): `},
		{head + "destination = { kind = \"webhook\", url = \"https://example.com/\", secrets = [\"" + secretA + "\"], server = \"x\" }", `actions[0].destination.server (semel.toml:4): a webhook has no use for it`},
		{head + to + "compensate.timeout = \"1s\"\ncompensate.key_mode = \"query\"", `actions[0].compensate.url (semel.toml:1): `},
		{dest, `destinations[0] (semel.toml:1): kind is missing`},
		{"[[destinations]]\nkind = \"email\"", `destinations[0] (semel.toml:1): name is missing`},
		{dest + to[:0] + "kind = \"webhook\"\nurl = \"https://example.com/\"\nsecrets = [\"" + secretA + "\"]\n" + dest, `destinations[1] (semel.toml:6): there is another destination named "d"`},
	} {
		c, err := load("semel.toml", []byte(tt.toml), environ{}, Source{})
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%q:\n got %v\nwant %s", tt.toml, err, tt.want)
		}
		if err != nil && (strings.Contains(err.Error(), secretA) || c != nil) {
			t.Errorf("%q: got a secret or a config: %v", tt.toml, err)
		}
	}
}

func TestOneMistakeInAnActionIsOneFinding(t *testing.T) {
	for _, change := range []struct{ from, to string }{
		{`timeout = "15s"`, `timeout = 15`},
		{`"` + secretA + `"`, `"whsec_AAAA"`},
		{`allow = ["127.0.0.0/8"]`, `allow = [1]`},
		{`approval = "ask"`, `approval = "aks"`},
		{`kind = "webhook", url = "http://127.0.0.1:9900/sign"`, `kind = "webhok", url = "http://127.0.0.1:9900/sign"`},
		{`"type":"object"`, `"type":"objekt"`},
		{`127.0.0.1:9900/sign`, `127.0.0.1:99000/sign`},
		{`127.0.0.1:9900/void`, `127.0.0.1:99000/void`},
	} {
		_, err := load("semel.toml", []byte(strings.Replace(documented, change.from, change.to, 1)), environ{}, Source{})
		if err == nil || strings.Count(err.Error(), "\n") != 0 {
			t.Errorf("%s: got %v", change.to, err)
		}
	}
}

func TestACompensationGoesWhereTheActionGoesUnlessItSaysOtherwise(t *testing.T) {
	own := func(keys string) *Target {
		t.Helper()
		return mustLoad(t, strings.Replace(documented, `{ kind = "webhook", url = "http://127.0.0.1:9900/void" }`, keys, 1)).Actions[0].Compensate
	}
	if got := own(`{ url = "http://127.0.0.1:9900/void" }`); got.Kind != "webhook" || got.Secrets[0] != secretA || len(got.Allow) != 1 {
		t.Errorf("without a kind: %s", spelled(*got))
	}
	got := own(`{ url = "https://example.com/", secrets = ["` + secretB + `"], max_attempts = 1, allow = [] }`)
	if len(got.Secrets) != 1 || got.Secrets[0] != secretB || got.MaxAttempts != 1 || len(got.Allow) != 0 {
		t.Errorf("with its own: %s", spelled(*got))
	}
	file := filepath.Join(t.TempDir(), "s")
	if err := os.WriteFile(file, []byte(secretB), 0o600); err != nil {
		t.Fatal(err)
	}
	if got = own(`{ url = "https://example.com/", secrets_file = "` + file + `" }`); got.Secrets[0] != secretB || len(got.Secrets) != 1 {
		t.Errorf("with a file: %s", spelled(*got))
	}
}

func TestSecretsOfDestinationsAreNotShown(t *testing.T) {
	c := mustLoad(t, `
[[actions]]
name = "a"
description = "Do it"
destination = { kind = "webhook", url = "https://user:hunter2@example.com/a?token=hunter2&x&y=hunter2", secrets = ["`+secretA+`"], key_mode = "query", status_url = "https://example.com/s?k=hunter2" }
[[destinations]]
name = "d"
kind = "webhook"
url = "https://example.com/d"
secrets = ["`+secretB+`"]
`)
	redactedText := printed(t, c, true)
	for _, secret := range []string{"hunter2", secretA, secretB, "user:"} {
		if strings.Contains(redactedText, secret) {
			t.Errorf("%s is shown in\n%s", secret, redactedText)
		}
	}
	for _, want := range []string{
		`destination.secrets = ["***"]`,
		`destination.url = "https://***@example.com/a?token=***&***&y=***"`,
		`destination.status_url = "https://example.com/s?k=***"`,
		"\nsecrets = [\"***\"]  # semel.toml:10\n",
	} {
		if !strings.Contains(redactedText, want) {
			t.Errorf("got\n%s\nwant it to contain %s", redactedText, want)
		}
	}
	if whole := printed(t, c, false); !strings.Contains(whole, secretA) || !strings.Contains(whole, secretB) {
		t.Errorf("not redacted:\n%s", whole)
	}
	if c.Actions[0].Destination.Secrets[0] != secretA || c.Destinations[0].Secrets[0] != secretB {
		t.Error("printing changed a secret")
	}
	encoded, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range []string{fmt.Sprintf("%v %+v %#v", c, c, c), fmt.Sprintf("%+v %#v", c.Actions, c.Destinations), string(encoded)} {
		if strings.Contains(s, secretA) || strings.Contains(s, "hunter2") {
			t.Errorf("a secret is in %s", s)
		}
	}
}

func TestEveryKeyOfActionsHasItsLine(t *testing.T) {
	for _, k := range actionKeys {
		if k.doc == "" || k.get == nil {
			t.Errorf("%s cannot be printed", k.name)
		}
	}
	got := printed(t, mustLoad(t, documented), true)
	for _, want := range []string{
		"\n\n[[actions]]\n# The name models ask for it by: letters, digits, _ and -.\nname = \"sign_contract\"  # semel.toml:3\n",
		"\ndescription = { en = \"Have a contract signed\", zh-CN = \"签署合同\" }  # semel.toml:4\n",
		"\nparameters = '{\"type\":\"object\",",
		"\ncompensate.secrets = [\"***\"]  # semel.toml:9\n",
		"\ndestination.key_ttl = \"24h\"  # default\n",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("got\n%s\nwant it to contain %q", got, want)
		}
	}
}
