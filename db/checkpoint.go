package db

// checkpointAfter is how many pages of WAL, as estimated, make a checkpoint worth
// its fsync: four megabytes, as by SQLite's own rule. The WAL is as large as that
// after the first one, and until then each commit also syncs that it has grown.
const checkpointAfter = 1000

// walPages estimates what a commit of n callers adds to the WAL: the pages that
// all of them touch, once, and each caller's own.
func walPages(n int) int { return 8 + 2*n }

// What a checkpoint is at. The writer goes from idle to runs and from done to idle,
// the loop from runs to the others.
const (
	checkpointIdle int32 = iota
	checkpointRuns       // asked for, or under way beside the writer
	checkpointDone       // and the writer takes the rest
)

// Checkpoints run in two phases, because one that runs beside writers never
// reaches the end of a WAL that keeps growing. First this loop copies most of it
// on its own connection while the writer goes on; then the writer, after it has
// told its callers, copies the little that came meanwhile, so that its next
// commit starts the WAL over from the beginning. The WAL is never truncated in
// normal running.
func (d *DB) checkpointLoop() {
	defer close(d.checkpointed)
	for {
		select {
		case <-d.written:
			return
		case <-d.checkpointWanted:
		}
		if err := passiveCheckpoint(d.checkpointer); err != nil {
			d.log.Warn("checkpoint", "error", err)
			if isFatal(err) {
				d.fatal(err) // where that returns, the writer will find out by itself
			}
			d.checkpoint.Store(checkpointIdle)
			continue
		}
		d.checkpoint.Store(checkpointDone)
	}
}

// checkpointRest is called by the write loop between batches; n is how many
// callers the last one had.
func (d *DB) checkpointRest(n int) {
	if d.broken != nil {
		return
	}
	if d.checkpoint.CompareAndSwap(checkpointDone, checkpointIdle) {
		d.sinceCheckpoint = 0
		if err := passiveCheckpoint(d.writer); err != nil {
			d.log.Warn("checkpoint", "error", err)
			d.checkFatal(err)
		}
		return
	}
	d.wantCheckpoint(n)
}

// wantCheckpoint counts a commit of n callers and asks for a checkpoint when it is
// time.
func (d *DB) wantCheckpoint(n int) {
	if d.sinceCheckpoint += walPages(n); d.sinceCheckpoint < checkpointAfter || d.beside {
		return
	}
	// One at a time: a second one right behind the first would double the work.
	if d.checkpoint.CompareAndSwap(checkpointIdle, checkpointRuns) {
		d.checkpointWanted <- struct{}{} // it has room: the loop took the one before
	}
}

func passiveCheckpoint(c *conn) error {
	var busy, log, done int
	_, err := c.queryRow("PRAGMA wal_checkpoint(PASSIVE)", nil, &busy, &log, &done)
	return err
}
