package db_test

import (
	"errors"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"semel/chat"
	"semel/db"
	"semel/db/dbtest"
)

func aModel(name string) db.StoredModel {
	return db.StoredModel{
		FormID: "01JZZZZZZZZZZZZZZZZZZZZZZZ", Name: name, Preset: "ollama", Provider: "openai", URL: "http://localhost:11434/v1",
		UpstreamModel: "qwen3:8b", Context: 4096, OnUnknown: "ask", Price: &chat.Price{Input: 1, Cached: 1, Output: 2}, SealedKey: []byte("sealed"),
	}
}

// stored are the models without the times they were made at.
func stored(t *testing.T, d *db.DB) (list []db.StoredModel) {
	t.Helper()
	list, err := d.Models(bg)
	if err != nil {
		t.Fatal(err)
	}
	for i := range list {
		if list[i].CreatedAt.IsZero() {
			t.Errorf("%s was made at no time", list[i].Name)
		}
		list[i].CreatedAt = chat.Stamp{}.Time
	}
	return list
}

func init() {
	theme, mod := "dark", "mod_enter"
	connected := func(t *testing.T, d *db.DB) chat.Request {
		r := setupFailed(t, d)
		if err := d.AddModel(bg, aModel("local")); err != nil {
			t.Fatal(err)
		}
		return r
	}
	names := func(want string) func(*db.DB, chat.Request) error {
		return func(d *db.DB, _ chat.Request) error {
			list, err := d.Models(bg)
			var got []string
			for _, m := range list {
				got = append(got, m.Name+" "+m.UpstreamModel)
			}
			if err == nil && strings.Join(got, ", ") != want {
				err = errors.New("there are " + strings.Join(got, ", "))
			}
			return err
		}
	}
	changed := aModel("local")
	changed.UpstreamModel, changed.Price, changed.SealedKey = "other", nil, nil
	writes = append(writes,
		write{
			name: "PatchSettings", setup: setupFailed,
			call: func(d *db.DB, _ chat.Request) (any, error) {
				return d.PatchSettings(bg, db.LocalUser, db.SettingsPatch{Theme: &theme, SendKey: &mod})
			},
			lookup: func(d *db.DB, _ chat.Request) error {
				s, err := d.Settings(bg, db.LocalUser)
				if err == nil && (s.Theme != theme || s.SendKey != mod || s.Params != "{}") {
					err = errors.New("settings are not as they were stored")
				}
				return err
			},
		},
		write{
			name: "AddModel", setup: setupFailed, lookup: names("local qwen3:8b"),
			call: func(d *db.DB, _ chat.Request) (any, error) { return nil, d.AddModel(bg, aModel("local")) },
		},
		write{
			name: "ChangeModel", setup: connected, lookup: names("local other"),
			call: func(d *db.DB, _ chat.Request) (any, error) { return nil, d.ChangeModel(bg, changed) },
		},
		write{
			name: "RemoveModel", setup: connected, lookup: names(""),
			call: func(d *db.DB, _ chat.Request) (any, error) { return nil, d.RemoveModel(bg, "local") },
		},
	)
}

func TestSettingsAreAUsersOwnAndWhatIsNotNamedStays(t *testing.T) {
	d := dbtest.Open(t)
	s, err := d.Settings(bg, db.LocalUser)
	if want := (db.Settings{Theme: "system", SendKey: "enter", Params: "{}"}); err != nil || s != want {
		t.Errorf("at first: %+v %v, want %+v", s, err, want)
	}
	dark, words := "dark", "Be brief."
	for _, p := range []db.SettingsPatch{{Theme: &dark}, {SystemPrompt: &words}, {}} {
		if s, err = d.PatchSettings(bg, db.LocalUser, p); err != nil {
			t.Fatal(err)
		}
	}
	read, err := d.Settings(bg, db.LocalUser)
	if want := (db.Settings{Theme: "dark", SendKey: "enter", SystemPrompt: words, Params: "{}"}); err != nil || s != want || read != want {
		t.Errorf("then: %+v, and read %+v %v, want %+v", s, read, err, want)
	}
	bad := "pink"
	if _, err := d.PatchSettings(bg, db.LocalUser, db.SettingsPatch{Theme: &bad}); err == nil {
		t.Error("a theme that does not exist is stored")
	}
	if s, err := d.Settings(bg, 2); err != nil || s.Theme != "system" {
		t.Errorf("another's: %+v %v", s, err)
	}
	dbtest.Check(t, d)
}

