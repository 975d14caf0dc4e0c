package llm

import (
	"bufio"
	"bytes"
	"errors"
	"io"
)

// maxEventBytes bounds one server-sent event. A provider that sends a whole
// answer in one frame, as some do at its end, stays far below it.
const maxEventBytes = 16 << 20

// errEventTooLong: a provider sent a line or an event that no provider sends.
var errEventTooLong = errors.New("a server-sent event is longer than 16 MiB")

// An event is one server-sent event: its type, "" when it has none, and its data
// lines joined by newlines.
type event struct {
	Type, Data string
}

// An eventReader decodes a stream of server-sent events as the HTML standard
// defines it (section 9.2.6): lines end with CR, LF or CRLF, a leading byte order
// mark and comments are skipped, unknown fields are ignored. It differs in one
// thing: an event that is complete but for the blank line behind it counts, when
// the stream ends cleanly there, because providers do end streams so.
type eventReader struct {
	r     *bufio.Reader
	lf    bool // the last line ended with CR: an LF that follows belongs to it
	begun bool
	line  []byte
	data  []byte
}

func newEventReader(r io.Reader) *eventReader {
	return &eventReader{r: bufio.NewReaderSize(r, 8<<10)}
}

// next returns the next event that has data. The error is io.EOF at a clean end,
// and whatever the reader said otherwise; an event that was cut by an error is not
// returned.
func (d *eventReader) next() (event, error) {
	var e event
	d.data = d.data[:0]
	some := false
	for {
		line, err := d.readLine()
		if err != nil && !(errors.Is(err, io.EOF) && len(line) > 0) {
			if errors.Is(err, io.EOF) && some {
				e.Data = string(d.data)
				return e, nil
			}
			return event{}, err
		}
		if !d.begun {
			d.begun = true
			line = bytes.TrimPrefix(line, []byte("\xef\xbb\xbf"))
		}
		if len(line) == 0 {
			if some {
				e.Data = string(d.data)
				return e, nil
			}
			e.Type = ""
			continue
		}
		name, value, _ := bytes.Cut(line, []byte(":"))
		value = bytes.TrimPrefix(value, []byte(" "))
		switch string(name) {
		case "event":
			e.Type = string(value)
		case "data":
			if some {
				d.data = append(d.data, '\n')
			}
			some = true
			if len(d.data)+len(value) > maxEventBytes {
				return event{}, errEventTooLong
			}
			d.data = append(d.data, value...)
		}
	}
}

// readLine returns the next line without its end. At the end of the stream it
// returns what there is with io.EOF.
//
// It returns as soon as the end of the line is read: a CR ends one, and whether an
// LF follows is seen when more is read.
func (d *eventReader) readLine() ([]byte, error) {
	d.line = d.line[:0]
	for {
		if _, err := d.r.Peek(1); err != nil {
			return d.line, err
		}
		chunk, _ := d.r.Peek(d.r.Buffered())
		if d.lf {
			d.lf = false
			if chunk[0] == '\n' {
				d.r.Discard(1)
				continue
			}
		}
		i := bytes.IndexAny(chunk, "\r\n")
		if i < 0 {
			if len(d.line)+len(chunk) > maxEventBytes {
				return nil, errEventTooLong
			}
			d.line = append(d.line, chunk...)
			d.r.Discard(len(chunk))
			continue
		}
		d.line = append(d.line, chunk[:i]...)
		d.lf = chunk[i] == '\r'
		d.r.Discard(i + 1)
		return d.line, nil
	}
}
