package llm

import (
	"bytes"
	"errors"
	"io"
	"reflect"
	"strings"
	"testing"
	"testing/iotest"
)

// readEvents reads events until an error, which it returns unless it is the end.
func readEvents(r io.Reader) (list []event, err error) {
	d := newEventReader(r)
	for {
		e, err := d.next()
		if errors.Is(err, io.EOF) {
			return list, nil
		}
		if err != nil {
			return list, err
		}
		list = append(list, e)
	}
}

// The examples of the HTML standard, sections 9.2.1 and 9.2.6, and what providers do.
var eventStreams = []struct {
	name, in string
	want     []event
}{
	{"messages", "data: This is the first message.\n\ndata: This is the second message, it\ndata: has two lines.\n\ndata: This is the third message.\n\n",
		[]event{{"", "This is the first message."}, {"", "This is the second message, it\nhas two lines."}, {"", "This is the third message."}}},
	{"types", "event: add\ndata: 73857293\n\nevent: remove\ndata: 2153\n\nevent: add\ndata: 113411\n\n",
		[]event{{"add", "73857293"}, {"remove", "2153"}, {"add", "113411"}}},
	{"lines of data", "data: YHOO\ndata: +2\ndata: 10\n\n", []event{{"", "YHOO\n+2\n10"}}},
	{"a comment, ids, a leading space", ": test stream\n\ndata: first event\nid: 1\n\ndata:second event\nid\n\ndata:  third event\n\n",
		[]event{{"", "first event"}, {"", "second event"}, {"", " third event"}}},
	{"no data but a line of it", "data\n\ndata\ndata\n\n", []event{{"", ""}, {"", "\n"}}},
	{"one space is taken", "data:test\n\ndata: test\n\n", []event{{"", "test"}, {"", "test"}}},
	{"a byte order mark", "\xef\xbb\xbfdata: a\n\n\xef\xbb\xbfdata: b\n\n", []event{{"", "a"}}},
	{"carriage returns", "data: a\rdata: b\r\revent: x\rdata: c\r\r", []event{{"", "a\nb"}, {"x", "c"}}},
	{"both", "data: a\r\ndata: b\r\n\r\ndata: c\r\n\r\n", []event{{"", "a\nb"}, {"", "c"}}},
	{"mixed", "data: a\rdata: b\ndata: c\r\n\rdata: d\n\r\n", []event{{"", "a\nb\nc"}, {"", "d"}}},
	{"fields nobody knows", "foo: bar\ndata: a\ndatax: b\n data: c\nretry: 10\n\n", []event{{"", "a"}}},
	{"a type without data is no event", "event: x\n\ndata: a\n\n", []event{{"", "a"}}},
	{"the last type counts", "event: x\nevent: y\ndata: a\nevent\n\n", []event{{"", "a"}}},
	{"keep-alives", ": OPENROUTER PROCESSING\n\n:\n\n: keep-alive\n\ndata: a\n\n", []event{{"", "a"}}},
	{"colons", "data: {\"a\": \"b: c\"}\n\n", []event{{"", `{"a": "b: c"}`}}},
	{"an end without a blank line", "data: a\n\ndata: b\n", []event{{"", "a"}, {"", "b"}}},
	{"an end without a line end", "data: a\n\ndata: b", []event{{"", "a"}, {"", "b"}}},
	{"other scripts", "data: 一次\n\n", []event{{"", "一次"}}},
	{"nothing", "", nil},
	{"only ends", "\n\r\n\r\r\n", nil},
}

func TestEventsAreReadAsTheStandardSays(t *testing.T) {
	for _, tt := range eventStreams {
		check := func(how string, r io.Reader) {
			t.Helper()
			got, err := readEvents(r)
			if err != nil || !reflect.DeepEqual(got, tt.want) {
				t.Errorf("%s, %s: got %q, %v, want %q", tt.name, how, got, err, tt.want)
			}
		}
		check("whole", strings.NewReader(tt.in))
		check("byte by byte", iotest.OneByteReader(strings.NewReader(tt.in)))
		check("with its end", iotest.DataErrReader(strings.NewReader(tt.in)))
		for i := range len(tt.in) {
			check("split", io.MultiReader(strings.NewReader(tt.in[:i]), strings.NewReader(tt.in[i:])))
		}
	}
}

