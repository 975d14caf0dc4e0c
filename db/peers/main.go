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

// Settings say what is measured and where the servers are.
type settings struct {
	dir                        string // on the disk that the servers write to
	redisAlways, redisEverysec string // sockets
	postgres                   string // connection string
	rounds                     int
	slice                      time.Duration // of each turn
	callers                    []int
	pools                      []int // connections to PostgreSQL that are tried
	filled                     int   // completed keys that are asked for again
}

func main() {
	s, err := fromEnvironment(os.Getenv)
	if err == nil {
		flag.IntVar(&s.rounds, "rounds", 7, "turns of each contender")
		flag.DurationVar(&s.slice, "slice", time.Second, "length of a turn")
		flag.Func("callers", "numbers of callers at once (default 16,128,1000)", numbers(&s.callers))
		flag.Func("pools", "connections to PostgreSQL to try (default 8,16,32,64,128)", numbers(&s.pools))
		flag.IntVar(&s.filled, "filled", 10_000, "completed keys that replays ask for")
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
		postgres: getenv("PEERS_POSTGRES"), callers: []int{16, 128, 1000}, pools: []int{8, 16, 32, 64, 128},
	}
	if s.dir == "" || s.redisAlways == "" || s.redisEverysec == "" || s.postgres == "" {
		return s, errors.New("there are no servers to measure: bash db/peers/run starts Redis and PostgreSQL and then this, bash db/peers/run test its tests")
	}
	return s, nil
}

func numbers(list *[]int) func(string) error {
	return func(arg string) error {
		*list = nil
		for f := range strings.SplitSeq(arg, ",") {
			n, err := strconv.Atoi(f)
			if err != nil || n < 1 {
				return fmt.Errorf("%q is no number of them", f)
			}
			*list = append(*list, n)
		}
		return nil
	}
}

// A contender is a store with its name and the keys that it has completed.
type contender struct {
	name string
	store
	done []question
}

// In this order: Semel is what the others are compared with.
const (
	semel = iota
	redisAlways
	redisEverysec
	postgres
	contenders
)

// open opens all contenders, PostgreSQL with that many connections, and returns
// the versions of the servers. The caller closes them.
func (s settings) open(ctx context.Context, connections int) (_ []*contender, versions string, err error) {
	list := make([]*contender, contenders)
	defer func() {
		if err != nil {
			_ = closeAll(list)
		}
	}()
	add := func(i int, name string, st store, oerr error) {
		if oerr == nil {
			list[i] = &contender{name: name, store: st}
		} else if err == nil {
			err = fmt.Errorf("%s: %w", name, oerr)
		}
	}
	st, oerr := openSemel(s.dir)
	add(semel, "Semel", st, oerr)
	st, redisVersion, oerr := openRedis(ctx, s.redisAlways, "always")
	add(redisAlways, "Redis `always`", st, oerr)
	st, _, oerr = openRedis(ctx, s.redisEverysec, "everysec")
	add(redisEverysec, "Redis `everysec`", st, oerr)
	postgresVersion, oerr := createPostgres(ctx, s.postgres)
	if st = nil; oerr == nil {
		st, oerr = openPostgres(ctx, s.postgres, connections)
	}
	add(postgres, "PostgreSQL", st, oerr)
	return list, fmt.Sprintf("Redis %s, PostgreSQL %s", redisVersion, postgresVersion), err
}

func closeAll(list []*contender) error {
	var errs []error
	for _, c := range list {
		if c != nil {
			errs = append(errs, c.close())
		}
	}
	return errors.Join(errs...)
}

// A comparison is what all contenders did with one kind of work and one number of
// callers: medians over the rounds. ratios are Semel's to each.
type comparison struct {
	callers, pool int
	figures       [contenders]figure
	ratios        [contenders]float64
}

// run measures everything and writes the tables as Markdown.
func (s settings) run(ctx context.Context, w io.Writer) (err error) {
	defer debug.SetGCPercent(debug.SetGCPercent(400)) // as semel serve sets it
	list, versions, err := s.open(ctx, s.pools[0])
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
			pool, err := s.bestPool(ctx, list[postgres], callers, k.do)
			if err != nil {
				return fmt.Errorf("PostgreSQL's pool: %w", err)
			}
			row, err := s.compare(ctx, list, callers, k.do)
			if err != nil {
				return fmt.Errorf("%s, %d callers: %w", k.name, callers, err)
			}
			row.pool = pool
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

// bestPool connects c, which is PostgreSQL, anew with the number of connections
// that serves that many callers best.
func (s settings) bestPool(ctx context.Context, c *contender, callers int, do func(*contender, int) piece) (int, error) {
	reopen := func(n int) error {
		if err := c.close(); err != nil {
			return err
		}
		st, err := openPostgres(ctx, s.postgres, n)
		if err == nil {
			c.store = st
		}
		return err
	}
	best, fastest := 0, 0.0
	for _, n := range s.pools {
		if err := reopen(n); err != nil {
			return 0, err
		}
		var rates []float64
		for range 3 { // the first prepares the statements on each connection
			f, err := turn(ctx, c.store, callers, do(c, callers), s.slice)
			if err != nil {
				return 0, err
			}
			rates = append(rates, f.perSecond)
		}
		if rate := median(rates); rate > fastest {
			best, fastest = n, rate
		}
		if n >= callers {
			break // more would be idle
		}
	}
	if err := reopen(best); err != nil {
		return 0, err
	}
	_, err := turn(ctx, c.store, callers, do(c, callers), s.slice)
	return best, err
}

// compare lets all take turns, each round another first.
func (s settings) compare(ctx context.Context, list []*contender, callers int, do func(*contender, int) piece) (comparison, error) {
	rounds := make([][contenders]figure, s.rounds)
	for r := range rounds {
		for i := range list {
			i = (i + r) % len(list)
			var err error
			if rounds[r][i], err = turn(ctx, list[i].store, callers, do(list[i], callers), s.slice); err != nil {
				return comparison{}, fmt.Errorf("%s: %w", list[i].name, err)
			}
		}
	}
	c := comparison{callers: callers}
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
	fmt.Fprintf(w, "\n**%s**, each per second; × is Semel's rate by theirs:\n\n", name)
	fmt.Fprint(w, "| callers | Semel | Redis `always` | × | Redis `everysec` | × | PostgreSQL (connections) | × |\n|---|---|---|---|---|---|---|---|\n")
	for _, r := range rows {
		fmt.Fprintf(w, "| %s | %s | %s | **%.2f** | %s | %.2f | %s (%d) | **%.2f** |\n", thousands(float64(r.callers)),
			thousands(r.figures[semel].perSecond), thousands(r.figures[redisAlways].perSecond), r.ratios[redisAlways],
			thousands(r.figures[redisEverysec].perSecond), r.ratios[redisEverysec],
			thousands(r.figures[postgres].perSecond), r.pool, r.ratios[postgres])
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
	return strconv.FormatFloat(float64(d.Microseconds())/1000, 'g', 2, 64)
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
