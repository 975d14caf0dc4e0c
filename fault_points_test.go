//go:build unix

package main

import (
	"flag"
	"fmt"
	"testing"
	"time"
)

var pointsFlag = flag.Bool("points", false, "die at each point twice as often: at the first and at the second time")

// phases are the rows that each phase of a request, of its effects and of its callbacks
// writes. Every one is met by customers who ask for actions.
var phases = []struct {
	name, table string
	update      bool
}{
	{"accept", "requests", false},
	{"question", "messages", false},
	{"claim", "attempts", false},
	{"partial text", "partials", false},
	{"answer", "snapshots", false},
	{"charge", "ledger", false},
	{"mark", "processed", false},
	{"decide", "decisions", false},
	{"outbox", "outbox", false},
	{"approve", "verdicts", false},
	{"deliver", "deliveries", false},
	{"delivered", "deliveries", true},
	{"settle", "outbox", true},
	{"callback", "callbacks", false},
	{"state", "requests", true},
}

// The program dies at every named point: as a row of a phase is written, as its
// transaction commits, and when that is durable and nobody was told. What was asked for
// happens once. -points for twice as many.
func TestADeathAtEveryPointExecutesEachEffectOnce(t *testing.T) {
	rng := randomly(t)
	m := newMarket(t, rng)
	m.customers.slow = true
	l := serveNow(t, m.file)
	m.open(l, 4, rng)
	l.kill()
	m.end()
	defer m.giveUp()
	began := time.Now()
	deaths := 0
	for n, phase := range phases {
		for i, when := range []string{whenRow, whenCommit, whenCommitted} {
			for hit := 1; hit <= 2; hit++ {
				if !*pointsFlag && hit != 1+(n+i)%2 {
					continue
				}
				p := &point{table: phase.table, update: phase.update, when: when, hit: hit}
				l = start(t, likeServer(t, fmt.Sprint(serverDies, p), m.file))
				if l.ready(t) { // a recovery may come upon the point
					m.begin(l)
				}
				if code := l.wait(t); code != -1 {
					t.Fatalf("%s, %s: the server ended by itself with %d:\n%s", phase.name, p, code, l.log)
				}
				deaths++
				m.end()
				verifyFile(t, m.file)
				if t.Failed() {
					t.Fatalf("after a death at %s, %s", phase.name, p)
				}
			}
		}
	}
	l = serveNow(t, m.file)
	m.begin(l)
	m.close(l)
	t.Logf("%d deaths in %.0f s", deaths, time.Since(began).Seconds())
}
