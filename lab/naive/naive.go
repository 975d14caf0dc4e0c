// Package naive is the other lane of the lab: a chat as most applications begin. It
// is written with care and is no caricature: what comes is written down durably
// before the model is called, errors are handled, a delivery that fails is tried
// again. It has no key for an intent, and the work runs inside the request. It knows
// nothing of the lab. The pages show this file as it is.
package naive

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	"semel/chat"
	"semel/llm"
	"semel/outbox"
)

// Source is this file.
//
//go:embed naive.go
var Source string

// Options say where things are.
type Options struct {
	File   string // everything that is stored, a line of JSON each
	Model  string // base address of the provider
	Sink   string // base address of the signing service
	Secret string // of that service, whsec_…
	Price  chat.Price
}

// A line is one thing that happened, as it is stored.
type line struct {
	Kind    string `json:"kind"` // question, answer, charge, sent, result, deleted
	Session string `json:"session"`
	Text    string `json:"text,omitempty"`
	Micros  int64  `json:"micros,omitempty"`
	Effect  string `json:"effect,omitempty"` // of sent and result
	OK      bool   `json:"ok,omitempty"`
}

type app struct {
	o     Options
	model llm.Client

	mu    sync.Mutex // guards the file and what was read from it
	file  *os.File
	lines []line
}

// Serve serves on l until ctx ends.
func Serve(ctx context.Context, l net.Listener, o Options) (err error) {
	a := &app{o: o, model: llm.NewOpenAI(llm.NewTransport(), llm.Endpoint{URL: o.Model})}
	if err := a.open(); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, a.file.Close()) }()
	mux := http.NewServeMux()
	mux.HandleFunc("POST /api/chat", a.postChat)
	mux.HandleFunc("GET /api/conversations/{id}", a.getConversation)
	mux.HandleFunc("DELETE /api/conversations/{id}", a.deleteConversation)
	mux.HandleFunc("POST /callbacks/{id}", a.postCallback)
	srv := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	context.AfterFunc(ctx, func() { srv.Close() })
	if err := srv.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// open reads what earlier processes stored. A last line that a crash cut short is
// dropped: the next one is written over it.
func (a *app) open() (err error) {
	if a.file, err = os.OpenFile(a.o.File, os.O_CREATE|os.O_RDWR, 0o600); err != nil {
		return err
	}
	good := int64(0)
	for r := bufio.NewReader(a.file); ; {
		b, err := r.ReadBytes('\n')
		if err == io.EOF {
			break
		}
		var l line
		if err = cmp.Or(err, json.Unmarshal(b, &l)); err != nil {
			return fmt.Errorf("read %s: %w", a.o.File, err)
		}
		a.lines, good = append(a.lines, l), good+int64(len(b))
	}
	_, err = a.file.Seek(good, io.SeekStart)
	return err
}

// store writes lines down durably.
func (a *app) store(lines ...line) error {
	var b bytes.Buffer
	for _, l := range lines {
		if err := json.NewEncoder(&b).Encode(l); err != nil {
			return err
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, err := a.file.Write(b.Bytes()); err != nil {
		return err
	}
	if err := a.file.Sync(); err != nil {
		return err
	}
	a.lines = append(a.lines, lines...)
	return nil
}

// of returns what is stored of one conversation.
func (a *app) of(session string) (list []line) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, l := range a.lines {
		if l.Session == session {
			list = append(list, l)
		}
	}
	return list
}

// postChat stores the question, asks the model, stores the answer with its charge, and
// does what the model asked for.
func (a *app) postChat(w http.ResponseWriter, r *http.Request) {
	var body struct{ SessionID, Content string }
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 1<<20)).Decode(&body); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if err := a.store(line{Kind: "question", Session: body.SessionID, Text: body.Content}); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	answer, err := a.model.Stream(r.Context(), llm.Call{Model: "demo", Turns: a.turns(body.SessionID), Tools: []llm.Tool{signContract}}, func(llm.Piece) {})
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	err = a.store(
		line{Kind: "answer", Session: body.SessionID, Text: answer.Content},
		line{Kind: "charge", Session: body.SessionID, Micros: a.o.Price.Cost(answer.Usage)},
	)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	for _, t := range answer.ToolCalls {
		if err := a.deliver(r.Context(), body.SessionID, a.o.Sink+"/sign", payload(t.Name, t.Arguments, "")); err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]string{"content": answer.Content}) // whoever has gone does not read it
}

