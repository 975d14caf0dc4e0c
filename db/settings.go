package db

import (
	"context"
	"errors"
	"time"

	"semel/chat"
)

// Settings are what a user chose for the pages and for new conversations.
type Settings struct {
	Theme        string // "system", "light" or "dark"
	Language     string // "" is as the configuration or the browser says
	SendKey      string // "enter" or "mod_enter"
	Model        string // "" is the first
	SystemPrompt string
	Params       string
}

// A SettingsPatch changes what is not nil.
type SettingsPatch struct {
	Theme, Language, SendKey, Model, SystemPrompt, Params *string
}

// Settings returns what a user has chosen, the defaults where that is nothing.
func (d *DB) Settings(ctx context.Context, user int64) (s Settings, err error) {
	err = d.readOne(ctx, func(c *conn) (err error) {
		s, err = c.settings(user)
		return err
	})
	return s, err
}

func (c *conn) settings(user int64) (Settings, error) {
	s := Settings{Theme: "system", SendKey: "enter", Params: "{}"}
	if !c.chosen.Load() {
		return s, nil // most files have none, and an acceptance need not look
	}
	_, err := c.queryRow(sqlSelectSettings, []any{user}, &s.Theme, &s.Language, &s.SendKey, &s.Model, &s.SystemPrompt, &s.Params)
	return s, err
}

// PatchSettings changes a user's settings and returns them.
func (d *DB) PatchSettings(ctx context.Context, user int64, p SettingsPatch) (s Settings, err error) {
	err = d.write(ctx, func(tx *Tx) error {
		tx.chosen.Store(true)
		if s, err = tx.settings(user); err != nil {
			return err
		}
		set(&s.Theme, p.Theme)
		set(&s.Language, p.Language)
		set(&s.SendKey, p.SendKey)
		set(&s.Model, p.Model)
		set(&s.SystemPrompt, p.SystemPrompt)
		set(&s.Params, p.Params)
		_, err := tx.exec(sqlPutSettings, user, s.Theme, s.Language, s.SendKey, s.Model, s.SystemPrompt, s.Params, tx.now)
		return err
	})
	return s, err
}

// A StoredModel is a model that was connected on the settings page.
type StoredModel struct {
	FormID        string // of the form that connected it
	Name          string
	Preset        string
	Provider      string
	URL           string
	UpstreamModel string
	Context       int64
	OnUnknown     string      // "" is as the price and the address say
	Price         *chat.Price // nil: nobody said
	SealedKey     []byte      // nil: it needs none
	CreatedAt     time.Time
}

var (
	// ErrNameTaken: another model has that name; nothing was stored.
	ErrNameTaken = errors.New("another model has that name")
	// ErrFormUsed: the form connected another model before, or one that was removed
	// since, or made another key; nothing was stored.
	ErrFormUsed = errors.New("the form was used before")
)

// Models returns the models that were connected, in the order in which they were.
func (d *DB) Models(ctx context.Context) (list []StoredModel, err error) {
	err = d.readOne(ctx, func(c *conn) error {
		return c.query(sqlSelectModels, nil, func(r row) error {
			var m StoredModel
			var in, cached, out any
			err := r.scan(&m.FormID, &m.Name, &m.Preset, &m.Provider, &m.URL, &m.UpstreamModel, &m.Context, &m.OnUnknown, &in, &cached, &out, &m.SealedKey, &m.CreatedAt)
			if in != nil {
				m.Price = &chat.Price{Input: in.(int64), Cached: cached.(int64), Output: out.(int64)}
			}
			list = append(list, m)
			return err
		})
	})
	return list, err
}

// AddModel stores a model. The same form a second time stores nothing and is no
// error. Errors: ErrNameTaken, ErrFormUsed.
func (d *DB) AddModel(ctx context.Context, m StoredModel) error {
	return d.write(ctx, func(tx *Tx) error {
		var name, url string
		var removed bool
		found, err := tx.queryRow(sqlSelectForm, []any{m.FormID}, &name, &url, &removed)
		switch {
		case err != nil:
			return err
		case found && (removed || name != m.Name || url != m.URL):
			return ErrFormUsed
		case found:
			return nil
		}
		_, err = tx.exec(sqlInsertModel, append([]any{m.FormID, m.Name}, m.columns(tx.now)...)...)
		if isUnique(err) {
			return ErrNameTaken
		}
		return err
	})
}

// ChangeModel stores everything of the model of that name anew, its key included.
// Errors: ErrNotFound.
func (d *DB) ChangeModel(ctx context.Context, m StoredModel) error {
	return d.write(ctx, func(tx *Tx) error {
		n, err := tx.exec(sqlUpdateModel, append(m.columns(tx.now), m.Name)...)
		if err == nil && n == 0 {
			err = ErrNotFound
		}
		return err
	})
}

func (m StoredModel) columns(now time.Time) []any {
	var in, cached, out any
	if m.Price != nil {
		in, cached, out = m.Price.Input, m.Price.Cached, m.Price.Output
	}
	var key any
	if m.SealedKey != nil {
		key = m.SealedKey
	}
	return []any{m.Preset, m.Provider, m.URL, m.UpstreamModel, m.Context, m.OnUnknown, in, cached, out, key, now}
}

// RemoveModel removes the model of that name, and its key. One that is not there is
// no error.
func (d *DB) RemoveModel(ctx context.Context, name string) error {
	return d.write(ctx, func(tx *Tx) error {
		_, err := tx.exec(sqlRemoveModel, tx.now, name)
		return err
	})
}

const (
	sqlSelectAnySettings = `SELECT 1 FROM settings LIMIT 1`

	sqlSelectSettings = `SELECT theme, language, send_key, model, system_prompt, params FROM settings WHERE user_id = ?`

	sqlPutSettings = `INSERT INTO settings (user_id, theme, language, send_key, model, system_prompt, params, updated_at)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (user_id) DO UPDATE SET theme = excluded.theme, language = excluded.language,
		send_key = excluded.send_key, model = excluded.model, system_prompt = excluded.system_prompt, params = excluded.params, updated_at = excluded.updated_at`

	sqlSelectModels = `SELECT form_id, name, preset, provider, url, upstream_model, context, on_unknown, price_input, price_cached, price_output,
		sealed_key, created_at FROM models WHERE removed_at IS NULL ORDER BY id`

	sqlSelectForm = `SELECT name, url, removed_at IS NOT NULL FROM models WHERE form_id = ?`

	// created_at is updated_at.
	sqlInsertModel = `INSERT INTO models (form_id, name, preset, provider, url, upstream_model, context, on_unknown, price_input, price_cached,
		price_output, sealed_key, updated_at, created_at) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?13)`

	sqlUpdateModel = `UPDATE models SET preset = ?, provider = ?, url = ?, upstream_model = ?, context = ?, on_unknown = ?, price_input = ?,
		price_cached = ?, price_output = ?, sealed_key = ?, updated_at = ? WHERE name = ? AND removed_at IS NULL`

	sqlRemoveModel = `UPDATE models SET removed_at = ?, sealed_key = NULL WHERE name = ? AND removed_at IS NULL`
)
