package main

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"encoding/json"
	"io"
	"log"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"semel/chat"
)

type deed int

const (
	deedLink deed = iota // a name for a new file
	deedUnlink
	deedWrite
	deedTruncate
	deedSync // of a file or a folder: began
	deedSynced
	deedAck // a client was told
)

// A step of a record, in the order in which the disk saw it. (open and openat both make
// files: this build of SQLite uses the one, Go the other.)
type traceStep struct {
	deed   deed
	file   int    // a number for each file there ever was
	name   string // of a link
	offset int64
	data   []byte
	sync   int // the number of a sync, at its beginning and at its end
	ack    *ack
}

// An ack is what a client was told about one request.
type ack struct {
	RequestID string           `json:"requestId"`
	SessionID string           `json:"sessionId"`
	State     chat.State       `json:"state"`
	Message   *json.RawMessage `json:"message"`
	Content   string           `json:"content"`
}

// A trace reads records, one process after the other, about the files of one folder.
type trace struct {
	dir   string
	steps []traceStep
	syncs int
	names map[string]int // of the files there are now
	files int
}

const folder = 0 // the number of the folder itself

func newTrace(dir string) *trace {
	return &trace{dir: dir, names: map[string]int{}}
}

var (
	traceLine = regexp.MustCompile(`^(\d+) +(?:<\.\.\. )?(\w+)(\(| resumed>)(.*)$`)
	quoted    = regexp.MustCompile(`"((?:\\x[0-9a-f]{2})*)"(\.\.\.)?`)
	described = regexp.MustCompile(`^(-?\d+)(?:<((?:\\x[0-9a-f]{2})*)>)?`)
	numbers   = regexp.MustCompile(`-?\d+`)
)

func unhex(s string) []byte {
	b, err := hex.DecodeString(strings.ReplaceAll(s, `\x`, ""))
	if err != nil {
		log.Fatalf("strace: %q: %v", s, err)
	}
	return b
}

// An open call began on a thread and has not returned.
type openCall struct {
	what, args string
	sync       int
}

// read appends what record has.
func (tr *trace) read(record string) {
	f, err := os.Open(record)
	if err != nil {
		log.Fatal(err)
	}
	defer f.Close()
	open := map[string]*openCall{}     // by thread
	fds := map[int]int{}               // of this process: its files
	sockets := map[int]*bytes.Buffer{} // of this process: what was said and not yet understood
	lines := bufio.NewReaderSize(f, 1<<20)
	for {
		line, err := lines.ReadString('\n')
		if err == io.EOF && line == "" {
			return
		}
		if err != nil && err != io.EOF {
			log.Fatal(err)
		}
		m := traceLine.FindStringSubmatch(strings.TrimSuffix(line, "\n"))
		if m == nil {
			continue // exits
		}
		thread, what, rest := m[1], m[2], m[4]
		var call *openCall
		if m[3] == "(" {
			call = &openCall{what: what, args: rest}
			tr.begin(call, sockets)
			if args, unfinished := strings.CutSuffix(rest, " <unfinished ...>"); unfinished {
				call.args = args
				open[thread] = call
				continue
			}
		} else {
			if call = open[thread]; call == nil || call.what != what {
				log.Fatalf("strace: %.200s, and it did not begin", line)
			}
			delete(open, thread)
			call.args += rest
		}
		tr.end(call, fds, sockets)
	}
}

// begin is what is true from the moment in which a call is made: a client may have been
// told, and a sync makes durable what was written before.
func (tr *trace) begin(c *openCall, sockets map[int]*bytes.Buffer) {
	switch c.what {
	case "fsync", "fdatasync":
		tr.syncs++
		c.sync = tr.syncs
		tr.steps = append(tr.steps, traceStep{deed: deedSync, file: tr.described(c.args), sync: c.sync})
	case "write", "writev":
		fd, _ := tr.fd(c.args)
		if said := sockets[fd]; said != nil {
			for _, q := range quoted.FindAllStringSubmatch(c.args, -1) {
				said.Write(unhex(q[1]))
			}
			tr.acks(said)
		}
	}
}

func (tr *trace) fd(args string) (fd int, path string) {
	m := described.FindStringSubmatch(args)
	if m == nil {
		return -1, ""
	}
	fd, err := strconv.Atoi(m[1])
	if err != nil {
		log.Fatal(err)
	}
	return fd, string(unhex(m[2]))
}

// described is the number of the file that a call is about; -1 is none of ours.
func (tr *trace) described(args string) int {
	_, path := tr.fd(args)
	if path == tr.dir {
		return folder
	}
	if n, ok := tr.names[tr.ours(path)]; ok {
		return n
	}
	return -1
}

