package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"semel/chat"
)

// A store is a contender: it answers each key once, durably, in two steps.
type store interface {
	// claim makes the caller the one worker of q and returns how to complete it;
	// both are durable when they return. Errors: errTaken, and of complete errFenced.
	claim(ctx context.Context, q question) (complete func(context.Context, answer) error, err error)
	// replay returns the stored answer to a completed key, its fingerprint compared.
	replay(ctx context.Context, k chat.Key, fp chat.Fingerprint) (string, error)
	// server is the process that does the work, 0 when it is this one.
	server() int
	close() error
}

// A link is how a client reaches its server: over that many connections, each used
// by one caller at a time or shared by all, who then pipeline.
type link struct {
	connections int
	shared      bool
}

func (l link) String() string {
	if l.shared {
		return fmt.Sprintf("%d shared", l.connections)
	}
	return fmt.Sprint(l.connections)
}

var (
	errTaken    = errors.New("the key is taken")
	errFenced   = errors.New("the claim is not held any more")
	errNoAnswer = errors.New("no answer is stored under this key and fingerprint")
)

// A question is a new intent.
type question struct {
	key         chat.Key
	fingerprint chat.Fingerprint
	content     string
}

// An answer is what a worker brings back.
type answer struct {
	content string
	usage   chat.Usage
}

// What is the same for all: user, model, price, worker, lease.
const (
	user  = 1
	model = "demo"
	owner = "life"
	actor = "worker:" + owner
	lease = time.Minute
)

var price = chat.Price{Input: 150_000, Cached: 75_000, Output: 600_000}

func ask(session string) question {
	const content = "What is the best way to see that all is well?"
	return question{
		key:         chat.Key{UserID: user, SessionID: session, RequestID: chat.NewID()},
		fingerprint: chat.Fields{Kind: chat.KindMessage, Content: content}.Fingerprint(),
		content:     content,
	}
}

var theAnswer = answer{content: prose(4096), usage: chat.Usage{InputTokens: 20, OutputTokens: 1024}}

// prose is text that is no easier to compress than what a model writes: PostgreSQL
// compresses what it stores, and one sentence over and over would be a gift.
func prose(n int) string {
	rnd := rand.New(rand.NewPCG(1, 2))
	words := make([]string, 1000)
	for i := range words {
		w := make([]byte, 2+rnd.IntN(8))
		for j := range w {
			w[j] = "eeetttaaooiinnsshhrrddlucmfwygpbvk"[rnd.IntN(34)]
		}
		words[i] = string(w)
	}
	var b strings.Builder
	for b.Len() < n {
		b.WriteString(words[min(rnd.IntN(1000), rnd.IntN(1000))])
		b.WriteByte(' ')
	}
	return b.String()[:n]
}

// live is one whole piece of the work that is measured.
func live(ctx context.Context, s store, q question) error {
	complete, err := s.claim(ctx, q)
	if err != nil {
		return err
	}
	return complete(ctx, theAnswer)
}
