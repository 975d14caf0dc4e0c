// Command peers measures what Semel's write path does beside Redis and PostgreSQL
// 15 on the same machine, in the same run: README.md says what and how. It needs
// running servers; the script run beside it starts some of its own.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"
)

// settings say what is measured and where the servers are.
type settings struct {
	dir                        string // on the disk that the servers write to
	redisAlways, redisEverysec string // sockets
	postgres                   string // connection string
	rounds                     int
	slice                      time.Duration // of each turn
	callers                    []int
	links                      []link // to the servers that are tried; only Redis shares them
	filled                     int    // completed keys that are asked for again
}

func main() {
	s, err := fromEnvironment(os.Getenv)
	if err == nil {
		flag.IntVar(&s.rounds, "rounds", s.rounds, "turns of each contender")
		flag.DurationVar(&s.slice, "slice", s.slice, "length of a turn")
		flag.IntVar(&s.filled, "filled", s.filled, "completed keys that replays ask for")
		flag.Func("callers", "numbers of callers at once (default 16,128,1000)", func(arg string) (err error) {
			s.callers, err = numbers(arg)
			return err
		})
		flag.Parse()
		err = s.run(context.Background(), os.Stdout)
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "peers: %v\n", err)
		os.Exit(1)
	}
}

// fromEnvironment returns the defaults, with the servers that the script started.
func fromEnvironment(getenv func(string) string) (settings, error) {
	s := settings{
		dir: getenv("PEERS_DIR"), redisAlways: getenv("PEERS_REDIS_ALWAYS"), redisEverysec: getenv("PEERS_REDIS_EVERYSEC"),
		postgres: getenv("PEERS_POSTGRES"), rounds: 7, slice: time.Second, callers: []int{16, 128, 1000}, filled: 10_000,
		links: []link{{8, false}, {16, false}, {32, false}, {64, false}, {128, false}, {1000, false}, {4, true}, {16, true}, {64, true}},
	}
	if s.dir == "" || s.redisAlways == "" || s.redisEverysec == "" || s.postgres == "" {
		return s, errors.New("there are no servers to measure: bash db/peers/run starts Redis and PostgreSQL and then this, bash db/peers/run test its tests")
	}
	return s, nil
}

func numbers(arg string) (list []int, err error) {
	for f := range strings.SplitSeq(arg, ",") {
		n, err := strconv.Atoi(f)
		if err != nil || n < 1 {
			return nil, fmt.Errorf("%q is no number of callers", f)
		}
		list = append(list, n)
	}
	return list, nil
}

// A contender is a store with its name and the keys that it has completed.
type contender struct {
	name string
	store
	// connect opens the store anew over another link; nil where there is none.
	connect func(context.Context, link) (store, error)
	most    int  // connections
	shares  bool // may share them
	done    []question
}

// In this order: Semel is what the others are compared with.
const (
	semel = iota
	redisAlways
	redisEverysec
	postgres
	contenders
)

// open opens all contenders and returns the versions of the servers. The caller
// closes them.
func (s settings) open(ctx context.Context) (_ []*contender, versions string, err error) {
	redisVersion := ""
	redis := func(socket, appendfsync string) func(context.Context, link) (store, error) {
		return func(ctx context.Context, l link) (st store, err error) {
			st, redisVersion, err = openRedis(ctx, socket, appendfsync, l)
			return st, err
		}
	}
	list := []*contender{
		semel:         {name: "Semel"},
		redisAlways:   {name: "Redis `always`", connect: redis(s.redisAlways, "always"), most: 1000, shares: true},
		redisEverysec: {name: "Redis `everysec`", connect: redis(s.redisEverysec, "everysec"), most: 1000, shares: true},
		postgres: {name: "PostgreSQL", most: 128, connect: func(ctx context.Context, l link) (store, error) {
			return openPostgres(ctx, s.postgres, l)
		}},
	}
	defer func() {
		if err != nil {
			_ = closeAll(list)
		}
	}()
	postgresVersion, err := createPostgres(ctx, s.postgres)
	if err != nil {
		return nil, "", err
	}
	for _, c := range list {
		if c.connect == nil {
			c.store, err = openSemel(s.dir)
		} else {
			c.store, err = c.connect(ctx, link{connections: 16})
		}
		if err != nil {
			return nil, "", fmt.Errorf("%s: %w", c.name, err)
		}
	}
	return list, fmt.Sprintf("Redis %s, PostgreSQL %s", redisVersion, postgresVersion), nil
}

