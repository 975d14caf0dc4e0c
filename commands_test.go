package main

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// semel runs the command line in a folder of its own and an empty environment.
func semel(t *testing.T, environ []string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs strings.Builder
	code = run(t.Context(), args, environ, &out, &errs)
	return code, out.String(), errs.String()
}

func TestWrongUsageExitsWithTwo(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, tt := range []struct{ args, want string }{
		{"servee", `unknown command "servee"`},
		{"serve extra", `unknown command "extra"`},
		{"verify extra", `unknown command "extra"`},
		{"--nope", `unknown flag: --nope`},
		{"version --db x", `unknown flag: --db`},
		{"verify --listen 127.0.0.1:1", `unknown flag: --listen`},
		{"config", `say print or check`},
		{"config prnt", `unknown command "prnt"`},
		{"models", `say list or test`},
		{"models lst", `unknown command "lst"`},
		{"models list demo", `unknown command "demo"`},
		{"models test demo more", `accepts at most 1 arg`},
		{"models test nope", `no model "nope" is configured`},
		{"models test --timeout 0s", `--timeout must be longer than nothing`},
		{"models test --timeout soon", `invalid argument "soon"`},
		{"sink extra", `unknown command "extra"`},
		{"sink --behaviour answer=maybe", `answer must be one of ok, slow`},
		{"sink --secret whsec_short", `secret: no usable secret`},
		{"sink --callback 127.0.0.1:8787", `callback url: must be an http or https address`},
		{"lab nope", `there is no scenario "nope"`},
		{"lab storm extra", `accepts at most 1 arg`},
		{"lab --runs 0", `--runs must be at least 1`},
		{"lab --seed x", `invalid argument "x"`},
		{"lab-naive extra", `unknown command "extra"`},
		{"user", `say add, passwd, role, disable, enable or list`},
		{"user add", `accepts 1 arg`},
		{"user add a/b", `"a/b" is no name`},
		{"user add ada --role root", `--role must be one of member, operator, admin`},
		{"user role ada root", `the role must be one of member, operator, admin`},
		{"user disable ada", `semel.db`},
		{"user list", `semel.db`},
		{"key", `say add, revoke or list`},
		{"key add --scope chat", `--user`},
		{"key add --user ada --scope all", `--scope must be chat or ops`},
		{"key revoke x", `"x" is no number of a key`},
		{"key list", `semel.db`},
		{"serve --config=", `--config must not be empty`},
		{"serve --db=", `must not be empty`},
		{"serve --config missing.toml", `missing.toml`},
		{"verify", `semel.db`},
		{"verify --db missing.db", `missing.db`},
		{"--db missing.db verify", `missing.db`},
	} {
		code, _, stderr := semel(t, nil, strings.Fields(tt.args)...)
		if code != 2 || !strings.Contains(stderr, tt.want) {
			t.Errorf("semel %s: got exit %d and %q, want 2 and %q", tt.args, code, stderr, tt.want)
		}
	}
	if entries, _ := os.ReadDir("."); len(entries) > 0 {
		t.Errorf("wrong usage left %s behind", entries[0].Name())
	}
}

func TestConfigPrintShowsOrigins(t *testing.T) {
	dir := t.TempDir()
	db := filepath.Join(dir, "x.db")
	if err := os.WriteFile(filepath.Join(dir, "semel.toml"), []byte("limits.queue = 7\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"config", "print", "--db", db, "--redacted"},
		{"config", "--db", db, "print", "--redacted"},
		{"--db", db, "config", "print", "--redacted"},
	} {
		code, stdout, stderr := semel(t, []string{"SEMEL_LANGUAGE=en"}, args...)
		for _, want := range []string{
			"queue = 7  # " + filepath.Join(dir, "semel.toml") + ":1\n",
			"language = \"en\"  # env SEMEL_LANGUAGE\n",
			"  # flag --db\n",
			"listen = \"127.0.0.1:8787\"  # default\n",
		} {
			if code != 0 || !strings.Contains(stdout, want) {
				t.Errorf("semel %v: got exit %d, %s\n%s\nwant %q", args, code, stderr, stdout, want)
			}
		}
	}
}

func TestConfigCheckListsWhatIsWrong(t *testing.T) {
	t.Chdir(t.TempDir())
	if code, stdout, stderr := semel(t, nil, "config", "check"); code != 0 || stdout == "" || stderr != "" {
		t.Errorf("nothing configured: got exit %d, %q, %q", code, stdout, stderr)
	}
	if err := os.WriteFile("semel.toml", []byte("lisen = \"x\"\nlimits.queue = 0\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	code, _, stderr := semel(t, []string{"HOME=/"}, "config", "check")
	if code != 2 || !strings.Contains(stderr, `"lisen" (semel.toml:1)`) || !strings.Contains(stderr, "limits.queue = 0 (semel.toml:2)") {
		t.Errorf("got exit %d and %q, want 2 and both findings", code, stderr)
	}
}

func TestHealthcheckTellsByItsExitCode(t *testing.T) {
	t.Chdir(t.TempDir())
	status, path := http.StatusOK, ""
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		path = r.Method + " " + r.URL.Path
		w.WriteHeader(status)
	}))
	addr := server.Listener.Addr().String()
	environ := []string{"SEMEL_LISTEN=" + addr}

	if code, _, stderr := semel(t, environ, "healthcheck"); code != 0 || path != "GET /healthz" {
		t.Errorf("healthy: got exit %d after %s: %s", code, path, stderr)
	}
	status = http.StatusServiceUnavailable
	if code, _, stderr := semel(t, environ, "healthcheck"); code != 1 || !strings.Contains(stderr, "503") {
		t.Errorf("ill: got exit %d: %s, want 1", code, stderr)
	}
	status = http.StatusFound
	if code, _, _ := semel(t, environ, "healthcheck"); code != 1 {
		t.Errorf("somebody else's redirect: got exit %d, want 1", code)
	}
	server.Close()
	if code, _, _ := semel(t, nil, "healthcheck", "--listen", addr); code != 1 {
		t.Errorf("gone: got exit %d, want 1", code)
	}
}

func TestVersionNamesSQLiteAndGo(t *testing.T) {
	defer func(v string) { version = v }(version)
	version = "1.2.3"
	code, stdout, _ := semel(t, nil, "version")
	lines := strings.Split(strings.TrimSpace(stdout), "\n")
	if code != 0 || len(lines) != 3 || !strings.HasPrefix(lines[0], "semel 1.2.3") ||
		!strings.HasPrefix(lines[1], "SQLite 3.") || !strings.HasPrefix(lines[2], "Go 1.") {
		t.Errorf("got exit %d, %q", code, stdout)
	}
}
