// Package catalog knows which models there are: those of the configuration, and
// those that were connected while the program runs. The configuration wins.
package catalog

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"strconv"
	"sync"
	"time"

	"semel/chat"
	"semel/config"
	"semel/db"
	"semel/engine"
	"semel/llm"
	"semel/seal"
)

// Options say what a catalog is made of. All of them are needed, except Log.
type Options struct {
	DB      *db.DB
	Box     *seal.Box      // seals the keys of connected models
	File    []config.Model // of the configuration, the default first; at least one
	Presets []config.Preset
	// Build makes what calls a model. Whoever may connect a model makes this program
	// call any address, of this machine and its networks, too. That is right for the
	// one local user, who could call it without us. When accounts exist, what Build
	// returns for a connected model must dial through a guard that judges every
	// resolved address (issue "Trust").
	Build func(config.Model) engine.Model
	Log   *slog.Logger
}

// A Trouble is why a connected model is not in force.
type Trouble string

const (
	Shadowed   Trouble = "shadowed"    // the configuration has one of that name
	NoKeyFile  Trouble = "no_key_file" // its key cannot be opened
	OtherKey   Trouble = "other_key"   // its key was sealed under another key file
	KeyDamaged Trouble = "key_damaged"
	BadKeyFile Trouble = "bad_key_file"
	Unusable   Trouble = "unusable" // this version refuses it
)

// An Entry is one model. It has no key: of that, only whether there is one and how
// it ends.
type Entry struct {
	config.Model
	FromFile bool
	HasKey   bool
	Tail     string      // the last four characters of a key that is long enough to have them shown
	Priced   *chat.Price // as it was given; nil: nobody said. Of connected models
	Ask      string      // on_unknown as it was given, "" for none. Of connected models
	Trouble  Trouble     // "" when it is in force
}

// A Catalog is the list. Any number of goroutines may use it.
type Catalog struct {
	o      Options
	mu     sync.Mutex // one change at a time, so that the engine hears of them in order
	list   []listed   // under mu
	engine *engine.Engine
}

// A listed model, with its key.
type listed struct {
	Entry
	key    config.Secret
	stored db.StoredModel
}

// Open returns the catalog of what the configuration and the database have. A key
// that cannot be opened is no error: its model is not in force, and says why.
func Open(ctx context.Context, o Options) (*Catalog, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	c := &Catalog{o: o}
	list, err := c.read(ctx)
	if err != nil {
		return nil, fmt.Errorf("models: %w", err)
	}
	c.list = list
	for _, m := range list {
		if m.Trouble != "" {
			o.Log.Warn("a connected model is not in force", "name", m.Name, "why", string(m.Trouble), "key_file", o.Box.Path())
		}
	}
	return c, nil
}

// Serve makes every later change of the list one of e's models. It is called once,
// before there are changes.
func (c *Catalog) Serve(e *engine.Engine) { c.engine = e }

// Models returns what is in force, for an engine.
func (c *Catalog) Models() []engine.Model {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.inForce()
}

func (c *Catalog) inForce() (list []engine.Model) {
	for _, m := range c.list {
		if m.Trouble == "" {
			list = append(list, c.o.Build(m.withKey()))
		}
	}
	return list
}

func (m listed) withKey() config.Model {
	full := m.Model
	full.Key = m.key
	return full
}

// Entries returns all models, those of the configuration first.
func (c *Catalog) Entries() []Entry {
	c.mu.Lock()
	defer c.mu.Unlock()
	var list []Entry
	for _, m := range c.list {
		list = append(list, m.Entry)
	}
	return list
}

// KeyFile returns the path of the file under which keys are sealed.
func (c *Catalog) KeyFile() string { return c.o.Box.Path() }

// read returns the list as it is stored now.
func (c *Catalog) read(ctx context.Context) ([]listed, error) {
	rows, err := c.o.DB.Models(ctx)
	if err != nil {
		return nil, err
	}
	var list []listed
	names := map[string]bool{}
	for _, m := range c.o.File {
		names[m.Name] = true
		e := listed{Entry: Entry{Model: m, FromFile: true}, key: m.Key}
		e.shown()
		list = append(list, e)
	}
	for _, row := range rows {
		m := c.entry(row)
		if m.Trouble == "" && names[row.Name] {
			m.Trouble = Shadowed
		}
		list = append(list, m)
	}
	return list, nil
}

