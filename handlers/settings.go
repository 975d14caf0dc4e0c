package handlers

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-chi/chi/v5"

	"semel/chat"
	"semel/db"
	"semel/llm"
	"semel/static"
	"semel/views"
)

// A settingsJSON is what a user chose, in the API.
type settingsJSON struct {
	Theme        string          `json:"theme"`
	Language     string          `json:"language"` // "auto" is as the configuration or the browser says
	SendKey      string          `json:"sendKey"`
	Model        string          `json:"model"` // "" is the first
	SystemPrompt string          `json:"systemPrompt"`
	Params       json.RawMessage `json:"params"`
}

func settingsOf(v db.Settings) settingsJSON {
	if v.Language == "" {
		v.Language = "auto"
	}
	return settingsJSON{v.Theme, v.Language, v.SendKey, v.Model, v.SystemPrompt, json.RawMessage(v.Params)}
}

func (s *server) getSettings(w http.ResponseWriter, r *http.Request) error {
	v, err := s.DB.Settings(r.Context(), s.user(r))
	if err != nil {
		return err
	}
	s.writeJSON(w, http.StatusOK, settingsOf(v))
	return nil
}

func (s *server) patchSettings(w http.ResponseWriter, r *http.Request) error {
	var body struct {
		Theme        *string          `json:"theme"`
		Language     *string          `json:"language"`
		SendKey      *string          `json:"sendKey"`
		Model        *string          `json:"model"`
		SystemPrompt *string          `json:"systemPrompt"`
		Params       *json.RawMessage `json:"params"`
	}
	if err := s.readJSON(w, r, &body); err != nil {
		return err
	}
	p := db.SettingsPatch{Theme: body.Theme, Language: body.Language, SendKey: body.SendKey, Model: body.Model, SystemPrompt: body.SystemPrompt}
	if body.Params != nil {
		params, err := parseParams(*body.Params)
		if err != nil {
			return err
		}
		if params == "" {
			params = "{}"
		}
		p.Params = &params
	}
	v, err := s.choose(w, r, p)
	if err != nil {
		return err
	}
	s.writeJSON(w, http.StatusOK, settingsOf(v))
	return nil
}

// choose checks and stores what a user chooses. The language is also kept in a
// cookie, for pages that are shown when the database cannot be read.
func (s *server) choose(w http.ResponseWriter, r *http.Request, p db.SettingsPatch) (db.Settings, error) {
	oneOf := func(name string, v *string, words ...string) error {
		if v != nil && !slices.Contains(words, *v) {
			return badRequest(fmt.Sprintf("%s is one of %s.", name, strings.Join(words, ", ")))
		}
		return nil
	}
	languages := []string{"auto"}
	for _, l := range views.Locales {
		languages = append(languages, l.Tag)
	}
	for _, err := range []error{
		oneOf("theme", p.Theme, "system", "light", "dark"), oneOf("language", p.Language, languages...), oneOf("sendKey", p.SendKey, "enter", "mod_enter"),
		s.checkSetup(p.Model, p.SystemPrompt),
	} {
		if err != nil {
			return db.Settings{}, err
		}
	}
	if p.Language != nil && *p.Language == "auto" {
		p.Language = new(string)
	}
	v, err := s.DB.PatchSettings(r.Context(), s.user(r), p)
	if err == nil && p.Language != nil {
		s.keepLanguage(w, *p.Language)
	}
	return v, err
}

// keepLanguage makes a browser remember a language, "" none.
func (s *server) keepLanguage(w http.ResponseWriter, tag string) {
	c := &http.Cookie{Name: languageCookie, Value: tag, Path: "/", MaxAge: 365 * 24 * 3600, HttpOnly: true, SameSite: http.SameSiteLaxMode}
	if tag == "" {
		c.MaxAge = -1
	}
	http.SetCookie(w, c)
}

