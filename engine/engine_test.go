package engine_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"semel/chat"
	"semel/db"
	"semel/db/dbtest"
	"semel/engine"
	"semel/llm"
)

// start returns a running engine over d with the built-in model.
func start(t testing.TB, d *db.DB, change func(*engine.Options)) (*engine.Engine, *llm.Demo) {
	t.Helper()
	demo := llm.NewDemo()
	o := engine.Options{DB: d, Models: []engine.Model{{Name: "demo", Client: demo, Price: dbtest.DemoPrice, Rerun: true, Concurrency: 64}}}
	if change != nil {
		change(&o)
	}
	e, err := engine.New(o)
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Start(context.Background()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		e.Drain(ctx)
	})
	return e, demo
}

func ask(session, id, content string) engine.Ask {
	return engine.Ask{Key: chat.Key{UserID: db.LocalUser, SessionID: session, RequestID: id}, Kind: chat.KindMessage, Content: content, Source: chat.SourceAPI}
}

// A22: so is one of a thousand that come at once.
func TestAThousandDuplicatesAtOnceCallTheModelOnce(t *testing.T) {
	t.Parallel()
	d := dbtest.Open(t)
	e, demo := start(t, d, nil)
	session, id := chat.NewID(), chat.NewID()
	ctx := context.Background()
	var wg sync.WaitGroup
	var mu sync.Mutex
	decisions := map[chat.Decision]int{}
	for range 1000 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			res, err := e.Submit(ctx, ask(session, id, "[[tokens 20]][[rate 0]] hello"))
			if err != nil {
				t.Error(err)
				return
			}
			if err := e.Wait(ctx, res.Request.ID); err != nil {
				t.Error(err)
			}
			mu.Lock()
			decisions[res.Decision]++
			mu.Unlock()
		}()
	}
	wg.Wait()
	dbtest.Check(t, d)
	if demo.Calls() != 1 || decisions[chat.DecisionFirst] != 1 {
		t.Fatalf("%d model calls, decisions %v", demo.Calls(), decisions)
	}
}
