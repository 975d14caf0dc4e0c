package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"testing"

	"modernc.org/sqlite"
)

// The test binary is the server, too: the same code, made worse or killed from within by
// SQLite's own hooks, for which the program itself has no switch.
const (
	asServer     = "TEST_AS_SERVER"
	serverNormal = "synchronous=NORMAL"
	serverDies   = "dies at " // a point
)

// beServer runs the command line as main does when the environment asks for it.
func beServer() {
	how := os.Getenv(asServer)
	if how == "" {
		return
	}
	dies := strings.HasPrefix(how, serverDies)
	if !dies && how != serverNormal {
		panic(fmt.Sprintf("%s=%s: what is that?", asServer, how))
	}
	var death *point
	if dies {
		death = readPoint(strings.TrimPrefix(how, serverDies))
	}
	sqlite.RegisterConnectionHook(func(c sqlite.ExecQuerierContext, dsn string) error {
		if death != nil {
			death.watch(c.(sqlite.HookRegisterer))
			return nil
		}
		_, err := c.ExecContext(context.Background(), `PRAGMA synchronous=NORMAL`, nil)
		return err
	})
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	os.Exit(run(ctx, os.Args[1:], os.Environ(), os.Stdout, os.Stderr))
}

// likeServer returns the command of a server that is this test binary.
func likeServer(t testing.TB, how, db string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self, serveArgs(db)...)
	cmd.Env = []string{asServer + "=" + how}
	return cmd
}

// A point is where a server dies: a row of a table is written, how often, and how far its
// transaction is.
type point struct {
	table  string
	update bool // else insert
	when   string
	hit    int

	mu      sync.Mutex // the rest is under it
	seen    int
	touched bool // by the transaction that is under way
}

const (
	whenRow       = "row"       // the row is about to be written: nothing of it may be there
	whenCommit    = "commit"    // the transaction is whole, and its commit begins
	whenCommitted = "committed" // it is durable, and nobody was told
)

func (p *point) String() string { return fmt.Sprint(p.table, " ", p.update, " ", p.when, " ", p.hit) }

func readPoint(s string) *point {
	p := &point{}
	if _, err := fmt.Sscan(s, &p.table, &p.update, &p.when, &p.hit); err != nil {
		panic(err)
	}
	return p
}

func (p *point) watch(c sqlite.HookRegisterer) {
	c.RegisterPreUpdateHook(func(d sqlite.SQLitePreUpdateData) {
		const insert, update = 18, 23 // SQLITE_INSERT, SQLITE_UPDATE
		if d.TableName != p.table || d.Op != map[bool]int32{false: insert, true: update}[p.update] {
			return
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		p.seen++
		if p.seen < p.hit {
			return
		}
		if p.when == whenRow {
			die()
		}
		p.touched = true
	})
	c.RegisterRollbackHook(func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.touched = false
	})
	c.RegisterCommitHook(func() int32 {
		p.mu.Lock()
		defer p.mu.Unlock()
		switch {
		case !p.touched:
		case p.when == whenCommit:
			die()
		default:
			p.touched = false
			p.dieWhenDurable()
		}
		return 0
	})
}

// die is kill -9 from within.
func die() {
	self, err := os.FindProcess(os.Getpid())
	if err = errors.Join(err, self.Kill()); err != nil {
		panic(err)
	}
	select {}
}

// dieWhenDurable dies as soon as the index of the log counts the commit that now begins:
// SQLite writes that after the sync and before it returns.
func (p *point) dieWhenDurable() {
	path := ""
	for i, a := range os.Args {
		if a == "--db" {
			path = os.Args[i+1] + "-shm"
		}
	}
	f, err := os.Open(path)
	if err != nil {
		panic(err)
	}
	changes := func() uint32 {
		var b [4]byte
		if _, err := f.ReadAt(b[:], 8); err != nil && err != io.EOF {
			panic(err)
		}
		return binary.NativeEndian.Uint32(b[:])
	}
	before := changes()
	go func() {
		for changes() == before {
		}
		die()
	}()
}
