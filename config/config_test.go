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
	"semel/seal"
)

func mustLoad(t *testing.T, toml string) *Config {
	t.Helper()
	c, err := load("semel.toml", []byte(toml), environ{}, Source{})
	if err != nil {
		t.Fatalf("load: %v", err)
	}
	return c
}

func TestNothingConfiguredIsTheDocumentedDefault(t *testing.T) {
	got := mustLoad(t, "")
	want := &Config{
		Listen: "127.0.0.1:8787", DB: "semel.db", Language: "auto",
		Limits:    Limits{Queue: 1000, PerUserPerMinute: 600, RunningPerUser: 8, MessageBytes: 262144, Attachments: 10, AttachmentBytes: 5 << 20, AttachedBytes: 20 << 20},
		Retention: Retention{Evidence: 720 * time.Hour, Uploads: 168 * time.Hour},
		Models: []Model{{
			Name: "demo", Provider: "demo", Price: chat.Price{Input: 150000, Cached: 75000, Output: 600000},
			Stream: true, Images: true, MaxAttempts: 3, MaxCrashReruns: 20, OnUnknown: "rerun",
			FirstTokenTimeout: 300 * time.Second, IdleTimeout: 120 * time.Second, Concurrency: 64,
		}},
		Server:   Server{Drain: 10 * time.Second},
		Sessions: Sessions{Idle: 12 * time.Hour, Absolute: 168 * time.Hour},
		Billing:  Billing{Currency: "USD"},
		Log:      "text", LogLevel: "info", Verify: Verify{Every: 24 * time.Hour},
		Backup: Backup{Every: 24 * time.Hour, Keep: 7, Weekly: 4, Monthly: 12, Directory: "backups"}, Disk: Disk{Ballast: 64 << 20},
		Alerts: []Alert{
			{On: "duplicate_rate", Threshold: 0.5}, {On: "duplicate_errors", Threshold: 10}, {On: "dead_letters"}, {On: "oldest_unfinished", Threshold: 600},
			{On: "latency", Threshold: 120}, {On: "outbox_oldest", Threshold: 600}, {On: "disk_free", Threshold: 1 << 30, Below: true}, {On: "backup_age", Threshold: 172800},
			{On: "wal_bytes", Threshold: 256 << 20}, {On: "invariant_violations"},
		},
		Lab:     Lab{"auto"},
		origins: map[string]string{},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

// recipient is a public half whose secret half nobody has.
const recipient = "age1dxj85mr9g2t66zguvyudlmlg2y707af3p7dxwp6rdx53fhz9092s0vnwr0"

func mustRecipients(list ...string) seal.Recipients {
	r, err := seal.ParseRecipients(list)
	if err != nil {
		panic(err)
	}
	return r
}

func TestEveryKeyCanBeSetInTheFile(t *testing.T) {
	c := mustLoad(t, `
listen = "[::1]:0"
db = "sub/other.db"
language = "zh-CN"
log = "json"
log_level = "debug"
verify.every = "1h"
limits = { queue = 1, per_user_per_minute = 2, running_per_user = 3, spend_per_user_per_day = 7, message_bytes = "64KiB", attachments = 4, attachment_bytes = 5, attached_bytes = 6 }
retention.evidence = "1h30m"
retention.uploads = "2h"
[server]
drain = "0s"
tls_cert = "/c"
tls_key = "/k"
tls_self_signed = false
trusted_proxies = ["10.0.0.0/8"]
[sessions]
idle = "1h"
absolute = "2h"
[billing]
currency = "EUR"
deliver = ""
[lab]
enabled = "off"
[backup]
every = "0s"
keep = 3
keep_weekly = 0
keep_monthly = 24
directory = "/mnt/backups"
encrypt_to = ["`+recipient+`"]
[disk]
ballast = "1MiB"
[[models]]
name = "a"
provider = "demo"
price = { input = 1, cached = 2, output = 3 }
context = 4
max_attempts = 5
max_crash_reruns = 0
on_unknown = "ask"
first_token_timeout = "6s"
idle_timeout = "7s"
concurrency = 8
images = false
background = false
[[models]]
name = "b"
provider = "demo"
price.input = 9
price.output = 10
`)
	c.origins = nil
	want := &Config{
		Listen: "[::1]:0", DB: filepath.FromSlash("sub/other.db"), Language: "zh-CN",
		Limits:    Limits{1, 2, 3, 7, 65536, 4, 5, 6},
		Retention: Retention{90 * time.Minute, 2 * time.Hour},
		Server:    Server{TLSCert: "/c", TLSKey: "/k", TrustedProxies: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}},
		Sessions:  Sessions{time.Hour, 2 * time.Hour},
		Billing:   Billing{"EUR", ""},
		Log:       "json", LogLevel: "debug", Verify: Verify{time.Hour}, Alerts: defaultAlerts(),
		Lab:    Lab{"off"},
		Backup: Backup{0, 3, 0, 24, "/mnt/backups", mustRecipients(recipient)},
		Disk:   Disk{1 << 20},
		Models: []Model{
			{Name: "a", Provider: "demo", Price: chat.Price{Input: 1, Cached: 2, Output: 3}, Context: 4, Stream: true, MaxAttempts: 5, OnUnknown: "ask",
				FirstTokenTimeout: 6 * time.Second, IdleTimeout: 7 * time.Second, Concurrency: 8},
			{Name: "b", Provider: "demo", Price: chat.Price{Input: 9, Cached: 9, Output: 10}, Stream: true, Images: true, MaxAttempts: 3, MaxCrashReruns: 20, OnUnknown: "rerun",
				FirstTokenTimeout: 300 * time.Second, IdleTimeout: 120 * time.Second, Concurrency: 64},
		},
	}
	if !reflect.DeepEqual(c, want) {
		t.Errorf("got  %+v\nwant %+v", c, want)
	}
}

func TestWhatIsWrongIsNamedWithKeyValueAndPlace(t *testing.T) {
	model := "[[models]]\nname = \"m\"\nprovider = \"demo\"\n"
	for _, tt := range []struct{ toml, want string }{
		{"limits.queue = 0", `limits.queue = 0 (semel.toml:1): must be between 1 and 1000000`},
		{"\n[limits]\n\nqueue = \"many\"", `limits.queue = "many" (semel.toml:4): must be a whole number`},
		{"limits = { queue = 1,\n per_user_per_minute = -1 }", `limits.per_user_per_minute = -1 (semel.toml:2): must be between`},
		{"limits.queue = 1.5", `limits.queue = 1.5 (semel.toml:1): must be a whole number`},
		{"limits.queue = 9223372036854775808", `semel.toml:1:`},
		{"limits.spend_per_user_per_day = -4", `limits.spend_per_user_per_day = -4 (semel.toml:1): must be between`},
		{"limits.message_bytes = \"1TiB\"", `limits.message_bytes = "1TiB" (semel.toml:1): must be a whole number of bytes`},
		{"limits.message_bytes = \"17MiB\"", `must be between 1 and 16777216`},
		{"limits.message_bytes = \"9223372036854775807KiB\"", `must be a whole number of bytes`},
		{"retention.evidence = 720", `retention.evidence = 720 (semel.toml:1): must be a duration`},
		{"retention.evidence = \"30d\"", `retention.evidence = "30d" (semel.toml:1): must be a duration`},
		{"retention.evidence = \"59m\"", `must be between 1h and`},
		{"server.drain = \"11m\"", `server.drain = "11m" (semel.toml:1): must be between 0s and 10m`},
		{"listen = 8787", `listen = 8787 (semel.toml:1): must be a string`},
		{"listen = 1979-05-27", `must be a string`},
		{"listen = \"localhost\"", `must be an address and a port`},
		{"listen = \"localhost:http\"", `the port must be a number`},
		{"db = \"\"", `db = "" (semel.toml:1): must not be empty`},
		{"db = \":memory:\"", `plain file path`},
		{"db = \"file:x.db?mode=ro\"", `plain file path`},
		{"language = \"de\"", `language = "de" (semel.toml:1): must be one of auto, en, zh-CN`},
		{"billing.currency = \"usd\"", `three capital letters`},
		{"limits = 3", `limits (semel.toml:1): must be a table`},
		{"[[limits]]\nqueue = 3", `limits (semel.toml:1): must be a table`},

		{"lisen = \"x\"", `unknown key "lisen" (semel.toml:1); the nearest known key is "listen"`},
		{"[limit]\nqueue = 3", `unknown key "limit.queue" (semel.toml:2); the nearest known key is "limits.queue"`},
		{"queue = 3", `unknown key "queue" (semel.toml:1); the nearest known key is "limits.queue"`},
		{"[server]\nlisten = \"127.0.0.1:1\"", `unknown key "server.listen" (semel.toml:2); the nearest known key is "listen"`},
		{"[[model]]\nname = \"x\"", `unknown key "model" (semel.toml:1)`},
		{"[nothing]", `unknown key "nothing" (semel.toml:1)`},
		{"listen.port = 1", `unknown key "listen.port" (semel.toml:1)`},
		{"\"limits.queue\" = 3", `unknown key "\"limits.queue\"" (semel.toml:1); the nearest known key is "limits.queue"`},
		{model + "concurency = 1", `unknown key "models.concurency" (semel.toml:4); the nearest known key is "models.concurrency"`},
		{model + "price.inptu = 1", `unknown key "models.price.inptu" (semel.toml:4); the nearest known key is "models.price.input"`},

		{"a = 1\na = 2", `semel.toml:2: `},
		{"a = ", `semel.toml:1: `},

		{model + "price = 1", `models.price (semel.toml:4): must be a table`},
		{model + "[models.price]\ninput = -1\noutput = 1", `models[0].price.input = -1 (semel.toml:5): must be between`},
		{model + "price.input = 1", `models[0] (semel.toml:1): a price needs input and output`},
		{model + "max_attempts = 0", `models[0].max_attempts = 0 (semel.toml:4): must be between 1 and`},
		{model + "on_unknown = \"guess\"", `models[0].on_unknown = "guess" (semel.toml:4): must be one of rerun, ask`},
		{model + "idle_timeout = \"0s\"", `models[0].idle_timeout = "0s" (semel.toml:4): must be between 1ms and 24h`},
		{model + "url = \"http://127.0.0.1:1\"", `models[0].url (semel.toml:4): the provider "demo" has no use for it`},
		{model + "key = \"k\"", `models[0].key (semel.toml:4): the provider "demo" has no use for it`},
		{model + model, `models[1] (semel.toml:4): there is another model named "m"`},
		{model + "\n" + model + "context = -1", `models[1].context = -1 (semel.toml:8)`},
		{"models = [\n{ name = \"m\", provider = \"demo\" },\n{ name = \"n\", provider = \"demo\", context = -1 } ]", `models[1].context = -1 (semel.toml:3)`},
		{"[[models]]\nprovider = \"demo\"", `models[0] (semel.toml:1): name is missing`},
		{"[[models]]\nname = \"m\"", `models[0] (semel.toml:1): provider is missing`},
		{"[[models]]\nname = \" \"\nprovider = \"demo\"", `models[0].name = " " (semel.toml:2): must be`},
		{"models = 1", `models (semel.toml:1): must be written as [[models]]`},
		{"models = [1]", `models[0] (semel.toml:1): must be a table`},

		{"[[alerts]]\non = \"disk_free\"", `alerts[0] (semel.toml:1): say when: above or below, or off = true`},
		{"[[alerts]]\non = \"disk_free\"\nabove = 7", `alerts[0].above = 7 (semel.toml:3): disk_free is set with below`},
		{"[[alerts]]\non = \"latency\"\nbelow = \"1s\"", `alerts[0].below = "1s" (semel.toml:3): latency is set with above`},
		{"[[alerts]]\non = \"latency\"\nabove = 5", `alerts[0].above = 5 (semel.toml:3): must be a duration like "10s", "5m" or "720h"`},
		{"[[alerts]]\non = \"latency\"\nabove = \"0s\"", `alerts[0].above = "0s" (semel.toml:3): must be a duration like "10s", "5m" or "720h"`},
		{"[[alerts]]\non = \"duplicate_rate\"\nabove = 50", `alerts[0].above = 50 (semel.toml:3): must be a share from 0 to 1`},
		{"[[alerts]]\non = \"dead_letters\"\nabove = 0.5", `alerts[0].above = 0.5 (semel.toml:3): must be a whole number, 0 or more`},
		{"[[alerts]]\non = \"disk_free\"\nbelow = \"much\"", `alerts[0].below = "much" (semel.toml:3): must be a whole number of bytes, or one with KiB, MiB or GiB`},
		{"[[alerts]]\non = \"nothing\"\nabove = 1", `alerts[0].on = "nothing" (semel.toml:2): must be one of duplicate_rate, duplicate_errors, dead_letters, oldest_unfinished, latency, outbox_oldest, disk_free, backup_age, wal_bytes, invariant_violations`},
		{"[[alerts]]\nabove = 1", `alerts[0] (semel.toml:1): on is missing`},
		{"[[alerts]]\non = \"latency\"\noff = true\n[[alerts]]\non = \"latency\"\nabove = \"1s\"", `alerts[1] (semel.toml:4): there is another alert on "latency"`},
		{"[[alerts]]\non = \"latency\"\nover = \"1s\"", `unknown key "alerts.over" (semel.toml:3); the nearest known key is "alerts.on"`},
		{"log = \"xml\"", `log = "xml" (semel.toml:1): must be one of text, json`},
		{"[server]\ntls_cert = \"a.pem\"", `server.tls_cert and server.tls_key go together (semel.toml:2)`},
		{"[server]\ntls_cert = \"a.pem\"\ntls_key = \"b.pem\"\ntls_self_signed = true", `there is a certificate already`},
		{"[server]\ntrusted_proxies = [\"proxy.lan\"]", `"proxy.lan" is no address and no range`},
		{"[server]\ntrusted_proxies = [\"0.0.0.0/0\"]", `0.0.0.0/0 is everybody`},
		{"[server]\ntrusted_proxies = \"10.0.0.1\"", `must be a list of strings`},
		{"[sessions]\nidle = \"0s\"", `must be between`},
		{"[backup]\nevery = \"daily\"", `backup.every = "daily" (semel.toml:2): must be a duration`},
		{"[backup]\nkeep = 0", `backup.keep = 0 (semel.toml:2): must be between 1 and 10000`},
		{"[backup]\nkeep_weekly = -1", `backup.keep_weekly = -1 (semel.toml:2): must be between 0 and 1000`},
		{"[backup]\nkeep_monthly = 1.5", `backup.keep_monthly = 1.5 (semel.toml:2): must be a whole number`},
		{"[backup]\nencrypt_to = \"" + recipient + "\"", `must be a list of strings`},
		{"[backup]\nencrypt_to = [\"age1short\"]", `"age1short" is no recipient of age, like age1…: age-keygen makes one`},
		{"[backup]\nencrypt_to = [\"" + recipient + "\", \"\"]", `"" is no recipient`},
		{"[backup]\nencrypt_to = [\"AGE-SECRET-KEY-1QQQ\"]", `backup.encrypt_to = […] (semel.toml:2): has a secret key: name the age1…`},
		{"[backup]\nkeep_daily = 7", `unknown key "backup.keep_daily" (semel.toml:2); the nearest known key is "backup.keep`},
		{"[disk]\nballast = \"a lot\"", `disk.ballast = "a lot" (semel.toml:2): must be a whole number of bytes`},
		{"[billing]\ndeliver = \"x\"", `billing.deliver = "x" (semel.toml:2): no [[destinations]] has that name`},
	} {
		c, err := load("semel.toml", []byte(tt.toml), environ{}, Source{})
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%q: got error %v, want one with %q", tt.toml, err, tt.want)
		}
		if c != nil {
			t.Errorf("%q: got a config beside the error", tt.toml)
		}
	}
}