func TestNewConversationsBeginWithWhatTheirUserChose(t *testing.T) {
	d := dbtest.Open(t)
	words, params, model := "Be brief.", `{"temperature":0.5}`, "chosen"
	old := dbtest.Accept(t, d, "session-old", "before")
	if _, err := d.PatchSettings(bg, db.LocalUser, db.SettingsPatch{SystemPrompt: &words, Params: &params, Model: &model}); err != nil {
		t.Fatal(err)
	}
	there := map[string]bool{"chosen": true, "demo": true, "named": true}
	accept := func(session, named string) chat.Request {
		t.Helper()
		s := dbtest.Submission(session, chat.NewID(), "hello")
		s.Model, s.Default = named, "demo"
		s.Price = func(m string) (chat.Price, bool) { return chat.Price{}, there[m] }
		return dbtest.Submit(t, d, s)
	}
	for _, c := range []struct {
		session, named      string
		gone                bool
		model, words, param string
	}{
		{"session-new1", "", false, "chosen", words, params},
		{"session-new1", "", false, "chosen", words, params}, // the second question of it
		{"session-new2", "named", false, "named", words, params},
		{"session-new3", "", true, "demo", words, params}, // what was chosen is there no more
		{old.Key.SessionID, "", false, "chosen", "", "{}"},
	} {
		there["chosen"] = !c.gone
		if r := accept(c.session, c.named); r.Model != c.model || r.SystemPrompt != c.words || r.Params != c.param {
			t.Errorf("%s: asked of %q with %q and %s, want %q, %q and %s", c.session, r.Model, r.SystemPrompt, r.Params, c.model, c.words, c.param)
		}
	}
	th, err := d.Thread(bg, db.LocalUser, "session-new1")
	if err != nil || th.Conversation.SystemPrompt != words || th.Conversation.Params != params || th.Conversation.Model != "" {
		t.Errorf("the conversation has %+v %v", th.Conversation, err)
	}
	dbtest.Check(t, d)
}

func TestAFormConnectsOneModelHoweverOftenItComes(t *testing.T) {
	d := dbtest.Open(t)
	m := aModel("local")
	for range 2 {
		if err := d.AddModel(bg, m); err != nil {
			t.Fatal(err)
		}
	}
	if got := stored(t, d); !reflect.DeepEqual(got, []db.StoredModel{m}) {
		t.Fatalf("got %+v, want %+v", got, m)
	}
	other := aModel("other")
	if err := d.AddModel(bg, other); !errors.Is(err, db.ErrFormUsed) {
		t.Errorf("the form with another model: %v", err)
	}
	other = aModel("local")
	other.FormID = chat.NewID()
	if err := d.AddModel(bg, other); !errors.Is(err, db.ErrNameTaken) {
		t.Errorf("another form with the name: %v", err)
	}
	if err := d.RemoveModel(bg, "local"); err != nil {
		t.Fatal(err)
	}
	if err := d.AddModel(bg, m); !errors.Is(err, db.ErrFormUsed) {
		t.Errorf("the form again, after the model was removed: %v", err)
	}
	if n, err := db.Int(bg, d, `SELECT count(*) FROM models WHERE sealed_key IS NOT NULL`); err != nil || n != 0 {
		t.Errorf("%d removed models have their key (%v)", n, err)
	}
	if err := d.ChangeModel(bg, m); !errors.Is(err, db.ErrNotFound) {
		t.Errorf("a change of what was removed: %v", err)
	}
	other.Price, other.SealedKey, other.Context, other.OnUnknown = nil, nil, 0, ""
	if err := d.AddModel(bg, other); err != nil {
		t.Errorf("the name of a removed model is not free: %v", err)
	}
	if got := stored(t, d); !reflect.DeepEqual(got, []db.StoredModel{other}) {
		t.Errorf("got %+v, want %+v", got, other)
	}
	dbtest.Check(t, d)
}

// Whether there are settings at all is known without a look at them.
func TestSettingsAreThereInTheNextLife(t *testing.T) {
	path := filepath.Join(t.TempDir(), "test.db")
	d := dbtest.OpenAt(t, path, nil)
	words := "Be brief."
	if _, err := d.PatchSettings(bg, db.LocalUser, db.SettingsPatch{SystemPrompt: &words}); err != nil {
		t.Fatal(err)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	d = dbtest.OpenAt(t, path, nil)
	if s, err := d.Settings(bg, db.LocalUser); err != nil || s.SystemPrompt != words {
		t.Errorf("read: %+v %v", s, err)
	}
	if r := dbtest.Accept(t, d, "session-1", "hello"); r.SystemPrompt != words {
		t.Errorf("a new conversation begins with %q", r.SystemPrompt)
	}
}