// An event is handed out as soon as its last line end is there, also where that is
// a CR which an LF may follow.
func TestAnEventIsNotHeldBackUntilMoreComes(t *testing.T) {
	for _, end := range []string{"\n", "\r", "\r\n"} {
		more := errors.New("it read on")
		d := newEventReader(io.MultiReader(strings.NewReader("data: a"+end+end), iotest.ErrReader(more)))
		if e, err := d.next(); err != nil || e.Data != "a" {
			t.Errorf("%q: got %+v, %v", end, e, err)
		}
		if _, err := d.next(); !errors.Is(err, more) {
			t.Errorf("%q: got %v, want the error of the line", end, err)
		}
	}
}

func TestAnEventThatWasCutIsNotGiven(t *testing.T) {
	cut := errors.New("cut")
	for _, in := range []string{"data: a\n\ndata: b", "data: a\n\ndata: b\n", "data: a\n\nevent: x\n"} {
		got, err := readEvents(io.MultiReader(strings.NewReader(in), iotest.ErrReader(cut)))
		if !errors.Is(err, cut) || !reflect.DeepEqual(got, []event{{"", "a"}}) {
			t.Errorf("%q: got %q, %v", in, got, err)
		}
	}
}

// filler gives n bytes, in large reads.
func filler(n int) io.Reader { return io.LimitReader(endless('x'), int64(n)) }

type endless byte

func (e endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = byte(e)
	}
	return len(p), nil
}

func TestAnEventHasABound(t *testing.T) {
	line := func(n int) io.Reader {
		return io.MultiReader(strings.NewReader("data:"), filler(n), strings.NewReader("\n\n"))
	}
	if got, err := readEvents(line(maxEventBytes - len("data:"))); err != nil || len(got) != 1 || len(got[0].Data) != maxEventBytes-len("data:") {
		t.Errorf("the longest line: got %d events, %v", len(got), err)
	}
	for name, r := range map[string]io.Reader{
		"a line":        line(maxEventBytes),
		"a comment":     io.MultiReader(strings.NewReader(":"), filler(maxEventBytes+1<<16), strings.NewReader("\n\n")),
		"lines of data": io.MultiReader(strings.NewReader("data:"), filler(maxEventBytes/2), strings.NewReader("\ndata:"), filler(maxEventBytes/2), strings.NewReader("\ndata:x\n\n")),
	} {
		if _, err := readEvents(r); !errors.Is(err, errEventTooLong) {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

// naiveEvents is the standard read line by line from the whole body.
func naiveEvents(in string) []event {
	in = strings.TrimPrefix(in, "\xef\xbb\xbf")
	in = strings.ReplaceAll(strings.ReplaceAll(in, "\r\n", "\n"), "\r", "\n")
	var list []event
	var kind string
	var data []string
	dispatch := func() {
		if data != nil {
			list = append(list, event{kind, strings.Join(data, "\n")})
		}
		kind, data = "", nil
	}
	for line := range strings.SplitSeq(in, "\n") {
		name, value, _ := strings.Cut(line, ":")
		value = strings.TrimPrefix(value, " ")
		switch {
		case line == "":
			dispatch()
		case name == "event":
			kind = value
		case name == "data":
			data = append(data, value)
		}
	}
	dispatch() // the standard forgets an event that no blank line ends
	return list
}

func FuzzEventReader(f *testing.F) {
	for _, tt := range eventStreams {
		f.Add([]byte(tt.in), uint8(3))
	}
	f.Add([]byte("data: a\n\r\n\rdata:b\r\n\n\r\r"), uint8(1))
	f.Fuzz(func(t *testing.T, in []byte, step uint8) {
		want := naiveEvents(string(in))
		for name, r := range map[string]io.Reader{
			"whole":    bytes.NewReader(in),
			"in parts": &partReader{in, int(step)%17 + 1},
		} {
			if got, err := readEvents(r); err != nil || !reflect.DeepEqual(got, want) {
				t.Fatalf("%s: got %q, %v, want %q", name, got, err, want)
			}
		}
	})
}

// A partReader gives at most step bytes a read.
type partReader struct {
	in   []byte
	step int
}

func (r *partReader) Read(p []byte) (int, error) {
	if len(r.in) == 0 {
		return 0, io.EOF
	}
	n := copy(p[:min(len(p), r.step)], r.in)
	r.in = r.in[n:]
	return n, nil
}
