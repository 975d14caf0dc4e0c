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

// decode is readJSON's parser.
func decode(body []byte, v any) error {
	if err := checkNames(body, reflect.TypeOf(v).Elem()); err != nil {
		return err
	}
	d := json.NewDecoder(bytes.NewReader(body))
	if err := d.Decode(v); err != nil {
		return badRequest(explain(err))
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return badRequest("There is something after the JSON object.")
	}
	return nil
}

// checkNames refuses what encoding/json lets pass: names it does not know, names in
// other letters, and a name twice, of which another reader takes the other value.
// What is no JSON it leaves to the decoder.
func checkNames(body []byte, fields reflect.Type) error {
	known := map[string]bool{}
	for i := range fields.NumField() {
		name, _, _ := strings.Cut(fields.Field(i).Tag.Get("json"), ",")
		known[name] = true
	}
	d := json.NewDecoder(bytes.NewReader(body))
	if first, err := d.Token(); err != nil {
		return nil
	} else if first != json.Delim('{') {
		return badRequest("A JSON object is needed.")
	}
	seen := map[string]bool{}
	for d.More() {
		t, err := d.Token()
		name, isName := t.(string)
		switch {
		case err != nil || !isName:
			return nil
		case !known[name]:
			return badRequest(fmt.Sprintf("unknown field %q.", name))
		case seen[name]:
			return badRequest(fmt.Sprintf("The field %q is there twice.", name))
		}
		seen[name] = true
		var value json.RawMessage
		if d.Decode(&value) != nil {
			return nil
		}
	}
	return nil
}

func explain(err error) string {
	var typ *json.UnmarshalTypeError
	var syntax *json.SyntaxError
	switch {
	case errors.As(err, &typ):
		return fmt.Sprintf("%s cannot be a %s.", orBody(typ.Field), typ.Value)
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
