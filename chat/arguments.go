package chat

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// The bounds of the JSON of models. Each stands for something that readers of
// JSON disagree on or that costs them more than it is worth: what a person
// approves must be what every receiver reads.
const (
	maxArgumentsBytes = 128 << 10
	maxJSONDepth      = 64
	maxNumberBytes    = 100
	minExponent       = -400
)

// parseStrictly reads one JSON value of which there can be no two readings: no
// key twice in an object, no half of a surrogate pair, no number beyond a double,
// no deeper than maxJSONDepth. Numbers are [json.Number].
func parseStrictly(text string) (any, error) {
	if !utf8.ValidString(text) || !json.Valid([]byte(text)) {
		return nil, errors.New("no JSON")
	}
	if !surrogatesPair(text) {
		return nil, errors.New("half of a surrogate pair")
	}
	dec := json.NewDecoder(strings.NewReader(text))
	dec.UseNumber()
	return readValue(dec, maxJSONDepth)
}

// readValue reads the next value of a text that is known to be JSON.
func readValue(dec *json.Decoder, depth int) (any, error) {
	token, err := dec.Token()
	if err != nil {
		return nil, err
	}
	switch t := token.(type) {
	case json.Number:
		return t, checkNumber(string(t))
	case json.Delim:
		if depth == 0 {
			return nil, fmt.Errorf("nested more than %d deep", maxJSONDepth)
		}
		if t == '[' {
			return readArray(dec, depth-1)
		}
		return readObject(dec, depth-1)
	}
	return token, nil
}

func readArray(dec *json.Decoder, depth int) (any, error) {
	list := []any{}
	for dec.More() {
		v, err := readValue(dec, depth)
		if err != nil {
			return nil, err
		}
		list = append(list, v)
	}
	_, err := dec.Token()
	return list, err
}

func readObject(dec *json.Decoder, depth int) (any, error) {
	object := map[string]any{}
	for dec.More() {
		key, err := dec.Token()
		if err != nil {
			return nil, err
		}
		name := key.(string) // the text is JSON
		if _, ok := object[name]; ok {
			return nil, fmt.Errorf("the key %s twice in one object", abridged(name, 60))
		}
		if object[name], err = readValue(dec, depth); err != nil {
			return nil, err
		}
	}
	_, err := dec.Token()
	return object, err
}

// checkNumber refuses numbers that a double cannot hold, and those that would fill
// memory when they are computed with exactly.
func checkNumber(literal string) error {
	_, err := strconv.ParseFloat(literal, 64)
	if at := strings.IndexAny(literal, "eE"); err == nil && at >= 0 {
		var exponent int
		exponent, err = strconv.Atoi(literal[at+1:])
		if exponent < minExponent {
			err = strconv.ErrRange
		}
	}
	if err != nil || len(literal) > maxNumberBytes {
		return fmt.Errorf("a number that is too large or too long: %s", abridged(literal, 30))
	}
	return nil
}

// surrogatesPair reports whether each escaped half of a surrogate pair in a JSON
// text has its other half behind it. Readers put different things in the place of
// a lone one.
func surrogatesPair(text string) bool {
	for {
		at := strings.IndexByte(text, '\\')
		if at < 0 {
			return true
		}
		text = text[at:]
		unit, ok := escapedUnit(text)
		switch {
		case !ok:
			text = text[2:]
			continue
		case unit >= 0xDC00 && unit <= 0xDFFF:
			return false
		case unit >= 0xD800 && unit <= 0xDBFF:
			low, ok := escapedUnit(text[6:])
			if !ok || low < 0xDC00 || low > 0xDFFF {
				return false
			}
			text = text[6:]
		}
		text = text[6:]
	}
}

// escapedUnit reads \uXXXX at the start of s.
func escapedUnit(s string) (uint64, bool) {
	if len(s) < 6 || s[0] != '\\' || s[1] != 'u' {
		return 0, false
	}
	unit, err := strconv.ParseUint(s[2:6], 16, 16)
	return unit, err == nil
}
