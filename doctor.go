package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"semel/config"
	"semel/db"
	"semel/disk"
	"semel/upkeep"
)

// A finding is one line of doctor.
type finding struct {
	Check  string `json:"check"`
	Result string `json:"result"` // ok, warn or fail
	Says   string `json:"says"`
	Do     string `json:"do,omitempty"` // what to do about it
}

type findings []finding

func (f *findings) ok(check, format string, args ...any) {
	*f = append(*f, finding{check, "ok", fmt.Sprintf(format, args...), ""})
}

func (f *findings) warn(check, do, format string, args ...any) {
	*f = append(*f, finding{check, "warn", fmt.Sprintf(format, args...), do})
}

func (f *findings) fail(check, do, format string, args ...any) {
	*f = append(*f, finding{check, "fail", fmt.Sprintf(format, args...), do})
}

func doctorCommand(environ []string) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Look for what will hurt: files, disk, clock, backups, and a proxy in front",
		Long: "Look for what will hurt: files, disk, clock, backups, and a proxy in front.\n" +
			"Nothing is changed, and the server may run meanwhile. Exit code 1: something failed.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := loadConfig(cmd, environ)
			if err != nil {
				return err
			}
			if _, err := os.Stat(cfg.DB); err != nil {
				return &failure{exitUsage, err}
			}
			f := examineFile(cmd.Context(), cfg)
			if url, _ := cmd.Flags().GetString("url"); url != "" {
				examineProxy(cmd.Context(), &f, url)
			}
			asJSON, _ := cmd.Flags().GetBool("json")
			if err := f.print(cmd.OutOrStdout(), asJSON); err != nil {
				return asFailure(err)
			}
			for _, one := range f {
				if one.Result == "fail" {
					return &failure{exitFailed, errors.New("something failed")}
				}
			}
			return nil
		},
	}
	configFlags(cmd)
	cmd.Flags().String("url", "", "also look at a proxy: the `ADDRESS` by which browsers reach the server")
	cmd.Flags().Bool("json", false, "print JSON")
	return cmd
}

func (f findings) print(w io.Writer, asJSON bool) error {
	if asJSON {
		e := json.NewEncoder(w)
		e.SetIndent("", "  ")
		return e.Encode(map[string]any{"findings": f})
	}
	for _, one := range f {
		if _, err := fmt.Fprintf(w, "%-4s  %-11s  %s\n", one.Result, one.Check, one.Says); err != nil {
			return err
		}
		if one.Do != "" {
			if _, err := fmt.Fprintf(w, "      %-11s  → %s\n", "", one.Do); err != nil {
				return err
			}
		}
	}
	return nil
}

// examineFile looks at the database and what lies around it.
func examineFile(ctx context.Context, cfg *config.Config) (f findings) {
	path, err := filepath.EvalSymlinks(cfg.DB)
	if err != nil {
		f.fail("file", "name the database with --db", "%v", err)
		return f
	}
	dir, backups := filepath.Dir(path), upkeep.Directory(path, cfg.Backup.Directory)
	f.modes(path, backups)
	switch kind, err := disk.Kind(dir); {
	case err != nil:
		f.warn("file system", "let the program read the folder of the database", "%v", err)
	case kind == "tmpfs" || kind == "ramfs":
		f.warn("file system", "keep the database on a disk", "%s: everything is gone when the machine stops", kind)
	case kind == "overlay":
		f.warn("file system", "mount a volume for the folder of the database", "overlay: everything is gone with the container")
	case kind != "":
		f.warn("file system", "keep the database on a local disk", "%s: locks and syncs are as good as the other side's", kind)
	default:
		f.ok("file system", "what is synced is kept, as far as the kernel says")
	}
	d := upkeep.Judge(path)
	room := fmt.Sprintf("%s of %s are free", disk.Bytes(d.Free), disk.Bytes(d.Total))
	switch {
	case d.Err != nil:
		f.warn("disk", "let the program read the folder of the database", "%v", d.Err)
	case d.Full:
		f.fail("disk", "make room: questions are refused until there is", "%s", room)
	case d.Low:
		f.warn("disk", "make room: no files are taken and no backups made", "%s", room)
	default:
		f.ok("disk", "%s", room)
	}
	for note, do := range map[string]string{
		upkeep.SuspectPath(path):     "start the server: it reads the whole file first, and says what to do when that finds anything",
		path + ".restore-unfinished": "call semel restore FILE --force again",
	} {
		if text, err := os.ReadFile(note); !errors.Is(err, fs.ErrNotExist) {
			f.fail("notes", do, "%s: %s", note, strings.TrimSpace(string(text)))
		}
	}
	if fi, err := os.Stat(path + "-wal"); err == nil && fi.Size() > 64<<20 {
		f.warn("log", "end whatever has read from the file for long: another program, a semel verify that hangs", "%s-wal has %s", path, disk.Bytes(fi.Size()))
	} else {
		f.ok("log", "the write-ahead log is short")
	}
	f.contents(ctx, path, backups)
	f.backups(path, backups, cfg.Backup.Every)
	return f
}