func closeAll(list []*contender) error {
	var errs []error
	for _, c := range list {
		if c.store != nil {
			errs = append(errs, c.close())
		}
	}
	return errors.Join(errs...)
}

// A comparison is what all contenders did with one kind of work and one number of
// callers: medians over the rounds. ratios are Semel's to each.
type comparison struct {
	callers int
	links   [contenders]link
	figures [contenders]figure
	ratios  [contenders]float64
}

// run measures everything and writes the tables as Markdown.
func (s settings) run(ctx context.Context, w io.Writer) (err error) {
	defer debug.SetGCPercent(debug.SetGCPercent(400)) // as semel serve sets it
	list, versions, err := s.open(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeAll(list)) }()
	for _, c := range list {
		if c.done, err = fill(ctx, c.store, s.filled); err != nil {
			return fmt.Errorf("fill %s: %w", c.name, err)
		}
	}
	kinds := []struct {
		name string
		do   func(c *contender, callers int) piece
		rows []comparison
	}{
		{name: "claim + complete", do: func(_ *contender, callers int) piece { return lives(callers) }},
		{name: "replay", do: func(c *contender, _ int) piece { return replays(c.done) }},
	}
	for i := range kinds {
		k := &kinds[i]
		for _, callers := range s.callers {
			row, err := s.compare(ctx, list, callers, k.do)
			if err != nil {
				return fmt.Errorf("%s, %d callers: %w", k.name, callers, err)
			}
			k.rows = append(k.rows, row)
			fmt.Fprintf(os.Stderr, "%s, %d callers: done\n", k.name, callers)
		}
	}
	fmt.Fprintf(w, "%d rounds of %v each, %d cores, %s, %s\n", s.rounds, s.slice, runtime.NumCPU(), runtime.Version(), versions)
	for _, k := range kinds {
		writeRates(w, k.name, k.rows)
	}
	for _, k := range kinds {
		writeCosts(w, k.name, k.rows)
	}
	return nil
}

// bestLink connects c anew, over the link that serves that many callers best.
func (s settings) bestLink(ctx context.Context, c *contender, callers int, do func(*contender, int) piece) (best link, err error) {
	if c.connect == nil {
		return best, nil
	}
	fastest := 0.0
	for _, l := range s.links {
		idle := l.connections > callers && best.connections > 0
		if idle || l.connections > c.most || (l.shared && !c.shares) {
			continue
		}
		if err := c.reconnect(ctx, l); err != nil {
			return best, err
		}
		var rates []float64
		for range 3 { // the first prepares the statements on each connection
			f, err := turn(ctx, c.store, callers, do(c, callers), s.slice/2)
			if err != nil {
				return best, err
			}
			rates = append(rates, f.perSecond)
		}
		if rate := median(rates); rate > fastest {
			best, fastest = l, rate
		}
	}
	if err := c.reconnect(ctx, best); err != nil {
		return best, err
	}
	_, err = turn(ctx, c.store, callers, do(c, callers), s.slice)
	return best, err
}

func (c *contender) reconnect(ctx context.Context, l link) error {
	err := c.close()
	if c.store = nil; err == nil {
		c.store, err = c.connect(ctx, l)
	}
	return err
}