func TestEverythingWrongIsReportedAtOnce(t *testing.T) {
	_, err := load("semel.toml", []byte("zzz = 1\nlimits.queue = 0\nlanguage = \"de\""), environ{}, Source{})
	if got := strings.Count(err.Error(), "\n") + 1; got != 3 {
		t.Errorf("got %d findings, want 3:\n%v", got, err)
	}
}

func TestAKeyIsNeverInAMessage(t *testing.T) {
	for _, given := range []string{`key = "hunter2"`, `key = "hunter2`, `key = hunter2`, `key = ["hunter2"]`, `key.x = "hunter2"`, `kee = "hunter2"`, "key = \"hunter2\"\nkey_file = \"x\""} {
		_, err := load("semel.toml", []byte("[[models]]\nname = \"m\"\nprovider = \"demo\"\n"+given), environ{}, Source{})
		if err == nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: got %v", given, err)
		}
	}
	if got := fmt.Sprintf("%v %+v %#v %q %x", Secret("hunter2"), Model{Key: "hunter2"}, Model{Key: "hunter2"}, Secret("hunter2"), Secret("hunter2")); strings.Contains(got, "hunter2") || strings.Contains(got, "68756e74") {
		t.Errorf("a secret shows itself: %s", got)
	}
	if b, err := json.Marshal(Model{Key: "hunter2"}); err != nil || strings.Contains(string(b), "hunter2") {
		t.Errorf("a secret shows itself in JSON: %s %v", b, err)
	}
}

