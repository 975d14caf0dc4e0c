package chat

import (
	"errors"
	"fmt"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// maxParts is how many parts a schema may have, references followed.
const maxParts = 2000

// parts counts the parts of a schema as its validator meets them. With two
// alternatives that lead back to both, what it does doubles with each level of the
// arguments: five hundred bytes of a model keep it busy for half a minute, and each
// level more for twice as long. So a schema must not lead back to itself, and what it
// does is at most its parts times the arguments.
type parts struct {
	n    int
	open map[*jsonschema.Schema]bool // those that lead to where we are
}

var errCircle = errors.New("it refers to itself in a circle, so that nothing would bound the work of checking arguments")

func (p *parts) count(s *jsonschema.Schema) error {
	if s == nil {
		return nil
	}
	if p.open == nil {
		p.open = map[*jsonschema.Schema]bool{}
	}
	if p.open[s] {
		return errCircle
	}
	if p.n++; p.n > maxParts {
		return fmt.Errorf("it has more than %d parts, references followed", maxParts)
	}
	if s.DynamicRef != nil || s.RecursiveRef != nil {
		return errors.New("it has a $dynamicRef or a $recursiveRef, which are for circles")
	}
	p.open[s] = true
	defer delete(p.open, s)
	for _, list := range [][]*jsonschema.Schema{
		{s.Ref, s.Not, s.If, s.Then, s.Else, s.PropertyNames, s.UnevaluatedProperties, s.Contains, s.Items2020, s.UnevaluatedItems, s.ContentSchema},
		s.AllOf, s.AnyOf, s.OneOf, s.PrefixItems,
		schemasIn(s.AdditionalProperties), schemasIn(s.Items), schemasIn(s.AdditionalItems),
	} {
		for _, part := range list {
			if err := p.count(part); err != nil {
				return err
			}
		}
	}
	for _, err := range []error{countAll(p, s.Properties), countAll(p, s.PatternProperties), countAll(p, s.DependentSchemas)} {
		if err != nil {
			return err
		}
	}
	for _, d := range s.Dependencies {
		for _, part := range schemasIn(d) {
			if err := p.count(part); err != nil {
				return err
			}
		}
	}
	return nil
}

func countAll[K comparable](p *parts, of map[K]*jsonschema.Schema) error {
	for _, part := range of {
		if err := p.count(part); err != nil {
			return err
		}
	}
	return nil
}

// schemasIn are the schemas in a keyword that may have something else, too.
func schemasIn(v any) []*jsonschema.Schema {
	switch v := v.(type) {
	case *jsonschema.Schema:
		return []*jsonschema.Schema{v}
	case []*jsonschema.Schema:
		return v
	}
	return nil
}
