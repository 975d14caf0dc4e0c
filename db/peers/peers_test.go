package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"semel/chat"
)

// servers returns the settings for those that the script started, with few and
// short rounds and a folder of the test's own. Without servers the test fails: a
// comparison that nobody runs rots.
func servers(t *testing.T) settings {
	t.Helper()
	s, err := fromEnvironment(os.Getenv)
	if err != nil {
		t.Fatal(err)
	}
	s.dir = t.TempDir()
	s.rounds, s.slice, s.callers, s.filled = 2, 50*time.Millisecond, []int{1, 16}, 100
	s.links = []link{{1, false}, {4, false}, {4, true}}
	return s
}

func openAll(t *testing.T) []*contender {
	t.Helper()
	list, _, err := servers(t).open(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := closeAll(list); err != nil {
			t.Error(err)
		}
	})
	return list
}

// They are compared only as long as they promise the same.
func TestEachContenderAnswersAKeyOnce(t *testing.T) {
	ctx := t.Context()
	for _, c := range openAll(t) {
		t.Run(c.name, func(t *testing.T) {
			q := ask(chat.NewID())
			if _, err := c.replay(ctx, q.key, q.fingerprint); !errors.Is(err, errNoAnswer) {
				t.Errorf("replay of a new key: %v, want %v", err, errNoAnswer)
			}
			complete, err := c.claim(ctx, q)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := c.claim(ctx, q); !errors.Is(err, errTaken) {
				t.Errorf("second claim: %v, want %v", err, errTaken)
			}
			if _, err := c.replay(ctx, q.key, q.fingerprint); !errors.Is(err, errNoAnswer) {
				t.Errorf("replay of a claimed key: %v, want %v", err, errNoAnswer)
			}
			if err := complete(ctx, theAnswer); err != nil {
				t.Fatal(err)
			}
			if err := complete(ctx, answer{content: "another"}); !errors.Is(err, errFenced) {
				t.Errorf("second completion: %v, want %v", err, errFenced)
			}
			if _, err := c.claim(ctx, q); !errors.Is(err, errTaken) {
				t.Errorf("claim after completion: %v, want %v", err, errTaken)
			}
			if text, err := c.replay(ctx, q.key, q.fingerprint); err != nil || text != theAnswer.content {
				t.Errorf("replay: %.20q, %v, want the stored answer", text, err)
			}
			other := chat.Fields{Kind: chat.KindMessage, Content: "something else"}.Fingerprint()
			if _, err := c.replay(ctx, q.key, other); !errors.Is(err, errNoAnswer) {
				t.Errorf("replay with another fingerprint: %v, want %v", err, errNoAnswer)
			}
		})
	}
}

// What each keeps of one completed key, beside the answer: none may do less
// than the others.
func TestEachPeerKeepsLifecycleMessageAndCharge(t *testing.T) {
	ctx := t.Context()
	list := openAll(t)
	q := ask(chat.NewID())
	for _, c := range list {
		if err := live(ctx, c, q); err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
	}
	for _, i := range []int{redisAlways, redisEverysec} {
		r := list[i].store.(redisStore)
		for key, want := range map[string]int64{"lifecycle:" + redisName(q.key): 2, "messages:" + q.key.SessionID: 1} {
			if got, err := r.c.Do(ctx, r.c.B().Llen().Key(key).Build()).AsInt64(); err != nil || got != want {
				t.Errorf("%s: %s has %d rows, %v, want %d", list[i].name, key, got, err, want)
			}
		}
		charges, err := r.c.Do(ctx, r.c.B().Lrange().Key("ledger").Start(-1).Stop(-1).Build()).AsStrSlice()
		if err != nil || len(charges) != 1 || !strings.Contains(charges[0], q.key.RequestID) {
			t.Errorf("%s: the last charge is %q, %v", list[i].name, charges, err)
		}
	}
	p := list[postgres].store.(postgresStore)
	for query, want := range map[string]int{
		"SELECT count(*) FROM transitions": 2, "SELECT count(*) FROM messages": 1, "SELECT count(*) FROM processed": 1,
		"SELECT count(*) FROM ledger WHERE micros > 0": 1, "SELECT count(*) FROM requests WHERE state = 'committed'": 1,
	} {
		var got int
		if err := p.pool.QueryRow(ctx, query).Scan(&got); err != nil || got != want {
			t.Errorf("%s: %d, %v, want %d", query, got, err, want)
		}
	}
}

func TestARunGivesEveryFigure(t *testing.T) {
	var out bytes.Buffer
	if err := servers(t).run(t.Context(), &out); err != nil {
		t.Fatal(err)
	}
	text := out.String()
	for _, head := range []string{"**claim + complete**", "**replay**", "**Cost of a claim + complete**", "**Cost of a replay**"} {
		if !strings.Contains(text, head) {
			t.Errorf("no table %s", head)
		}
	}
	rows := 0
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, "| 1 |") && !strings.HasPrefix(line, "| 16 |") {
			continue
		}
		rows++
		for _, cell := range strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|") {
			if cell = strings.TrimSpace(cell); cell == "" || cell == "0" || strings.Contains(cell, "NaN") || strings.Contains(cell, "Inf") {
				t.Errorf("cell %q in %s", cell, line)
			}
		}
	}
	if rows != 8 {
		t.Errorf("%d rows, want 8", rows)
	}
}

func TestAServerThatSyncsLessIsRefused(t *testing.T) {
	s := servers(t)
	_, _, err := openRedis(t.Context(), s.redisEverysec, "always", link{connections: 1})
	if err == nil || !strings.Contains(err.Error(), "everysec") {
		t.Errorf("openRedis: %v, want that it syncs every second", err)
	}
	_, err = createPostgres(t.Context(), s.postgres+" options='-c synchronous_commit=off'")
	if err == nil || !strings.Contains(err.Error(), "synchronous_commit") {
		t.Errorf("createPostgres: %v, want that it does not wait for its commits", err)
	}
}

func TestWithoutServersTheScriptIsNamed(t *testing.T) {
	_, err := fromEnvironment(func(string) string { return "" })
	if err == nil || !strings.Contains(err.Error(), "db/peers/run") {
		t.Errorf("fromEnvironment: %v, want the way to servers", err)
	}
	if _, err := os.Stat(filepath.Join("..", "..", "db", "peers", "run")); err != nil {
		t.Error(err)
	}
}

func TestProcessTimesAreReadAfterTheName(t *testing.T) {
	got, err := parseStat("7 (a) b (c)) S 3 7 7 0 -1 4194560 1 2 3 4 100 20 5 6 20 0 1 0 99")
	if want := (procStat{parent: 3, used: 120, usedByGone: 11}); err != nil || got != want {
		t.Errorf("parseStat: %+v, %v, want %+v", got, err, want)
	}
	for _, line := range []string{"", "7 (a) S 3", "7 (a) S x 7 7 0 -1 4194560 1 2 3 4 100 20 5 6"} {
		if _, err := parseStat(line); err == nil {
			t.Errorf("parseStat(%q) is content", line)
		}
	}
}

func TestNumbersArePrintedWithThreeFigures(t *testing.T) {
	for n, want := range map[float64]string{0: "0", 16: "16", 999.4: "999", 1000: "1,000", 1234: "1,230", 23_349: "23,300", 1_234_567: "1,230,000"} {
		if got := thousands(n); got != want {
			t.Errorf("thousands(%v) = %s, want %s", n, got, want)
		}
	}
}
