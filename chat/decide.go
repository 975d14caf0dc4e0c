package chat

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"
)

// A ToolCall is an action that a model proposes, as it is stored with the answer.
type ToolCall struct {
	ID        string `json:"id"`
	Name      string `json:"name"`
	Arguments string `json:"arguments"` // as the model gave it; may be no JSON at all
}

// ParseToolCalls reads the tool calls of a snapshot, a JSON array; of nothing, none.
func ParseToolCalls(stored []byte) ([]ToolCall, error) {
	if len(stored) == 0 {
		return nil, nil
	}
	var calls []ToolCall
	if err := decodeStrictly(stored, &calls); err != nil {
		return nil, fmt.Errorf("read tool calls: %w", err)
	}
	return calls, nil
}

// A Verdict says what becomes of a proposed action.
type Verdict string

const (
	VerdictAuto    Verdict = "auto"    // it runs
	VerdictAsk     Verdict = "ask"     // a person decides
	VerdictNever   Verdict = "never"   // its declaration refuses it
	VerdictInvalid Verdict = "invalid" // it is none that could run
)

// Why an action was refused.
const (
	CodeNotAllowed    = "not_allowed"    // verdict never
	CodeUnknownAction = "unknown_action" // verdict invalid
	CodeBadArguments  = "bad_arguments"  // verdict invalid
)

// An ActionDecision is what was decided of one tool call. ([Decision] is of arrivals.)
type ActionDecision struct {
	Position  int      // from 0, one per tool call
	Action    string   // the name the model gave; of an unknown one abridged, never empty
	Arguments string   // the JSON object as the model gave it, byte for byte; "" when it gave none that is one
	Digest    [32]byte // SHA-256 of Action, a zero byte, Arguments
	Verdict   Verdict
	Code      string // of never and invalid
	Reason    string // of never and invalid: one sentence in English for people
}

const maxReason = 300 // characters

// Decide decides on every tool call of an answer. It is pure: the same declarations
// and the same calls give the same decisions for ever, so that what is stored can be
// decided again. An answer that was cut or stopped proposes nothing.
func (d *Declarations) Decide(calls []ToolCall, finish Finish) []ActionDecision {
	if finish == FinishStopped || finish == FinishLength || finish == FinishFiltered {
		return nil
	}
	var decisions []ActionDecision
	for i, c := range calls {
		a := d.decide(asStored(c.Name), asStored(c.Arguments))
		a.Position = i
		a.Digest = DigestAction(a.Action, a.Arguments)
		decisions = append(decisions, a)
	}
	return decisions
}

// DigestAction returns what an approval binds to.
func DigestAction(action, arguments string) [32]byte {
	return sha256.Sum256([]byte(action + "\x00" + arguments))
}

func (d *Declarations) decide(name, arguments string) ActionDecision {
	a := ActionDecision{Action: name}
	value, err := parseArguments(arguments)
	if err == nil {
		a.Arguments = arguments
		if strings.TrimSpace(arguments) == "" {
			a.Arguments = "{}"
		}
	}
	refuse := func(v Verdict, code, format string, args ...any) ActionDecision {
		a.Verdict, a.Code, a.Reason = v, code, abridgedLine(fmt.Sprintf(format, args...), maxReason)
		return a
	}
	action, known := d.Action(name)
	switch {
	case !known:
		a.Action = abridgedName(name)
		return refuse(VerdictInvalid, CodeUnknownAction, "No action is declared as %s.", abridged(name, maxActionName))
	case action.Approval == ApprovalNever:
		return refuse(VerdictNever, CodeNotAllowed, "The action %q is declared as one that is never run.", name)
	case err != nil:
		return refuse(VerdictInvalid, CodeBadArguments, "The arguments are not one plain JSON object: %v.", err)
	}
	if misfit := fits(d.schemas[name], value); misfit != "" {
		return refuse(VerdictInvalid, CodeBadArguments, "The arguments do not fit their schema: %s.", misfit)
	}
	a.Verdict = Verdict(action.Approval)
	return a
}