func TestFlagBeatsEnvironmentBeatsFileBeatsDefault(t *testing.T) {
	dir := t.TempDir()
	db := filepath.Join(dir, "x.db")
	file := filepath.Join(dir, FileName)
	write(t, file, "listen = \"127.0.0.1:1\"\nlanguage = \"en\"\n[limits]\nqueue = 11\nmessage_bytes = 12\n")
	c, err := Load(Source{
		Flags:   map[string]string{"db": db, "listen": "127.0.0.1:3"},
		Environ: []string{"PATH=/bin", "SEMEL_LISTEN=127.0.0.1:2", "SEMEL_LIMITS_QUEUE=22", "SEMEL_DB=elsewhere.db", "SEMEL_RETENTION_EVIDENCE=2h", "SEMEL_SERVER_TLS_CERT="},
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		key       string
		got, want any
		origin    string
	}{
		{"listen", c.Listen, "127.0.0.1:3", "flag --listen"},
		{"db", c.DB, db, "flag --db"},
		{"limits.queue", c.Limits.Queue, 22, "env SEMEL_LIMITS_QUEUE"},
		{"limits.message_bytes", c.Limits.MessageBytes, int64(12), file + ":5"},
		{"language", c.Language, "en", file + ":2"},
		{"retention.evidence", c.Retention.Evidence, 2 * time.Hour, "env SEMEL_RETENTION_EVIDENCE"},
		{"server.drain", c.Server.Drain, 10 * time.Second, "default"},
		{"models[0].name", c.Models[0].Name, "demo", "default"},
	} {
		if tt.got != tt.want || c.Origin(tt.key) != tt.origin {
			t.Errorf("%s: got %v from %q, want %v from %q", tt.key, tt.got, c.Origin(tt.key), tt.want, tt.origin)
		}
	}
}

func TestAnOverriddenValueDoesNoHarm(t *testing.T) {
	c, err := load("semel.toml", []byte("listen = \"0.0.0.0:1\""), environ{}, Source{Flags: map[string]string{"listen": "127.0.0.1:1"}})
	if err != nil || c.Listen != "127.0.0.1:1" {
		t.Errorf("got %v, %v", c, err)
	}
}

func TestEnvironmentErrorsNameTheVariable(t *testing.T) {
	for _, tt := range []struct{ env, want string }{
		{"SEMEL_LIMITS_QUEU=3", `unknown environment variable SEMEL_LIMITS_QUEU; the nearest known one is SEMEL_LIMITS_QUEUE`},
		{"SEMEL_PORT=80", `unknown environment variable SEMEL_PORT; the nearest known one is SEMEL_`},
		{"SEMEL_LIMITS_QUEUE=many", `limits.queue = "many" (env SEMEL_LIMITS_QUEUE): must be a whole number`},
		{"SEMEL_LIMITS_QUEUE=", `limits.queue = "" (env SEMEL_LIMITS_QUEUE): must be a whole number`},
		{"SEMEL_LISTEN=", `listen = "" (env SEMEL_LISTEN): must be an address`},
		{"SEMEL_SERVER_TLS_SELF_SIGNED=yes", `must be true or false`},
		{"SEMEL_LISTEN=\xff:1", `(env SEMEL_LISTEN): must be UTF-8`},
		{"SEMEL_BACKUP_ENCRYPT_TO=AGE-SECRET-KEY-1QQQ", `backup.encrypt_to = *** (env SEMEL_BACKUP_ENCRYPT_TO): has a secret key`},
		{"SEMEL_BACKUP_KEEP=all", `backup.keep = "all" (env SEMEL_BACKUP_KEEP): must be a whole number`},
		{"SEMEL_CONFIG=", `SEMEL_CONFIG must not be empty`},
		{"SEMEL_CONFIG=/does/not/exist.toml", `no such file`},
	} {
		_, err := Load(Source{Environ: []string{tt.env}, Flags: map[string]string{"db": filepath.Join(t.TempDir(), "x.db")}})
		if err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: got error %v, want one with %q", tt.env, err, tt.want)
		}
	}
}

