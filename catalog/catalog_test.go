package catalog_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"

	"semel/catalog"
	"semel/chat"
	"semel/config"
	"semel/db"
	"semel/db/dbtest"
	"semel/engine"
	"semel/llm"
	"semel/llm/llmtest"
	"semel/seal"
)

const key = "sk-canary-0123456789abcd"

// A rig is a catalog over a file. Its models are called as the program calls them.
type rig struct {
	t   *testing.T
	d   *db.DB
	box *seal.Box
	log bytes.Buffer
	c   *catalog.Catalog

	built []config.Model // what Build was asked for, with keys
}

var presets = []config.Preset{{Name: "house", Provider: config.ProviderOpenAI, URL: "https://house.example/v1"}}

func newRig(t *testing.T) *rig {
	t.Helper()
	path := filepath.Join(t.TempDir(), "test.db")
	r := &rig{t: t, d: dbtest.OpenAt(t, path, nil), box: seal.At(path + ".key")}
	r.open()
	return r
}

// open opens the catalog as a new start of the program would.
func (r *rig) open() {
	r.t.Helper()
	transport := llm.NewTransport()
	r.t.Cleanup(transport.Close)
	var err error
	r.c, err = catalog.Open(context.Background(), catalog.Options{
		DB: r.d, Box: r.box, Presets: presets, File: []config.Model{{Name: "demo", Provider: config.ProviderDemo, Key: "sk-of-the-file-012345"}},
		Build: func(m config.Model) engine.Model {
			r.built = append(r.built, m)
			if m.Provider == config.ProviderDemo {
				return engine.Model{Name: m.Name, Client: llmtest.New(llmtest.Answer("demo"))}
			}
			return engine.Model{Name: m.Name, Client: llm.NewOpenAI(transport, llm.Endpoint{URL: m.URL, Key: string(m.Key)})}
		},
		Log: slog.New(slog.NewTextHandler(&r.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
	})
	if err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) add(given map[string]string) {
	r.t.Helper()
	if err := r.c.Add(context.Background(), chat.NewID(), given); err != nil {
		r.t.Fatal(err)
	}
}

// key returns the key that the model of that name is called with.
func (r *rig) key(name string) string {
	r.t.Helper()
	r.built = nil
	r.c.Models()
	for _, m := range r.built {
		if m.Name == name {
			return string(m.Key)
		}
	}
	return "(not in force)"
}

func (r *rig) entry(name string) catalog.Entry {
	r.t.Helper()
	for _, e := range r.c.Entries() {
		if e.Name == name {
			return e
		}
	}
	r.t.Fatalf("there is no %s", name)
	return catalog.Entry{}
}

func wrong(t *testing.T, err error, field string, want error) {
	t.Helper()
	var v catalog.Invalid
	if !errors.As(err, &v) || len(v) != 1 || !errors.Is(v[field], want) {
		t.Errorf("got %v, want %s: %v", err, field, want)
	}
	if err != nil && strings.Contains(err.Error(), key) {
		t.Errorf("the error has the key: %v", err)
	}
}

var bg = context.Background()

func local(more ...string) map[string]string {
	m := map[string]string{"name": "mine", "provider": "openai", "url": "http://127.0.0.1:9/v1", "key": key, "upstream_model": "big"}
	for i := 0; i < len(more); i += 2 {
		m[more[i]] = more[i+1]
	}
	return m
}

func TestAKeyIsSealedComesBackAndIsShownToNobody(t *testing.T) {
	r := newRig(t)
	r.add(local())
	for range 2 {
		if got := r.key("mine"); got != key {
			t.Errorf("the model is called with %q", got)
		}
		e := r.entry("mine")
		if e.Key != "" || !e.HasKey || e.Tail != "abcd" || e.FromFile || e.Trouble != "" {
			t.Errorf("got %+v", e)
		}
		if e := r.entry("demo"); e.Key != "" || !e.FromFile || e.Tail != "2345" {
			t.Errorf("of the file: %+v", e)
		}
		r.open() // and after a restart
	}
	files, err := filepath.Glob(filepath.Join(filepath.Dir(r.d.Path()), "*"))
	if err != nil || len(files) < 2 {
		t.Fatal(files, err)
	}
	for _, f := range files {
		if content, err := os.ReadFile(f); err != nil || bytes.Contains(content, []byte(key)) {
			t.Errorf("%s has the key (%v)", f, err)
		}
	}
	if strings.Contains(r.log.String(), key) || !strings.Contains(r.log.String(), "connected") {
		t.Errorf("the log: %s", r.log.String())
	}
	r.add(local("name", "short", "key", "sk-1234"))
	if e := r.entry("short"); e.Tail != "" || !e.HasKey {
		t.Errorf("a short key shows %q", e.Tail)
	}
}

func TestAModelWhoseKeyCannotBeReadSaysWhyAndTheRestWorks(t *testing.T) {
	r := newRig(t)
	r.add(local())
	r.add(local("name", "open", "key", ""))
	saved, err := os.ReadFile(r.box.Path())
	if err != nil {
		t.Fatal(err)
	}
	check := func(want catalog.Trouble, inForce int) {
		t.Helper()
		r.open()
		if e := r.entry("mine"); e.Trouble != want || !e.HasKey || e.Tail != "" && want != "" {
			t.Errorf("got %q (%+v), want %q", e.Trouble, e, want)
		}
		if got := len(r.c.Models()); got != inForce {
			t.Errorf("%s: %d models in force, want %d", want, got, inForce)
		}
	}
	if err := os.Remove(r.box.Path()); err != nil {
		t.Fatal(err)
	}
	check(catalog.NoKeyFile, 2)
	if !strings.Contains(r.log.String(), "no_key_file") || !strings.Contains(r.log.String(), r.box.Path()) {
		t.Errorf("the log does not say so: %s", r.log.String())
	}
	write := func(text string, mode os.FileMode) {
		t.Helper()
		_ = os.Remove(r.box.Path())
		if err := os.WriteFile(r.box.Path(), []byte(text), mode); err != nil {
			t.Fatal(err)
		}
	}
	write("nonsense", 0o600)
	check(catalog.BadKeyFile, 2)
	wrong(t, r.c.Add(bg, chat.NewID(), local("name", "third")), "key", catalog.ErrUnkept)
	write(strings.Repeat("ab", 32), 0o600)
	check(catalog.OtherKey, 2)
	// The key entered again is sealed under the file that is there now.
	if err := r.c.Change(bg, "mine", local()); err != nil {
		t.Fatal(err)
	}
	check("", 3)
	write(string(saved), 0o600)
	check(catalog.OtherKey, 2)
}

// Whoever can write the database cannot make this program send a key elsewhere.
func TestASealedKeyBelongsToItsNameAndItsAddress(t *testing.T) {
	for _, damage := range []string{
		`UPDATE models SET url = 'http://127.0.0.1:9/evil'`, `UPDATE models SET name = 'other'`, `UPDATE models SET sealed_key = zeroblob(60)`,
	} {
		r := newRig(t)
		r.add(local())
		rows, err := r.d.Models(bg)
		if err != nil {
			t.Fatal(err)
		}
		m := rows[0]
		switch {
		case strings.Contains(damage, "url"):
			m.URL = "http://127.0.0.1:9/evil"
			err = r.d.ChangeModel(bg, m)
		case strings.Contains(damage, "name"):
			m.Name, m.FormID = "other", chat.NewID()
			err = errors.Join(r.d.RemoveModel(bg, "mine"), r.d.AddModel(bg, m))
		default:
			m.SealedKey = make([]byte, 60)
			err = r.d.ChangeModel(bg, m)
		}
		if err != nil {
			t.Fatal(err)
		}
		r.open()
		if e := r.entry(m.Name); e.Trouble != catalog.KeyDamaged || len(r.c.Models()) != 1 {
			t.Errorf("after %s: %+v", damage, e)
		}
	}
}

func TestAnotherAddressNeedsTheKeyAnew(t *testing.T) {
	r := newRig(t)
	r.add(local())
	moved := local("url", "http://127.0.0.1:10/v1", "key", "")
	wrong(t, r.c.Change(bg, "mine", moved), "key", catalog.ErrKeyAnew)
	_, err := r.c.Test(bg, "mine", moved)
	wrong(t, err, "key", catalog.ErrKeyAnew)
	_, err = r.c.Test(bg, "mine", local("url", "", "preset", "house", "provider", "", "key", ""))
	wrong(t, err, "key", catalog.ErrKeyAnew)
	if got := r.entry("mine").URL; got != "http://127.0.0.1:9/v1" {
		t.Fatalf("the address is %s", got)
	}
	if err := r.c.Change(bg, "mine", local("upstream_model", "small", "key", "")); err != nil {
		t.Fatal(err)
	}
	if got := r.key("mine"); got != key || r.entry("mine").UpstreamModel != "small" {
		t.Errorf("a change that leaves the address: the key is %q, %+v", got, r.entry("mine"))
	}
	moved["key"] = "sk-another-0123456789"
	if err := r.c.Change(bg, "mine", moved); err != nil {
		t.Fatal(err)
	}
	if got := r.key("mine"); got != moved["key"] {
		t.Errorf("with a key given anew it is %q", got)
	}
}

func TestTheConfigurationWins(t *testing.T) {
	r := newRig(t)
	wrong(t, r.c.Add(bg, chat.NewID(), local("name", "demo")), "name", catalog.ErrTaken)
	r.add(local())
	wrong(t, r.c.Add(bg, chat.NewID(), local()), "name", catalog.ErrTaken)
	for what, err := range map[string]error{
		"change": r.c.Change(bg, "demo", local()), "remove": r.c.Remove(bg, "demo"), "test": func() error { _, err := r.c.Test(bg, "demo", local()); return err }(),
	} {
		if !errors.Is(err, catalog.ErrFromFile) {
			t.Errorf("%s of the file's: %v", what, err)
		}
	}
	if err := r.c.Change(bg, "nobody", local()); !errors.Is(err, db.ErrNotFound) {
		t.Errorf("change of nothing: %v", err)
	}
	if err := r.c.Remove(bg, "nobody"); err != nil {
		t.Errorf("removal of nothing: %v", err)
	}
	// A name that the configuration took later.
	if err := r.d.AddModel(bg, db.StoredModel{FormID: chat.NewID(), Name: "demo", Provider: "openai", URL: "http://127.0.0.1:9/v1"}); err != nil {
		t.Fatal(err)
	}
	r.open()
	var troubles []catalog.Trouble
	for _, e := range r.c.Entries() {
		troubles = append(troubles, e.Trouble)
	}
	if want := []catalog.Trouble{"", "", catalog.Shadowed}; !reflect.DeepEqual(troubles, want) || len(r.c.Models()) != 2 {
		t.Errorf("got %q, want %q", troubles, want)
	}
	if err := r.c.Remove(bg, "demo"); !errors.Is(err, catalog.ErrFromFile) && err != nil {
		t.Error(err)
	}
}

func TestATestListsModelsAndRunsNone(t *testing.T) {
	r := newRig(t)
	s := llmtest.NewServer(t, llmtest.Chat)
	tested, err := r.c.Test(bg, "", map[string]string{"provider": "openai", "url": s.URL, "key": key})
	if err != nil || tested.Err != nil || strings.Join(tested.Names, " ") != "model-a model-b" || tested.Took <= 0 {
		t.Errorf("got %+v %v", tested, err)
	}
	list := s.Requests()
	if s.Calls() != 0 || len(list) != 1 || list[0].Method != "GET" || list[0].Header.Get("Authorization") != "Bearer "+key {
		t.Errorf("the provider was sent %+v", list)
	}
	if rows, err := r.d.Models(bg); err != nil || len(rows) != 0 {
		t.Errorf("a test stored %v %v", rows, err)
	}
	r.add(local("url", s.URL))
	if tested, err := r.c.Test(bg, "mine", local("url", s.URL, "key", "")); err != nil || tested.Err != nil {
		t.Errorf("with the stored key: %+v %v", tested, err)
	} else if list := s.Requests(); list[len(list)-1].Header.Get("Authorization") != "Bearer "+key {
		t.Error("the stored key was not used for its own address")
	}
	var e *llm.Error
	tested, err = r.c.Test(bg, "", local("url", "http://127.0.0.1:1/v1"))
	if err != nil || !errors.As(tested.Err, &e) || e.Outcome != chat.OutcomeNone || strings.Contains(tested.Err.Error(), key) {
		t.Errorf("with nobody there: %+v %v", tested, err)
	}
	_, err = r.c.Test(bg, "", local("url", "file:///etc/passwd"))
	var v catalog.Invalid
	if !errors.As(err, &v) || v["url"] == nil {
		t.Errorf("a file as address: %v", err)
	}
}

// Changes reach the engine in the order in which they are stored.
func TestTheEngineHasWhatIsStoredHoweverManyChangeIt(t *testing.T) {
	r := newRig(t)
	e, err := engine.New(engine.Options{DB: r.d, Models: r.c.Models()})
	if err != nil {
		t.Fatal(err)
	}
	r.c.Serve(e)
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			for n := range 5 { // the odd ones come and go, the last time they go
				name := string(rune('a' + i))
				if n%2 == 0 {
					if err := r.c.Add(bg, chat.NewID(), local("name", name, "key", "")); err != nil {
						t.Error(err)
					}
				}
				if i%2 == 0 {
					return
				}
				if n%2 == 1 || n == 4 {
					if err := r.c.Remove(bg, name); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	all.Wait()
	var have, stored []string
	for _, m := range e.Models() {
		have = append(have, m.Name)
	}
	rows, err := r.d.Models(bg)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range rows {
		stored = append(stored, m.Name)
	}
	if want := append([]string{"demo"}, stored...); !reflect.DeepEqual(have, want) || len(stored) != 4 {
		t.Errorf("the engine has %v, stored are %v", have, want)
	}
}