// shown moves the key out of what others see.
func (m *listed) shown() {
	m.Model.Key, m.KeyFile = "", ""
	m.HasKey = m.key != "" || m.stored.SealedKey != nil
	if len(m.key) >= 16 {
		m.Tail = string(m.key[len(m.key)-4:])
	}
}

// entry is a stored model as it can be used.
func (c *Catalog) entry(row db.StoredModel) listed {
	given := map[string]string{
		"name": row.Name, "preset": row.Preset, "provider": row.Provider, "url": row.URL, "upstream_model": row.UpstreamModel, "on_unknown": row.OnUnknown,
	}
	if row.Context > 0 {
		given["context"] = strconv.FormatInt(row.Context, 10)
	}
	if p := row.Price; p != nil {
		given["price.input"], given["price.cached"], given["price.output"] = strconv.FormatInt(p.Input, 10), strconv.FormatInt(p.Cached, 10), strconv.FormatInt(p.Output, 10)
	}
	m, wrong := config.CheckModel(given, c.o.Presets)
	if wrong["preset"] != nil { // another version knew it; provider and address are there
		delete(given, "preset")
		m, wrong = config.CheckModel(given, c.o.Presets)
	}
	e := listed{Entry: Entry{Model: m, Priced: row.Price, Ask: row.OnUnknown}, stored: row}
	if len(wrong) > 0 {
		e.Model = config.Model{Name: row.Name, Preset: row.Preset, Provider: row.Provider, URL: row.URL, UpstreamModel: row.UpstreamModel, Context: row.Context}
		e.Trouble = Unusable
	}
	if row.SealedKey != nil && e.Trouble == "" {
		key, err := c.o.Box.Open(row.SealedKey, row.Name, row.URL)
		e.key, e.Trouble = config.Secret(key), troubleOf(err)
	}
	e.shown()
	return e
}

func troubleOf(err error) Trouble {
	switch {
	case err == nil:
		return ""
	case errors.Is(err, seal.ErrNoKeyFile):
		return NoKeyFile
	case errors.Is(err, seal.ErrOtherKey):
		return OtherKey
	case errors.Is(err, seal.ErrDamaged):
		return KeyDamaged
	}
	return BadKeyFile
}

// Invalid says what is wrong with a description of a model, by the keys of
// [config.CheckModel].
type Invalid map[string]error

func (v Invalid) Error() string {
	s := "the model is not described well:"
	for key, err := range v {
		s += fmt.Sprintf(" %s %v;", key, err)
	}
	return s
}

var (
	// ErrTaken: there is another model of that name.
	ErrTaken = errors.New("is the name of another model")
	// ErrKeyAnew: the address is another one, and a key goes to the address that it
	// was given for and to no other.
	ErrKeyAnew = errors.New("must be given anew: the address is another one")
	// ErrUnkept: the key file cannot be used, so the key cannot be stored.
	ErrUnkept = errors.New("cannot be kept")
	// ErrFromFile: the model is the configuration's and cannot be changed here.
	ErrFromFile = errors.New("the model is from the configuration file")
)

// Add connects a model, described by the keys of [config.CheckModel]. The form of
// that id connects one, however often it comes. Errors: Invalid, db.ErrFormUsed,
// and those of the database.
func (c *Catalog) Add(ctx context.Context, formID string, given map[string]string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	m, wrong := config.CheckModel(given, c.o.Presets)
	if len(wrong) > 0 {
		return Invalid(wrong)
	}
	for _, f := range c.o.File {
		if f.Name == m.Name {
			return Invalid{"name": ErrTaken}
		}
	}
	row, err := c.row(m, given)
	if err != nil {
		return err
	}
	row.FormID = formID
	err = c.o.DB.AddModel(ctx, row)
	if errors.Is(err, db.ErrNameTaken) {
		return Invalid{"name": ErrTaken}
	}
	return c.stored(ctx, "connected", m.Name, err)
}

// Change describes a connected model anew. It keeps its name, and its key where
// none is given and the address is the same. Errors: Invalid, db.ErrNotFound,
// ErrFromFile, and those of the database.
func (c *Catalog) Change(ctx context.Context, name string, given map[string]string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	m, old, err := c.described(name, given)
	if err != nil {
		return err
	}
	row, err := c.row(m, given)
	if err != nil {
		return err
	}
	if given["key"] == "" {
		row.SealedKey = old.stored.SealedKey // bound to this name and this address
	}
	return c.stored(ctx, "changed", name, c.o.DB.ChangeModel(ctx, row))
}

