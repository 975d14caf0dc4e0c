package chat

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// An Action is a declaration of something a model may ask for, without secrets.
type Action struct {
	Name        string            `json:"name"`        // 1 to 64 of a-z A-Z 0-9 _ -, which every provider takes
	Description map[string]string `json:"description"` // by language tag; "en" is what models are told when there is no better
	Parameters  json.RawMessage   `json:"parameters"`  // JSON Schema of an object
	Approval    Approval          `json:"approval"`
	// AwaitCallback: it is settled when the receiver has said how it went, for
	// which it has CallbackTimeout.
	AwaitCallback   bool          `json:"awaitCallback"`
	CallbackTimeout time.Duration `json:"callbackTimeout"` // nanoseconds
	To              string        `json:"to"`              // where it goes, for people; never a secret
	Compensates     bool          `json:"compensates"`     // a compensation is declared
}

// Approval says who decides on an action that a model asked for.
type Approval string

const (
	ApprovalAuto  Approval = "auto"  // nobody: it runs
	ApprovalAsk   Approval = "ask"   // a person
	ApprovalNever Approval = "never" // nobody: it is recorded and refused
)

// The bounds of declarations. Names, descriptions and the number of actions are
// what the strictest provider takes.
const (
	maxActions           = 128
	maxActionName        = 64
	maxDescription       = 1000 // characters
	maxParametersBytes   = 64 << 10
	maxToBytes           = 1000
	maxDescriptions      = 32
	maxDeclarationsBytes = 8 << 20
)

// Declarations are the actions in force, compiled. They never change and may be
// used by many goroutines at once. Nil and the zero value declare nothing.
type Declarations struct {
	list    []Action
	schemas map[string]*jsonschema.Schema // by name
	frozen  []byte
}

// Declare compiles a list of actions. Its error names the action and says what is
// wrong with it.
func Declare(list []Action) (*Declarations, error) {
	d := &Declarations{schemas: map[string]*jsonschema.Schema{}}
	if len(list) > maxActions {
		return nil, fmt.Errorf("%d actions are declared; providers take at most %d", len(list), maxActions)
	}
	for _, a := range list {
		a = a.clone()
		a.Parameters = compact(a.Parameters)
		schema, err := a.compile()
		if err != nil {
			return nil, fmt.Errorf("action %s: %w", abridged(a.Name, 2*maxActionName), err)
		}
		if d.schemas[a.Name] != nil {
			return nil, fmt.Errorf("action %q: there is another one of that name", a.Name)
		}
		d.list, d.schemas[a.Name] = append(d.list, a), schema
	}
	if len(d.list) == 0 {
		return d, nil
	}
	frozen, err := encode(d.list)
	if err != nil {
		return nil, err
	}
	d.frozen = frozen
	return d, nil
}

// ParseDeclarations returns what [Declarations.Frozen] wrote; of nothing, one that
// declares nothing. What it does not know is an error: it could decide.
func ParseDeclarations(frozen []byte) (*Declarations, error) {
	if len(frozen) == 0 {
		return &Declarations{}, nil
	}
	if len(frozen) > maxDeclarationsBytes {
		return nil, fmt.Errorf("declarations of %d bytes", len(frozen))
	}
	var list []Action
	if err := decodeStrictly(frozen, &list); err != nil {
		return nil, fmt.Errorf("read declarations: %w", err)
	}
	return Declare(list)
}

// Frozen returns the declarations as canonical JSON, nil when there are none. The
// same declarations give the same bytes, and [ParseDeclarations] gives them again.
func (d *Declarations) Frozen() []byte {
	if d == nil {
		return nil
	}
	return bytes.Clone(d.frozen)
}

// Actions returns what is declared, in the order declared.
func (d *Declarations) Actions() []Action {
	if d == nil {
		return nil
	}
	var list []Action
	for _, a := range d.list {
		list = append(list, a.clone())
	}
	return list
}

// Action returns the action of that name, and whether there is one.
func (d *Declarations) Action(name string) (Action, bool) {
	if d != nil {
		for _, a := range d.list {
			if a.Name == name {
				return a.clone(), true
			}
		}
	}
	return Action{}, false
}

// Describe returns the description in that language, else the one in English, else
// the first by tag.
func (a Action) Describe(language string) string {
	for _, tag := range append([]string{language, "en"}, slices.Sorted(maps.Keys(a.Description))...) {
		if s, ok := a.Description[tag]; ok {
			return s
		}
	}
	return ""
}

func (a Action) clone() Action {
	a.Description = maps.Clone(a.Description)
	a.Parameters = bytes.Clone(a.Parameters)
	return a
}

