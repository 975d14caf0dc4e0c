// Package upkeep looks after the database file while it is served: it makes backups,
// watches the room on the disk and the structure of the file, and leaves a note for
// the next start when the file cannot be trusted.
package upkeep

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"semel/db"
	"semel/seal"
)

// Options say what is looked after. DB is needed.
type Options struct {
	DB  *db.DB
	Log *slog.Logger

	Every     time.Duration   // between two backups; 0 makes none unasked
	Keep      Keep            // which backups stay; others are removed
	Directory string          // of the backups
	For       seal.Recipients // who can read them; none: they are not encrypted

	Ballast    int64         // bytes that are given up when the disk is full; 0 is none
	CheckEvery time.Duration // between two looks at the structure of the file; 0 is never

	space func() (free, total int64, err error) // tests only
}

// A Keeper looks after one file. All its methods may be called by many goroutines.
type Keeper struct {
	o       Options
	started time.Time
	running sync.WaitGroup
	ctx     context.Context // ends when Stop is called
	stop    context.CancelFunc

	mu   sync.Mutex
	last Made      // under mu
	runs time.Time // under mu; when the backup began that is being made, zero for none
	disk Disk      // under mu

	ballasting sync.Mutex // held by whoever changes the ballast
}

const (
	diskEvery = time.Second // between two looks at the room on the disk
	// afterStart is when a backup is made that is overdue at the start: who restarts every
	// few seconds is not slowed down by it.
	afterStart = time.Minute
)

// New returns a keeper that has looked once. Start starts it.
func New(o Options) *Keeper {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	k := &Keeper{o: o, started: time.Now()}
	k.ctx, k.stop = context.WithCancel(context.Background())
	if o.space == nil {
		k.o.space = k.measure
	}
	if list, err := k.backups(); err != nil {
		o.Log.Error("look for earlier backups", "directory", o.Directory, "error", err)
	} else if len(list) > 0 {
		k.last = list[len(list)-1]
	}
	k.lookAtDisk(false)
	return k
}

// Start begins to look. Stop ends that.
func (k *Keeper) Start() {
	ctx := k.ctx
	k.running.Go(func() {
		for k.lookAtDisk(true); every(ctx, diskEvery); {
			k.lookAtDisk(true)
		}
	})
	if k.o.Every > 0 {
		k.running.Go(func() { k.backupLoop(ctx) })
	}
	if k.o.CheckEvery > 0 {
		k.running.Go(func() {
			for every(ctx, k.o.CheckEvery) {
				k.check(ctx)
			}
		})
	}
}

// Stop returns when nothing of the keeper runs any more; a backup that is being made is
// given up.
func (k *Keeper) Stop() {
	k.mu.Lock() // nothing begins after this
	k.stop()
	k.mu.Unlock()
	k.running.Wait()
}

// every waits and reports whether to go on.
func every(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

// check looks at the structure of the file. A damaged one ends the process, as any
// other failure of the file does.
func (k *Keeper) check(ctx context.Context) {
	started := time.Now()
	err := k.o.DB.QuickCheck(ctx)
	switch {
	case ctx.Err() != nil:
	case err != nil:
		k.o.Log.Error("check of the file's structure", "error", err)
	default:
		k.o.Log.Debug("the file's structure is sound", "took", time.Since(started))
	}
}