func TestTheFileIsFoundBesideTheDatabaseOrWhereItIsNamed(t *testing.T) {
	dir := t.TempDir()
	db := filepath.Join(dir, "x.db")
	named := filepath.Join(t.TempDir(), "named.toml")
	flags := map[string]string{"db": db}

	if c, err := Load(Source{Flags: flags}); err != nil || c.Language != "auto" {
		t.Fatalf("no file: got %v, %v", c, err)
	}
	write(t, filepath.Join(dir, FileName), `language = "en"`)
	if c, err := Load(Source{Flags: flags}); err != nil || c.Language != "en" {
		t.Errorf("beside the --db: got %v, %v", c, err)
	}
	if c, err := Load(Source{Environ: []string{"SEMEL_DB=" + db}}); err != nil || c.Language != "en" {
		t.Errorf("beside SEMEL_DB: got %v, %v", c, err)
	}
	if _, err := Load(Source{Flags: flags, File: named}); err == nil {
		t.Error("a named file that is missing: got no error")
	}
	write(t, named, "language = \"zh-CN\"\ndb = \"rel.db\"")
	if c, err := Load(Source{Flags: flags, File: named}); err != nil || c.Language != "zh-CN" || c.DB != db {
		t.Errorf("named: got %v, %v", c, err)
	}
	c, err := Load(Source{Environ: []string{"SEMEL_CONFIG=" + named}})
	if want := filepath.Join(filepath.Dir(named), "rel.db"); err != nil || c.DB != want {
		t.Errorf("db of a named file: got %v, %v, want db %s", c, err, want)
	}
	if _, err := Load(Source{File: dir}); err == nil || !strings.Contains(err.Error(), "not a regular file") {
		t.Errorf("a folder: got %v", err)
	}
	big := filepath.Join(dir, "big.toml")
	write(t, big, strings.Repeat("#\n", maxFileBytes))
	if _, err := Load(Source{File: big}); err == nil || !strings.Contains(err.Error(), "larger than") {
		t.Errorf("a huge file: got %v", err)
	}
}