// ours is the name of a file of the folder that outlives a power cut; "" is none.
func (tr *trace) ours(path string) string {
	name := filepath.Base(path)
	if filepath.Dir(path) != tr.dir || !strings.HasPrefix(name, "semel.db") || strings.HasSuffix(name, "-shm") || strings.HasSuffix(name, ".lock") {
		return ""
	}
	return name
}

var returned = regexp.MustCompile(`\) += (-?\d+)(?:<((?:\\x[0-9a-f]{2})*)>)?[^"]*$`)

// end is what is true once a call has returned.
func (tr *trace) end(c *openCall, fds map[int]int, sockets map[int]*bytes.Buffer) {
	r := returned.FindStringSubmatchIndex(c.args)
	if r == nil {
		return // the process died in it
	}
	result, err := strconv.ParseInt(c.args[r[2]:r[3]], 10, 64)
	if err != nil || result < 0 {
		return
	}
	args, path := c.args[:r[0]], ""
	if r[4] >= 0 {
		path = string(unhex(c.args[r[4]:r[5]]))
	}
	add := func(s traceStep) {
		if s.file >= 0 {
			tr.steps = append(tr.steps, s)
		}
	}
	after := func(args string) []int64 { // numbers behind the last string, or of all
		args = args[strings.LastIndex(args, `"`)+1:]
		if i := strings.Index(args, ">"); i >= 0 {
			args = args[i:]
		}
		var list []int64
		for _, n := range numbers.FindAllString(args, -1) {
			v, err := strconv.ParseInt(n, 10, 64)
			if err != nil {
				log.Fatal(err)
			}
			list = append(list, v)
		}
		return list
	}
	switch c.what {
	case "open", "openat":
		name := tr.ours(path)
		if _, there := tr.names[name]; name == "" || there {
			return
		}
		if !strings.Contains(args, "O_CREAT") {
			log.Fatalf("%s is opened, and was not made", name)
		}
		tr.files++
		tr.names[name] = tr.files
		add(traceStep{deed: deedLink, file: tr.files, name: name})
	case "accept4":
		sockets[int(result)] = &bytes.Buffer{}
	case "close":
		fd, _ := tr.fd(args)
		delete(sockets, fd)
	case "unlink":
		q := quoted.FindStringSubmatch(args)
		name := tr.ours(string(unhex(q[1])))
		if n, ok := tr.names[name]; ok {
			add(traceStep{deed: deedUnlink, file: n, name: name})
			delete(tr.names, name)
		}
	case "pwrite64":
		q := quoted.FindStringSubmatch(args)
		n := after(args)
		if q[2] != "" || len(n) != 2 {
			log.Fatalf("strace: a write is not whole: %.300s", args)
		}
		add(traceStep{deed: deedWrite, file: tr.described(args), offset: n[1], data: unhex(q[1])[:result]})
	case "ftruncate":
		n := after(args)
		add(traceStep{deed: deedTruncate, file: tr.described(args), offset: n[len(n)-1]})
	case "fsync", "fdatasync":
		add(traceStep{deed: deedSynced, file: tr.described(args), sync: c.sync})
	case "write", "writev":
		if n := tr.described(args); n >= 0 {
			log.Fatalf("a file is written in a way that this test does not follow: %.300s", args)
		}
	default: // rename, fallocate, …
		if strings.Contains(args, hexOfPath(tr.dir)) {
			log.Fatalf("%s is not followed: %.300s", c.what, args)
		}
	}
}

func hexOfPath(path string) string {
	var b strings.Builder
	for i := range len(path) {
		b.WriteString(`\x` + hex.EncodeToString([]byte{path[i]}))
	}
	return b.String()
}

// acks takes the answers from what was said on a connection.
func (tr *trace) acks(said *bytes.Buffer) {
	for said.Len() > 0 {
		whole := bytes.NewReader(said.Bytes())
		r := bufio.NewReader(whole)
		res, err := http.ReadResponse(r, nil)
		if err != nil {
			return // the rest is to come
		}
		body, err := io.ReadAll(res.Body)
		if err != nil {
			return
		}
		said.Next(said.Len() - whole.Len() - r.Buffered())
		var a ack
		if json.Unmarshal(body, &a) == nil && a.RequestID != "" && a.State != "" && a.State != chat.StateFailed {
			tr.steps = append(tr.steps, traceStep{deed: deedAck, ack: &a})
		}
	}
}