// modes looks at who may read what.
func (f *findings) modes(path, backups string) {
	if runtime.GOOS == "windows" {
		return // where modes say nothing
	}
	open := 0
	made, _ := upkeep.Backups(path, backups)
	names := []string{path, path + "-wal", path + ".key"}
	for _, b := range made {
		names = append(names, b.Path)
	}
	for _, name := range names {
		fi, err := os.Stat(name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil || fi.Mode().Perm()&0o077 != 0 {
			open++
			f.fail("files", "chmod 600 "+name, "others may read %s", name)
		}
	}
	if open == 0 {
		f.ok("files", "only their owner may read them")
	}
}

// contents looks into the file.
func (f *findings) contents(ctx context.Context, path, backups string) {
	d, err := db.Open(db.Options{Path: path, ReadOnly: true, Readers: 1, Fatal: func(error) {}})
	if err == nil {
		defer d.Close()
		err = d.QuickCheck(ctx)
	}
	if db.IsDamaged(err) {
		f.fail("structure", "stop the server, and restore", "%v", upkeep.Damaged(path, backups, err))
		return
	}
	if err != nil {
		f.fail("structure", "semel serve upgrades a file of an earlier version; a newer one wants a newer program", "%v", err)
		return
	}
	f.ok("structure", "sound, by SQLite's quick check; semel verify looks at what it means")
	in, err := d.Instance(ctx)
	now := time.Now()
	switch {
	case err != nil:
		f.fail("clock", "semel verify says what is wrong with the file", "%v", err)
	case in.Newest.After(now.Add(2 * time.Second)):
		f.fail("clock", "set the clock", "it says %s, and a question was stored at %s", now.UTC().Format(time.RFC3339), in.Newest.Format(time.RFC3339))
	default:
		f.ok("clock", "it is not behind what is stored")
	}
	t, err := d.Totals(ctx)
	switch {
	case err != nil:
		f.fail("work", "semel verify says what is wrong with the file", "%v", err)
	case !t.Oldest.IsZero() && now.Sub(t.Oldest) > 10*time.Minute:
		f.warn("work", "/ops?view=stuck shows which, and lets you stop them", "a question waits for its answer since %s", t.Oldest.Format(time.RFC3339))
	case t.Dead > 0:
		f.warn("work", "/ops/outbox shows why, and sends again", "%d deliveries were given up and wait for a person", t.Dead)
	default:
		f.ok("work", "nothing is stuck")
	}
}

func (f *findings) backups(path, dir string, every time.Duration) {
	list, err := upkeep.Backups(path, dir)
	switch {
	case err != nil:
		f.fail("backups", "let the server read the folder", "%v", err)
	case len(list) == 0:
		f.warn("backups", "semel backup FILE makes one now", "there is none in %s", dir)
	case every > 0 && time.Since(list[len(list)-1].At) > 2*every:
		f.warn("backups", "the log of the server says why none was made", "the newest is of %s", list[len(list)-1].At.Format(time.RFC3339))
	default:
		f.ok("backups", "%d, the newest of %s", len(list), list[len(list)-1].At.Format(time.RFC3339))
	}
}

// doctorPatience is how long a proxy may hold back what the server says at once; tests
// have less.
var doctorPatience = 5 * time.Second

// examineProxy asks the server by the address that browsers use.
func examineProxy(ctx context.Context, f *findings, url string) {
	url = strings.TrimSuffix(url, "/")
	ctx, cancel := context.WithTimeout(ctx, doctorPatience)
	defer cancel()
	get := func(path, accept string) (*http.Response, error) {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url+path, nil)
		if err != nil {
			return nil, err
		}
		req.Header.Set("Accept", accept)
		return http.DefaultClient.Do(req)
	}
	res, err := get("/healthz", "application/json")
	if err != nil {
		f.fail("proxy", "look whether the server runs, and whether the name leads to it", "%s cannot be reached: %v", url, err)
		return
	}
	defer res.Body.Close()
	switch {
	case res.StatusCode != http.StatusOK:
		f.fail("proxy", "list its address in server.trusted_proxies, and let it pass the name of the host", "%s/healthz answers %s", url, res.Status)
		return
	case res.Header.Get("X-Trace-Id") == "":
		f.warn("proxy", "let it pass the headers of answers", "it takes X-Trace-Id away, or something else than Semel answers")
	}
	events, err := get("/api/events", "text/event-stream")
	if err != nil {
		f.fail("proxy", "switch buffering off for this server (nginx: proxy_buffering off)", "a stream does not begin within %s: %v", doctorPatience, err)
		return
	}
	defer events.Body.Close()
	if events.StatusCode == http.StatusUnauthorized {
		f.ok("proxy", "%s answers; streams cannot be tried without signing in", url)
		return
	}
	if e := events.Header.Get("Content-Encoding"); e != "" {
		f.warn("proxy", "let it not compress text/event-stream", "it compresses streams (%s), and so holds them back", e)
	}
	line, err := bufio.NewReader(events.Body).ReadString('\n')
	if err != nil || !strings.HasPrefix(line, "event: hello") {
		f.fail("proxy", "switch buffering off for this server (nginx: proxy_buffering off)", "the first words of a stream do not come within %s: %q, %v", doctorPatience, line, err)
		return
	}
	f.ok("proxy", "%s answers, and streams come through at once", url)
	if at, err := http.ParseTime(res.Header.Get("Date")); err == nil {
		if skew := time.Since(at).Abs(); skew > 5*time.Second {
			f.warn("proxy", "set the clocks", "its clock is %s from this one", skew.Round(time.Second))
		}
	}
}