var signContract = llm.Tool{
	Name: "sign_contract", Description: "Have a contract signed",
	Parameters: `{"type":"object","required":["title","party"],"properties":{"title":{"type":"string"},"party":{"type":"string"}},"additionalProperties":false}`,
}

// mostTurns of a conversation are sent to the model.
const mostTurns = 20

func (a *app) turns(session string) (turns []llm.Turn) {
	for _, l := range a.of(session) {
		switch l.Kind {
		case "question":
			turns = append(turns, llm.Turn{Role: "user", Content: l.Text})
		case "answer":
			turns = append(turns, llm.Turn{Role: "assistant", Content: l.Text})
		case "deleted":
			turns = nil
		}
	}
	return turns[max(0, len(turns)-mostTurns):]
}

// payload is a message to the signing service.
func payload(action, arguments, undoes string) []byte {
	data := map[string]any{"action": action}
	if undoes != "" {
		data["webhookId"] = undoes
	} else {
		data["arguments"] = json.RawMessage(arguments)
	}
	b, err := json.Marshal(map[string]any{"type": "action." + action, "data": data})
	if err != nil {
		return nil // arguments that are no JSON are refused by whoever gets nothing
	}
	return b
}

// deliveryTries is how often a delivery is tried.
const deliveryTries = 3

// deliver sends body to the signing service, and again when that fails. The service
// demands a signature over an id, so that each message gets one.
func (a *app) deliver(ctx context.Context, session, to string, body []byte) (err error) {
	for range deliveryTries {
		var id string
		if id, err = a.post(ctx, to, body); err == nil {
			return a.store(line{Kind: "sent", Session: session, Effect: id})
		}
	}
	return err
}

func (a *app) post(ctx context.Context, to string, body []byte) (id string, err error) {
	id = chat.NewID()
	h, err := outbox.Sign([]string{a.o.Secret}, id, time.Now(), body)
	if err != nil {
		return "", err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, to, bytes.NewReader(body))
	if err != nil {
		return "", err
	}
	req.Header = h
	req.Header.Set("Content-Type", "application/json")
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return "", fmt.Errorf("the signing service answered %s", res.Status)
	}
	return id, nil
}

// postCallback hears what became of an effect, and withdraws what the other side did not
// sign.
func (a *app) postCallback(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 1<<20))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if _, err := outbox.Verify([]string{a.o.Secret}, r.Header, body, time.Now()); err != nil {
		http.Error(w, err.Error(), http.StatusUnauthorized)
		return
	}
	var said struct{ Data struct{ OK bool } }
	if err := json.Unmarshal(body, &said); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	id := r.PathValue("id")
	session, known := a.sessionOf(id)
	if !known {
		http.Error(w, "no such effect", http.StatusNotFound)
		return
	}
	if err := a.store(line{Kind: "result", Session: session, Effect: id, OK: said.Data.OK}); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	if !said.Data.OK {
		if err := a.deliver(r.Context(), session, a.o.Sink+"/void", payload("void", "", id)); err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
	}
	w.WriteHeader(http.StatusNoContent)
}

func (a *app) sessionOf(effect string) (session string, known bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, l := range a.lines {
		if l.Kind == "sent" && l.Effect == effect {
			return l.Session, true
		}
	}
	return "", false
}

func (a *app) getConversation(w http.ResponseWriter, r *http.Request) {
	list := a.of(r.PathValue("id"))
	if list == nil {
		list = []line{}
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(list) // as above
}

func (a *app) deleteConversation(w http.ResponseWriter, r *http.Request) {
	if err := a.store(line{Kind: "deleted", Session: r.PathValue("id")}); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}