// checkSetup returns what is wrong with a model or a system prompt that is chosen.
func (s *server) checkSetup(model, systemPrompt *string) error {
	if systemPrompt != nil && len(*systemPrompt) > s.MessageBytes {
		return s.tooLarge(fmt.Sprintf("The system prompt has %d bytes; limits.message_bytes allows %d.", len(*systemPrompt), s.MessageBytes))
	}
	if model != nil && *model != "" && !s.hasModel(*model) {
		return refuse(http.StatusUnprocessableEntity, "model_unknown", chat.RetryNever, fmt.Sprintf("There is no model %q here. GET /api/models lists them.", *model))
	}
	return nil
}

// defaultModel is the model of who names none: the one that its user chose, where
// that is there.
func (s *server) defaultModel(v db.Settings) string {
	if v.Model != "" && s.hasModel(v.Model) {
		return v.Model
	}
	return s.Engine.Models()[0].Name
}

// chosen is what the user of r chose, and the defaults where the database cannot be
// read: a page that says so needs a look, too.
func (s *server) chosen(r *http.Request) db.Settings {
	ctx, cancel := context.WithTimeout(r.Context(), time.Second)
	defer cancel()
	v, err := s.DB.Settings(ctx, s.user(r))
	if err != nil {
		s.Log.Warn("settings cannot be read", "trace_id", traceID(r), "error", err)
		return db.Settings{Theme: "system", SendKey: "enter", Params: "{}"}
	}
	return v
}

func (s *server) modelNames() (names []string) {
	for _, m := range s.Engine.Models() {
		names = append(names, m.Name)
	}
	return names
}

// setupOf is how new conversations begin, as a form shows it.
func (s *server) setupOf(v db.Settings) views.Setup {
	return s.setup(s.Engine.Models()[0].Name, v.Model, v.SystemPrompt, v.Params)
}

// setup is a model, a system prompt and parameters as a form shows them; first is the
// model of who chooses none.
func (s *server) setup(first, model, systemPrompt, params string) views.Setup {
	out := views.Setup{Models: s.modelNames(), Default: first, Model: model, SystemPrompt: systemPrompt}
	var p llm.Params
	if json.Unmarshal([]byte(params), &p) != nil {
		return out // not ours; what is saved replaces it
	}
	if p.Temperature != nil {
		out.Temperature = strconv.FormatFloat(*p.Temperature, 'f', -1, 64)
	}
	if p.MaxTokens != nil {
		out.MaxTokens = strconv.FormatInt(*p.MaxTokens, 10)
	}
	return out
}

// settingsPage is the page as it stands.
func (s *server) settingsPage(r *http.Request) (views.SettingsPage, error) {
	v := s.chosen(r)
	p := views.SettingsPage{
		Frame: s.frame(r), Script: static.URL("settings.js"), RequestID: chat.NewID(), Currency: s.Currency, Done: r.URL.Query().Get("done"),
		Language: v.Language, Setup: s.setupOf(v), KeyFile: s.Catalog.KeyFile(),
	}
	s.listCards(&p, s.defaultModel(v))
	var err error
	if p.User, err = s.account(r); err != nil {
		return p, err
	}
	p.Side, err = s.side(r)
	return p, err
}

func (s *server) getSettingsPage(w http.ResponseWriter, r *http.Request) error {
	p, err := s.settingsPage(r)
	if err == nil {
		err = s.openForm(&p, r.URL.Query().Get("edit"))
	}
	if err != nil {
		return err
	}
	return s.writePage(w, r, http.StatusOK, views.Settings(p))
}