// compare lets all take turns, each round another first.
func (s settings) compare(ctx context.Context, list []*contender, callers int, do func(*contender, int) piece) (comparison, error) {
	c := comparison{callers: callers}
	for i := range list {
		var err error
		if c.links[i], err = s.bestLink(ctx, list[i], callers, do); err != nil {
			return c, fmt.Errorf("connect %s: %w", list[i].name, err)
		}
	}
	rounds := make([][contenders]figure, s.rounds)
	for r := range rounds {
		for i := range list {
			i = (i + r) % len(list)
			var err error
			if rounds[r][i], err = turn(ctx, list[i].store, callers, do(list[i], callers), s.slice); err != nil {
				return c, fmt.Errorf("%s: %w", list[i].name, err)
			}
		}
	}
	for i := range list {
		c.figures[i] = figure{
			perSecond: medianOf(rounds, func(f [contenders]figure) float64 { return f[i].perSecond }),
			clientCPU: medianOf(rounds, func(f [contenders]figure) float64 { return f[i].clientCPU }),
			serverCPU: medianOf(rounds, func(f [contenders]figure) float64 { return f[i].serverCPU }),
			p50:       medianOf(rounds, func(f [contenders]figure) time.Duration { return f[i].p50 }),
			p99:       medianOf(rounds, func(f [contenders]figure) time.Duration { return f[i].p99 }),
		}
		c.ratios[i] = medianOf(rounds, func(f [contenders]figure) float64 { return f[semel].perSecond / f[i].perSecond })
	}
	return c, nil
}

func medianOf[R any, T float64 | time.Duration](rounds []R, of func(R) T) T {
	list := make([]T, len(rounds))
	for i, r := range rounds {
		list[i] = of(r)
	}
	return median(list)
}

func writeRates(w io.Writer, name string, rows []comparison) {
	fmt.Fprintf(w, "\n**%s**, each per second (over so many connections); × is Semel's rate by theirs:\n\n", name)
	fmt.Fprint(w, "| callers | Semel | Redis `always` | × | Redis `everysec` | × | PostgreSQL | × |\n|---|---|---|---|---|---|---|---|\n")
	for _, r := range rows {
		fmt.Fprintf(w, "| %s | %s |", thousands(float64(r.callers)), thousands(r.figures[semel].perSecond))
		for i := redisAlways; i < contenders; i++ {
			fmt.Fprintf(w, " %s (%v) | **%.2f** |", thousands(r.figures[i].perSecond), r.links[i], r.ratios[i])
		}
		fmt.Fprintln(w)
	}
}

func writeCosts(w io.Writer, name string, rows []comparison) {
	fmt.Fprintf(w, "\n**Cost of a %s**: µs of CPU, in the callers' process + in the server; p50 / p99 in ms:\n\n", name)
	fmt.Fprint(w, "| callers | Semel | Redis `always` | Redis `everysec` | PostgreSQL |\n|---|---|---|---|---|\n")
	for _, r := range rows {
		fmt.Fprintf(w, "| %s |", thousands(float64(r.callers)))
		for i, f := range r.figures {
			cpu := fmt.Sprintf("%.0f", f.clientCPU)
			if i != semel {
				cpu += fmt.Sprintf(" + %.0f", f.serverCPU)
			}
			fmt.Fprintf(w, " %s; %s / %s |", cpu, millis(f.p50), millis(f.p99))
		}
		fmt.Fprintln(w)
	}
}

func millis(d time.Duration) string {
	ms, digits := float64(d.Microseconds())/1000, 0
	if ms < 10 {
		digits = 2
	}
	return strconv.FormatFloat(ms, 'f', digits, 64)
}

// thousands is n as this prints it: 23,300, and no more than three figures that
// mean anything.
func thousands(n float64) string {
	i := int64(n + 0.5)
	for unit := int64(10); i/unit >= 100; unit *= 10 {
		if i < unit*1000 {
			i = (i + unit/2) / unit * unit
			break
		}
	}
	s := strconv.FormatInt(i, 10)
	parts := []string{}
	for len(s) > 3 {
		parts, s = append(parts, s[len(s)-3:]), s[:len(s)-3]
	}
	parts = append(parts, s)
	slices.Reverse(parts)
	return strings.Join(parts, ",")
}