// described returns the model that a change of name describes, with the key that it
// keeps, and what it was. c.mu is held.
func (c *Catalog) described(name string, given map[string]string) (config.Model, listed, error) {
	old, err := c.connected(name)
	if err != nil {
		return config.Model{}, old, err
	}
	given = maps.Clone(given)
	given["name"] = name
	m, wrong := config.CheckModel(given, c.o.Presets)
	switch {
	case len(wrong) > 0:
		return m, old, Invalid(wrong)
	case m.Key == "" && old.HasKey && m.URL != old.stored.URL:
		return m, old, Invalid{"key": ErrKeyAnew}
	case m.Key == "":
		m.Key = old.key
	}
	return m, old, nil
}

// connected returns the connected model of that name.
func (c *Catalog) connected(name string) (listed, error) {
	err := db.ErrNotFound
	for _, m := range c.list {
		if m.Name == name && !m.FromFile {
			return m, nil
		} else if m.Name == name {
			err = ErrFromFile
		}
	}
	return listed{}, err
}

// Remove removes a connected model and its key. Requests that wait for it fail as
// model_gone; what runs ends. One that is not there is no error.
func (c *Catalog) Remove(ctx context.Context, name string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, err := c.connected(name); errors.Is(err, ErrFromFile) {
		return err
	}
	return c.stored(ctx, "removed", name, c.o.DB.RemoveModel(ctx, name))
}

// row is m as it is stored, its key sealed.
func (c *Catalog) row(m config.Model, given map[string]string) (db.StoredModel, error) {
	row := db.StoredModel{
		Name: m.Name, Preset: m.Preset, Provider: m.Provider, URL: m.URL, UpstreamModel: m.UpstreamModel, Context: m.Context, OnUnknown: given["on_unknown"],
	}
	if given["price.input"] != "" {
		row.Price = &m.Price
	}
	if given["key"] == "" {
		return row, nil
	}
	var err error
	if row.SealedKey, err = c.o.Box.Seal(given["key"], m.Name, m.URL); err != nil {
		c.o.Log.Error("seal a key", "model", m.Name, "error", err)
		return row, Invalid{"key": fmt.Errorf("%w: %w", ErrUnkept, err)}
	}
	return row, nil
}

// stored ends a change: what is stored comes into force, also when nobody knows
// whether this change was.
func (c *Catalog) stored(ctx context.Context, what, name string, err error) error {
	if err != nil && !errors.Is(err, db.ErrOutcomeOpen) {
		return err
	}
	list, rerr := c.read(context.WithoutCancel(ctx))
	if rerr != nil {
		return errors.Join(err, rerr)
	}
	c.list = list
	if c.engine != nil {
		rerr = c.engine.SetModels(c.inForce())
	}
	if err == nil {
		c.o.Log.Info("model "+what, "name", name)
	}
	return errors.Join(err, rerr)
}

// A Tested is what became of asking a provider for its models.
type Tested struct {
	Names  []string // that the provider offers
	Wanted string   // the one that is described
	Took   time.Duration
	Err    error // why it did not say; an *llm.Error, or ErrNoList
}

// ErrNoList: the model has no provider that could be asked.
var ErrNoList = errors.New("there is no list to ask for")

// testLimit is how long a provider may take to name its models.
const testLimit = 10 * time.Second

// Test asks the provider of a model that is described, and need not be stored, which
// models it has. It runs no model. changing names the connected model whose key is
// used where none is given, "" for none. The error is about the description: Invalid
// or db.ErrNotFound.
func (c *Catalog) Test(ctx context.Context, changing string, given map[string]string) (Tested, error) {
	var m config.Model
	if changing == "" {
		given = maps.Clone(given)
		given["name"] = cmp.Or(given["name"], "test")
		var wrong map[string]error
		if m, wrong = config.CheckModel(given, c.o.Presets); len(wrong) > 0 {
			return Tested{}, Invalid(wrong)
		}
	} else {
		var err error
		c.mu.Lock()
		m, _, err = c.described(changing, given)
		c.mu.Unlock()
		if err != nil {
			return Tested{}, err
		}
	}
	t := Tested{Wanted: given["upstream_model"]}
	l, can := c.o.Build(m).Client.(llm.Lister)
	if !can {
		t.Err = ErrNoList
		return t, nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, testLimit, fmt.Errorf("nothing came within %s", testLimit))
	defer cancel()
	started := time.Now()
	t.Names, t.Err = l.Models(ctx)
	t.Took = time.Since(started)
	return t, nil
}