// postSettings is the page's forms without scripts. What is sent twice is stored
// twice, and is the same.
func (s *server) postSettings(w http.ResponseWriter, r *http.Request) error {
	form, err := s.readForm(w, r)
	if err != nil {
		return err
	}
	to := localPath(form.Get("to"))
	if to == "/" && form.Get("to") != "/" {
		to = "/settings?done=saved"
	}
	var p db.SettingsPatch
	switch form.Get("section") {
	case "page":
		for name, into := range map[string]**string{"theme": &p.Theme, "language": &p.Language, "sendKey": &p.SendKey} {
			if v := form.Get(name); v != "" {
				*into = &v
			}
		}
	case "setup":
		given := setupForm{form.Get("model"), normalText(form.Get("systemPrompt")), form.Get("temperature"), form.Get("maxTokens")}
		params, wrong := given.params(s.chosen(r).Params)
		if wrong != "" {
			return s.refusedSetup(w, r, given, wrong)
		}
		p.Model, p.SystemPrompt, p.Params = &given.model, &given.systemPrompt, &params
	default:
		return badRequest("The form names nothing to do.")
	}
	if _, err := s.choose(w, r, p); err != nil {
		return err
	}
	http.Redirect(w, r, to, http.StatusSeeOther)
	return nil
}

// refusedSetup gives back what was entered, with what is wrong with it.
func (s *server) refusedSetup(w http.ResponseWriter, r *http.Request, given setupForm, wrong string) error {
	p, err := s.settingsPage(r)
	if err == nil {
		err = s.openForm(&p, "")
	}
	if err != nil {
		return err
	}
	p.Setup.Model, p.Setup.SystemPrompt, p.Setup.Temperature, p.Setup.MaxTokens = given.model, given.systemPrompt, given.temperature, given.maxTokens
	p.Setup.Error = p.Locale.WrongField(wrong, "")
	return s.writePage(w, r, http.StatusUnprocessableEntity, views.Settings(p))
}

// A setupForm is how questions are asked, as it was typed.
type setupForm struct{ model, systemPrompt, temperature, maxTokens string }

// normalText has the ends of lines that scripts send, where forms send others.
func normalText(s string) string {
	return strings.TrimRight(strings.ReplaceAll(s, "\r\n", "\n"), " \t\n")
}

// params returns old with what the form has, or the field that is wrong.
func (f setupForm) params(old string) (params, wrong string) {
	var p llm.Params
	_ = json.Unmarshal([]byte(old), &p) // what is not ours is replaced
	p.Temperature, p.MaxTokens = nil, nil
	if t := strings.TrimSpace(f.temperature); t != "" {
		v, err := strconv.ParseFloat(strings.Replace(t, ",", ".", 1), 64)
		if err != nil || !(v >= 0 && v <= 2) {
			return "", "temperature"
		}
		p.Temperature = &v
	}
	if t := strings.TrimSpace(f.maxTokens); t != "" {
		v, err := strconv.ParseInt(t, 10, 64)
		if err != nil || v < 1 {
			return "", "max_tokens"
		}
		p.MaxTokens = &v
	}
	return strings.TrimSpace(string(encode(p))), ""
}

// postSetup is the panel of a conversation.
func (s *server) postSetup(w http.ResponseWriter, r *http.Request) error {
	form, err := s.readForm(w, r)
	if err != nil {
		return err
	}
	session, err := chat.ParseID(chi.URLParam(r, "sessionID"))
	if err != nil {
		return db.ErrNotFound
	}
	t, err := s.DB.Thread(r.Context(), s.user(r), session)
	if err != nil {
		return err
	}
	given := setupForm{form.Get("model"), normalText(form.Get("systemPrompt")), form.Get("temperature"), form.Get("maxTokens")}
	params, wrong := given.params(t.Conversation.Params)
	if wrong != "" {
		return badRequest(s.frame(r).Locale.WrongField(wrong, ""))
	}
	model := &given.model
	if given.model == t.Conversation.Model {
		model = nil // it may be gone, and is not chosen anew
	}
	if err := s.checkSetup(model, &given.systemPrompt); err != nil {
		return err
	}
	if _, err := s.DB.PatchConversation(r.Context(), s.user(r), session, db.ConversationPatch{Model: model, SystemPrompt: &given.systemPrompt, Params: &params}); err != nil {
		return err
	}
	s.Engine.Changed(s.user(r), session)
	http.Redirect(w, r, "/c/"+session, http.StatusSeeOther)
	return nil
}