func TestPrintNamesValueOriginAndMeaning(t *testing.T) {
	c, err := load("semel.toml", []byte("[limits]\nqueue = 5\n"), environ{values: map[string]value{"listen": {val: "127.0.0.1:9", text: true, origin: "env SEMEL_LISTEN"}}}, Source{})
	if err != nil {
		t.Fatal(err)
	}
	got := printed(t, c, true)
	for _, want := range []string{
		"\nlisten = \"127.0.0.1:9\"  # env SEMEL_LISTEN\n",
		"\n\n[limits]\n# Requests that may wait; one more is answered 503 with Retry-After.\nqueue = 5  # semel.toml:2\n",
		"\nevidence = \"720h\"  # default\n",
		"\n\n[[models]]\n# The name people choose it by.\nname = \"demo\"  # default\n",
		"\nprice.input = 150000  # default\n",
		"\non_unknown = \"rerun\"  # default\n",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("got\n%s\nwant it to contain %q", got, want)
		}
	}
	for _, k := range configKeys {
		if (k.get != nil) != (k.doc != "") {
			t.Errorf("%s is printed without a line of documentation, or has one and is not", k.name)
		}
	}
}

func TestPrintRedactsKeys(t *testing.T) {
	c := Default()
	c.Models[0].Key = "hunter2"
	if got := printed(t, c, true); strings.Contains(got, "hunter2") || !strings.Contains(got, `key = "***"`) {
		t.Errorf("redacted: got\n%s", got)
	}
	if got := printed(t, c, false); !strings.Contains(got, `key = "hunter2"`) {
		t.Errorf("not redacted: got\n%s", got)
	}
	c.Models[0].KeyFile = "/run/key"
	if got := printed(t, c, false); strings.Contains(got, "hunter2") || !strings.Contains(got, `key_file = "/run/key"`) {
		t.Errorf("from a file: got\n%s", got)
	}
	if c.Models[0].Key != "hunter2" {
		t.Error("printing changed the key")
	}
}

