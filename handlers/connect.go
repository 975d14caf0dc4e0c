package handlers

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"semel/catalog"
	"semel/chat"
	"semel/config"
	"semel/db"
	"semel/llm"
	"semel/views"
)

func (s *server) listModels(w http.ResponseWriter, r *http.Request) error {
	v, err := s.DB.Settings(r.Context(), s.user(r))
	if err != nil {
		return err
	}
	type model struct {
		Name    string    `json:"name"`
		Default bool      `json:"default"`
		Source  string    `json:"source"` // "file" or "settings"
		Price   priceJSON `json:"price"`
		Context int64     `json:"context"` // tokens; 0 is not limited
	}
	connected := map[string]bool{}
	for _, e := range s.Catalog.Entries() {
		if !e.FromFile && e.Trouble == "" {
			connected[e.Name] = true
		}
	}
	list, first := []model{}, s.defaultModel(v)
	for _, m := range s.Engine.Models() {
		source := "file"
		if connected[m.Name] {
			source = "settings"
		}
		list = append(list, model{m.Name, m.Name == first, source, priceJSON{s.Currency, m.Price.Input, m.Price.Cached, m.Price.Output}, m.Context})
	}
	s.writeJSON(w, http.StatusOK, map[string]any{"models": list})
	return nil
}

// A priceJSON is micros per million tokens.
type priceJSON struct {
	Currency string `json:"currency"`
	Input    int64  `json:"input"`
	Cached   int64  `json:"cached"`
	Output   int64  `json:"output"`
}

// listCards fills a page with the models.
func (s *server) listCards(p *views.SettingsPage, first string) {
	for _, e := range s.Catalog.Entries() {
		c := views.ModelCard{
			Name: e.Name, Provider: e.Provider, Upstream: cmp.Or(e.UpstreamModel, e.Name), Default: e.Name == first && e.Trouble == "", FromFile: e.FromFile,
			HasKey: e.HasKey, Tail: e.Tail, Price: e.Price, Priced: e.FromFile || e.Priced != nil, Context: e.Context,
			Rerun: e.OnUnknown != config.OnUnknownAsk, Trouble: string(e.Trouble),
		}
		if u, err := url.Parse(e.URL); err == nil {
			c.Host = u.Host
		}
		p.Models = append(p.Models, c)
	}
}

// formFields are what a form says of a model, by the keys of the configuration; the
// key is the one that is never given back.
var formFields = []string{"preset", "url", "upstream_model", "name", "price.input", "price.output", "price.cached", "context", "on_unknown"}

// openForm fills the form that connects a model: with the one that is to be changed,
// or with nothing yet.
func (s *server) openForm(p *views.SettingsPage, editing string) error {
	for _, preset := range llm.Presets {
		p.Connect.Presets = append(p.Connect.Presets, views.Preset{Name: preset.Name, Title: preset.Title, URL: preset.URL})
	}
	if editing == "" {
		p.Connect.Given = map[string]string{"preset": llm.Presets[0].Name}
		return nil
	}
	for _, e := range s.Catalog.Entries() {
		if e.Name != editing || e.FromFile {
			continue
		}
		given := map[string]string{"preset": e.Preset, "url": e.URL, "upstream_model": e.UpstreamModel, "name": e.Name, "on_unknown": e.Ask}
		if e.Context > 0 {
			given["context"] = fmt.Sprint(e.Context)
		}
		if e.Priced != nil {
			given["price.input"], given["price.output"], given["price.cached"] = views.PlainPrice(e.Priced.Input), views.PlainPrice(e.Priced.Output), views.PlainPrice(e.Priced.Cached)
			if e.Priced.Cached == e.Priced.Input { // which is what it is when nothing is said
				given["price.cached"] = ""
			}
		}
		p.Connect.Editing, p.Connect.HasKey, p.Connect.Tail, p.Connect.Given = e.Name, e.HasKey, e.Tail, given
		return nil
	}
	return db.ErrNotFound
}

// postModels is what the forms about models do. The form that connects one carries
// the id that was minted when it was rendered, so a second click connects no second
// model.
func (s *server) postModels(w http.ResponseWriter, r *http.Request) error {
	form, err := s.readForm(w, r)
	if err != nil {
		return err
	}
	name, done := form.Get("name"), ""
	if form.Get("do") != "default" {
		if err := needs(r, chat.RoleAdmin); err != nil {
			return err
		}
	}
	switch form.Get("do") {
	case "test":
		return s.testModel(w, r, form)
	case "save":
		return s.saveModel(w, r, form)
	case "default":
		done = "default"
		_, err = s.choose(w, r, db.SettingsPatch{Model: &name})
	case "remove":
		done = "removed"
		if err = s.Catalog.Remove(r.Context(), name); errors.Is(err, catalog.ErrFromFile) {
			err = badRequest(s.frame(r).Locale.T("settings.wrong.fromFile"))
		}
	default:
		err = badRequest("The form names nothing to do.")
	}
	if err != nil {
		return err
	}
	http.Redirect(w, r, "/settings?done="+done+"#models", http.StatusSeeOther)
	return nil
}

func (s *server) saveModel(w http.ResponseWriter, r *http.Request, form url.Values) error {
	id, err := chat.ParseID(form.Get("requestId"))
	if _, timed := chat.IDTime(id); err != nil || !timed {
		return badRequest("The form has no id.")
	}
	done, editing := "connected", form.Get("editing")
	if editing != "" {
		done = "changed"
		err = s.Catalog.Change(r.Context(), editing, describedBy(form))
	} else {
		err = s.Catalog.Add(r.Context(), id, describedBy(form))
	}
	if err != nil {
		return s.refusedModel(w, r, form, err)
	}
	http.Redirect(w, r, "/settings?done="+done+"#models", http.StatusSeeOther)
	return nil
}

