package handlers

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"reflect"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"semel/chat"
)

// readTimeout is how long a client may take to send a body.
const readTimeout = 30 * time.Second

// jsonOverhead is what a body may have beside the question: other fields, and
// the escapes of JSON.
const jsonOverhead = 64 << 10

// bodyBytes is the longest body: a question in letters of two bytes, each sent as
// an escape of six, which is how some programs send everything that is not ASCII.
func (s *server) bodyBytes() int64 { return 3*int64(s.MessageBytes) + jsonOverhead }

// readJSON decodes a body into v, which is a pointer to a struct. Anything that
// is not exactly that is an error that says what is wrong.
func (s *server) readJSON(w http.ResponseWriter, r *http.Request, v any) error {
	ct := r.Header.Get("Content-Type")
	if mt, _, err := mime.ParseMediaType(ct); err != nil || mt != "application/json" {
		return refuse(http.StatusUnsupportedMediaType, "unsupported_media", chat.RetryNewID,
			fmt.Sprintf("The body must be application/json, not %q.", ct))
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, s.bodyBytes()))
	if err == nil {
		_ = http.NewResponseController(w).SetReadDeadline(time.Time{}) // see patience
	}
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		return s.tooLarge(fmt.Sprintf("The body is larger than %d bytes, which is what limits.message_bytes = %d allows.", tooLarge.Limit, s.MessageBytes))
	case err != nil:
		return refuse(http.StatusRequestTimeout, "bad_request", chat.RetrySameID, "The body did not arrive whole.")
	case !utf8.Valid(body):
		return badRequest("The body is not valid UTF-8.")
	}
	return decode(body, v)
}

func (s *server) tooLarge(detail string) error {
	return refuse(http.StatusRequestEntityTooLarge, "too_large", chat.RetryNewID, detail)
}

// decode is readJSON's parser. It refuses what encoding/json lets pass: names it
// does not know, names in other letters, and a name twice, of which another reader
// takes the other value.
func decode(body []byte, v any) error {
	into := reflect.ValueOf(v).Elem()
	known := fieldsOf(into.Type())
	d := json.NewDecoder(bytes.NewReader(body))
	if first, err := d.Token(); err != nil {
		return broken(body, err, "")
	} else if first != json.Delim('{') {
		return badRequest("A JSON object is needed.")
	}
	seen := make([]bool, len(known))
	for d.More() {
		t, err := d.Token()
		if err != nil {
			return broken(body, err, "")
		}
		name, _ := t.(string)
		i, is := known[name]
		switch {
		case !is:
			return badRequest(fmt.Sprintf("unknown field %q.", name))
		case seen[i]:
			return badRequest(fmt.Sprintf("The field %q is there twice.", name))
		}
		seen[i] = true
		if err := d.Decode(into.Field(i).Addr().Interface()); err != nil {
			return broken(body, err, name)
		}
	}
	if _, err := d.Token(); err != nil {
		return broken(body, err, "")
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return badRequest("There is something after the JSON object.")
	}
	return nil
}

// fieldsOf returns the place of each field of a struct by its name in JSON.
func fieldsOf(t reflect.Type) map[string]int {
	if m, ok := fieldNames.Load(t); ok {
		return m.(map[string]int)
	}
	m := map[string]int{}
	for i := range t.NumField() {
		name, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
		m[name] = i
	}
	fieldNames.Store(t, m)
	return m
}

var fieldNames sync.Map // reflect.Type → map[string]int

// broken refuses a body that cannot be read. Where it is no JSON, a decoder that
// reads it whole says best where.
func broken(body []byte, err error, field string) error {
	if whole := json.NewDecoder(bytes.NewReader(body)).Decode(new(json.RawMessage)); whole != nil {
		err = whole
	}
	return badRequest(explain(err, field))
}

// explain says what is wrong with a body, or with the value of one field of it.
func explain(err error, field string) string {
	var typ *json.UnmarshalTypeError
	var syntax *json.SyntaxError
	switch {
	case errors.As(err, &typ):
		return fmt.Sprintf("%s cannot be a %s.", orBody(strings.Trim(field+"."+typ.Field, ".")), typ.Value)
	case errors.As(err, &syntax):
		return fmt.Sprintf("The JSON breaks at byte %d: %s.", syntax.Offset, strings.TrimPrefix(err.Error(), "json: "))
	case errors.Is(err, io.EOF):
		return "The body is empty."
	case errors.Is(err, io.ErrUnexpectedEOF):
		return "The JSON ends too early."
	}
	return strings.TrimPrefix(err.Error(), "json: ") + "."
}

func orBody(field string) string {
	if field == "" {
		return "The body"
	}
	return field
}