// compile checks everything about a and returns the schema of its parameters.
func (a Action) compile() (*jsonschema.Schema, error) {
	switch {
	case !isActionName(a.Name):
		return nil, fmt.Errorf("the name must be 1 to %d letters, digits, _ and -", maxActionName)
	case a.Approval != ApprovalAuto && a.Approval != ApprovalAsk && a.Approval != ApprovalNever:
		return nil, errors.New("approval must be one of auto, ask, never")
	case a.CallbackTimeout < 0:
		return nil, errors.New("the callback timeout must not be negative")
	case a.AwaitCallback && a.CallbackTimeout == 0:
		return nil, errors.New("a callback that is awaited needs a timeout")
	case len(a.To) > maxToBytes || !plain(a.To):
		return nil, fmt.Errorf("where it goes must be at most %d bytes of plain text", maxToBytes)
	case len(a.Description) > maxDescriptions:
		return nil, fmt.Errorf("more than %d descriptions", maxDescriptions)
	}
	for tag, s := range a.Description {
		if !isLanguageTag(tag) {
			return nil, fmt.Errorf("%s is no language tag, like en or zh-CN", abridged(tag, 20))
		}
		if strings.TrimSpace(s) == "" || utf8.RuneCountInString(s) > maxDescription || !utf8.ValidString(s) {
			return nil, fmt.Errorf("the description in %s must be 1 to %d characters", tag, maxDescription)
		}
	}
	schema, err := compileSchema(a.Parameters)
	if err != nil {
		return nil, fmt.Errorf("parameters: %w", err)
	}
	return schema, nil
}

// notAtTheTop are the rules that providers refuse at the top of a schema: the big
// ones want an object there and nothing that could make it something else.
var notAtTheTop = []string{"allOf", "anyOf", "enum", "not", "oneOf"}

// schemaURL is the name a schema has while it is compiled. It can be neither
// fetched nor opened.
const schemaURL = "urn:semel:parameters"

func compileSchema(parameters json.RawMessage) (*jsonschema.Schema, error) {
	if len(parameters) > maxParametersBytes {
		return nil, fmt.Errorf("the schema has more than %d bytes", maxParametersBytes)
	}
	doc, err := parseStrictly(string(parameters))
	if err != nil {
		return nil, fmt.Errorf("the schema cannot be used: %w", err)
	}
	object, ok := doc.(map[string]any)
	if !ok || object["type"] != "object" {
		return nil, errors.New(`the schema must be that of an object, with "type": "object"`)
	}
	for _, rule := range notAtTheTop {
		if _, ok := object[rule]; ok {
			return nil, fmt.Errorf("the schema must not have %q at its top: providers refuse that", rule)
		}
	}
	c := jsonschema.NewCompiler()
	c.UseLoader(noLoader{})
	c.AssertFormat() // who declares "format": "email" means it
	if err := c.AddResource(schemaURL, doc); err != nil {
		return nil, err
	}
	schema, err := c.Compile(schemaURL)
	if err != nil {
		return nil, fmt.Errorf("the schema does not compile: %s", abridgedLine(compileError(err), maxReason))
	}
	if err := new(parts).count(schema); err != nil {
		return nil, fmt.Errorf("the schema cannot be used: %w", err)
	}
	return schema, nil
}

func compileError(err error) string {
	if broken, ok := errors.AsType[*jsonschema.SchemaValidationError](err); ok {
		if rules, ok := errors.AsType[*jsonschema.ValidationError](broken.Err); ok {
			return slices.Min(misfits(nil, rules))
		}
	}
	return err.Error()
}

// noLoader refuses every schema but the one given: what decides must lie in the
// declaration, and nothing is fetched.
type noLoader struct{}

func (noLoader) Load(string) (any, error) {
	return nil, errors.New("a schema may refer to its own parts only")
}

func isActionName(s string) bool {
	return s != "" && len(s) <= maxActionName && !strings.ContainsFunc(s, func(r rune) bool {
		return !(isASCIIAlphanumeric(r) || r == '_' || r == '-')
	})
}

// isLanguageTag reports whether s has the form of a tag like "en" or "zh-CN".
func isLanguageTag(s string) bool {
	if len(s) > 35 {
		return false
	}
	for i, part := range strings.Split(s, "-") {
		if part == "" || len(part) > 8 || i == 0 && len(part) < 2 ||
			strings.ContainsFunc(part, func(r rune) bool { return !isASCIIAlphanumeric(r) }) {
			return false
		}
	}
	return true
}

func isASCIIAlphanumeric(r rune) bool {
	return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9'
}

func plain(s string) bool { return utf8.ValidString(s) && !strings.ContainsFunc(s, unicode.IsControl) }

// abridged is s in quotes and of at most that many characters, for messages.
func abridged(s string, most int) string {
	if r := []rune(s); len(r) > most {
		s = string(r[:most]) + "…"
	}
	return fmt.Sprintf("%q", s)
}

// abridgedLine is s as one line of at most that many characters.
func abridgedLine(s string, most int) string {
	s = strings.Join(strings.FieldsFunc(s, func(r rune) bool { return unicode.IsControl(r) || r == ' ' }), " ")
	if r := []rune(s); len(r) > most {
		s = string(r[:most-1]) + "…"
	}
	return s
}

// compact is JSON without white space; what is none stays as it is.
func compact(text json.RawMessage) json.RawMessage {
	var b bytes.Buffer
	if json.Compact(&b, text) != nil {
		return text
	}
	return b.Bytes()
}

// encode is v as JSON without white space, with its own characters.
func encode(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// decodeStrictly reads one JSON value without unknown fields and without anything
// behind it.
func decodeStrictly(data []byte, into any) error {
	if !json.Valid(data) { // the decoder would stop before what follows
		return errors.New("not one JSON value")
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	return dec.Decode(into)
}