func TestLoopbackIsWhatOnlyThisMachineReaches(t *testing.T) {
	for _, addr := range []string{"127.0.0.1:8787", "127.0.0.1", "127.9.9.9:1", "[::1]:8787", "::1", "[::1]", "localhost:1", "LOCALHOST:1", "[::ffff:127.0.0.1]:1"} {
		if !Loopback(addr) {
			t.Errorf("%s is not loopback", addr)
		}
	}
	for _, addr := range []string{"", ":8787", "0.0.0.0:8787", "0.0.0.0", "[::]:8787", "192.168.0.1:1", "10.0.0.1:1", "example.com:80", "localhost.:80", "localhost.example.com:80", "127.1:80", "0177.0.0.1:80", "2130706433:80", "127.0.0.1.example.com:80", "[::ffff:10.0.0.1]:1"} {
		if Loopback(addr) {
			t.Errorf("%s is loopback", addr)
		}
	}
}

func TestTLSAndProxiesAreReadFromWhereTheyStand(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "semel.toml")
	write(t, path, "[server]\ntls_cert = \"cert.pem\"\ntls_key = \"/keys/key.pem\"\ntrusted_proxies = [\"10.0.0.2\", \"fd00::/8\"]\n")
	c, err := Load(Source{File: path})
	if err != nil {
		t.Fatal(err)
	}
	if c.Server.TLSCert != filepath.Join(dir, "cert.pem") || c.Server.TLSKey != "/keys/key.pem" || fmt.Sprint(c.Server.TrustedProxies) != "[10.0.0.2/32 fd00::/8]" {
		t.Errorf("%+v", c.Server)
	}
	c, err = Load(Source{Environ: []string{"SEMEL_SERVER_TLS_SELF_SIGNED=true", "SEMEL_SERVER_TRUSTED_PROXIES=10.1.2.3/16, ::1", "SEMEL_DB=" + filepath.Join(dir, "x", "y.db")}})
	if err != nil || !c.Server.TLSSelfSigned || fmt.Sprint(c.Server.TrustedProxies) != "[10.1.0.0/16 ::1/128]" {
		t.Errorf("%+v %v", c, err)
	}
}