// parseArguments reads the arguments of a tool call. Of models that need none, many
// give nothing.
func parseArguments(text string) (map[string]any, error) {
	if len(text) > maxArgumentsBytes {
		return nil, fmt.Errorf("more than %d bytes", maxArgumentsBytes)
	}
	if strings.TrimSpace(text) == "" {
		return map[string]any{}, nil
	}
	value, err := parseStrictly(text)
	if err != nil {
		return nil, err
	}
	object, ok := value.(map[string]any)
	if !ok {
		return nil, errors.New("another kind of value")
	}
	return object, nil
}

// fits returns "" where arguments fit a schema, else what does not. The arguments
// are a stranger's and the validator is not ours: where it panics, nothing runs, and
// the answer is kept.
func fits(schema *jsonschema.Schema, arguments map[string]any) (misfit string) {
	defer func() {
		if recover() != nil {
			misfit = "the schema cannot be applied to them"
		}
	}()
	err := schema.Validate(arguments)
	if err == nil {
		return ""
	}
	invalid, ok := errors.AsType[*jsonschema.ValidationError](err)
	if !ok {
		return "the schema cannot be applied to them"
	}
	// The validator walks maps, so its order is not ours to keep.
	return slices.Min(misfits(nil, invalid))
}

// misfits are the rules that were broken, one sentence each. Of alternatives none
// of which fits, each would be another story: those are not gone into.
func misfits(list []string, e *jsonschema.ValidationError) []string {
	switch e.ErrorKind.(type) {
	case *kind.Schema, *kind.Group, *kind.Reference, *kind.AllOf:
		if len(e.Causes) > 0 {
			for _, cause := range e.Causes {
				list = misfits(list, cause)
			}
			return list
		}
	}
	return append(list, misfitOf(e))
}

// misfitOf says it in our words: those of the validator may change with it.
func misfitOf(e *jsonschema.ValidationError) string {
	at := pointer(e.InstanceLocation)
	if at == "" {
		at = "the object"
	}
	switch k := e.ErrorKind.(type) {
	case *kind.Required:
		return pointer(append(slices.Clone(e.InstanceLocation), k.Missing[0])) + " is missing"
	case *kind.AdditionalProperties:
		return pointer(append(slices.Clone(e.InstanceLocation), slices.Min(k.Properties))) + " is not declared"
	case *kind.PropertyNames: // its location is one that the validator has used anew since
		return "the name " + abridged(k.Property, 60) + " breaks the rule propertyNames"
	case *kind.Type:
		return fmt.Sprintf("%s is of type %s, not %s", at, k.Got, strings.Join(k.Want, " or "))
	case *kind.Enum:
		return at + " is none of the values it may have"
	case *kind.Format:
		return at + " is not of the format " + k.Want
	}
	if rule := e.ErrorKind.KeywordPath(); len(rule) > 0 {
		return at + " breaks the rule " + strings.Join(rule, "/")
	}
	return at + " breaks a rule"
}

// pointer is a place in JSON as RFC 6901 writes it, each name cut to what a person
// reads.
func pointer(path []string) string {
	var b strings.Builder
	for _, name := range path {
		b.WriteByte('/')
		b.WriteString(strings.NewReplacer("~", "~0", "/", "~1").Replace(abridgedLine(name, 60)))
	}
	return b.String()
}

// abridgedName is a name that no action has, short enough to be stored and never
// empty.
func abridgedName(s string) string {
	if s = abridgedLine(s, maxActionName); s == "" {
		return "(unnamed)"
	}
	return s
}

// asStored is s as it comes back from the database, where it is JSON: each byte
// that is no UTF-8 is replaced. So an answer that has just come is decided as it
// will be read.
func asStored(s string) string { return string([]rune(s)) }