func (s *server) testModel(w http.ResponseWriter, r *http.Request, form url.Values) error {
	t, err := s.Catalog.Test(r.Context(), form.Get("editing"), describedBy(form))
	if err != nil {
		return s.refusedModel(w, r, form, err)
	}
	p, err := s.givenBack(r, form)
	if err != nil {
		return err
	}
	p.RequestID = form.Get("requestId") // it was not used
	p.Connect.Tested = &views.Tested{Verdict: "ok", Names: t.Names, Wanted: t.Wanted, Took: t.Took, Found: slices.Contains(t.Names, t.Wanted)}
	if t.Err != nil {
		p.Connect.Tested.Verdict, p.Connect.Tested.Detail = verdictOn(t.Err)
	}
	return s.writePage(w, r, http.StatusOK, views.Settings(p))
}

// verdictOn classifies why a provider did not list its models, and has its words.
func verdictOn(err error) (verdict, detail string) {
	var e *llm.Error
	if errors.As(err, &e) {
		detail = e.Detail
		if e.Err != nil {
			detail = strings.TrimSpace(detail + " " + e.Err.Error())
		}
	}
	detail = strings.ToValidUTF8(strings.Join(strings.Fields(detail), " "), "\uFFFD")
	switch {
	case errors.Is(err, catalog.ErrNoList):
		return "no_list", ""
	case errors.Is(err, context.DeadlineExceeded):
		return "slow", ""
	case e == nil:
		return "odd", detail
	case e.Outcome == chat.OutcomeNone:
		return "unreachable", detail
	case e.Status == http.StatusUnauthorized || e.Status == http.StatusForbidden:
		return "key", detail
	case e.Transient:
		return "busy", detail
	case e.Status >= 300 && e.Status < 500 && e.Status != http.StatusRequestTimeout:
		return "address", detail
	}
	return "odd", detail
}

// refusedModel gives back what was entered, except the key, with what is wrong.
func (s *server) refusedModel(w http.ResponseWriter, r *http.Request, form url.Values, refused error) error {
	p, err := s.givenBack(r, form)
	if err != nil {
		return err
	}
	p.RequestID = form.Get("requestId")
	status := http.StatusUnprocessableEntity
	var invalid catalog.Invalid
	switch {
	case errors.As(refused, &invalid):
		p.Connect.Wrong = map[string]string{}
		for field, err := range invalid {
			p.Connect.Wrong[field] = p.Locale.WrongField(field, whyWrong(field, err))
		}
		if p.Connect.Wrong[""] != "" || p.Connect.Wrong["preset"] != "" || p.Connect.Wrong["provider"] != "" {
			p.Connect.Error = p.Locale.WrongField("", "")
		}
	case errors.Is(refused, db.ErrFormUsed):
		status, p.RequestID, p.Connect.Error = http.StatusConflict, chat.NewID(), p.Locale.T("settings.wrong.form")
	case errors.Is(refused, catalog.ErrFromFile):
		p.Connect.Error = p.Locale.T("settings.wrong.fromFile")
	case errors.Is(refused, db.ErrNotFound):
		status, p.Connect.Error = http.StatusNotFound, p.Locale.T("settings.wrong.gone")
	default:
		return refused
	}
	return s.writePage(w, r, status, views.Settings(p))
}

func whyWrong(field string, err error) string {
	switch {
	case errors.Is(err, config.ErrMissing):
		return "missing"
	case errors.Is(err, catalog.ErrTaken):
		return "taken"
	case errors.Is(err, catalog.ErrKeyAnew):
		return "anew"
	case errors.Is(err, catalog.ErrUnkept):
		return "unkept"
	}
	return ""
}

// givenBack is the page with the form as it was sent, without the key.
func (s *server) givenBack(r *http.Request, form url.Values) (views.SettingsPage, error) {
	p, err := s.settingsPage(r)
	if err != nil {
		return p, err
	}
	if err := s.openForm(&p, form.Get("editing")); errors.Is(err, db.ErrNotFound) {
		err = s.openForm(&p, "") // it was removed meanwhile
		if err != nil {
			return p, err
		}
	}
	p.Connect.Given = map[string]string{}
	for _, field := range formFields {
		p.Connect.Given[field] = form.Get(field)
	}
	return p, nil
}

// describedBy is a model as a form describes it, in the words of the configuration.
func describedBy(form url.Values) map[string]string {
	given := map[string]string{}
	for _, field := range formFields {
		given[field] = strings.TrimSpace(form.Get(field))
	}
	given["key"] = strings.TrimSpace(form.Get("key"))
	if given["preset"] == "" {
		given["provider"] = config.ProviderOpenAI
	}
	given["name"] = cmp.Or(given["name"], given["upstream_model"])
	for _, field := range []string{"price.input", "price.output", "price.cached"} {
		given[field] = micros(given[field])
	}
	return given
}

// micros turns a price such as 0.25 into millionths, nothing into nothing, and what
// is no price into what whoever checks it refuses.
func micros(s string) string {
	if s == "" {
		return ""
	}
	whole, fraction, _ := strings.Cut(strings.Replace(s, ",", ".", 1), ".")
	digits := func(r rune) bool { return r < '0' || r > '9' }
	if whole+fraction == "" || len(fraction) > 6 || len(whole) > 9 || strings.ContainsFunc(whole+fraction, digits) {
		return "no price"
	}
	return cmp.Or(strings.TrimLeft(whole+fraction+strings.Repeat("0", 6-len(fraction)), "0"), "0")
}