// FuzzFile looks for a file that panics, or whose configuration does not come
// back when it is printed and read again.
func FuzzFile(f *testing.F) {
	f.Add("listen = \"127.0.0.1:1\"\n[limits]\nqueue = 5\n[[models]]\nname = \"m\"\nprovider = \"demo\"\nprice = { input = 1, output = 2 }\n")
	f.Add("[[models]]\nname = \"m\"\npreset = \"ollama\"\nstream = false\n[[models]]\nname = \"n\"\nprovider = \"openai-responses\"\nurl = \"https://x/v1\"\nkey = \"k\"\nbackground = true\n")
	f.Add("models = [ { name = \"é\\u0001\", provider = \"demo\" }, # x\n ]\n")
	f.Add("[[a.b]]\nc = 1\n[[a.b]]\n[a.b.c]\nd = [[1], {e = 2}]\n")
	f.Add("limits.queue = 0x10\nretention.evidence = '1h'\ndb = \"a\\\"b\\\\c\"")
	f.Add("\"\" = 1\n'x.y'.z = 2021-01-01T00:00:00Z\n")
	f.Fuzz(func(t *testing.T, doc string) {
		c, err := load("semel.toml", []byte(doc), environ{}, Source{Presets: testPresets})
		if err != nil {
			if c != nil {
				t.Fatal("a config beside an error")
			}
			return
		}
		again, err := load("semel.toml", []byte(printed(t, c, false)), environ{}, Source{Presets: testPresets})
		if err != nil {
			t.Fatalf("printed and read again: %v\n%s", err, printed(t, c, false))
		}
		c.origins, again.origins = nil, nil
		if !reflect.DeepEqual(c, again) {
			t.Fatalf("printed and read again:\n%+v\nwas\n%+v", again, c)
		}
	})
}

func printed(t *testing.T, c *Config, redact bool) string {
	t.Helper()
	var b strings.Builder
	if err := c.Print(&b, redact); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}
