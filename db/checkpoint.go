package db

// checkpointAfter is how many callers' transactions make a checkpoint worth its
// fsync: some four to twelve megabytes of WAL.
const checkpointAfter = 512

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
			continue
		}
		d.checkpointDone.Store(true)
	}
}

// checkpointRest is called by the write loop between batches; n is how many
// callers the last one had.
func (d *DB) checkpointRest(n int) {
	if d.broken != nil {
		return
	}
	if d.checkpointDone.CompareAndSwap(true, false) {
		d.sinceCheckpoint = 0
		if err := passiveCheckpoint(d.writer); err != nil {
			d.log.Warn("checkpoint", "error", err)
			d.checkFatal(err)
		}
		return
	}
	d.wantCheckpoint(n)
}

// wantCheckpoint counts n more callers and asks for a checkpoint when it is time.
func (d *DB) wantCheckpoint(n int) {
	if d.sinceCheckpoint += n; d.sinceCheckpoint < checkpointAfter {
		return
	}
	select {
	case d.checkpointWanted <- struct{}{}:
	default: // one is under way
	}
}

func passiveCheckpoint(c *conn) error {
	var busy, log, done int
	_, err := c.queryRow("PRAGMA wal_checkpoint(PASSIVE)", nil, &busy, &log, &done)
	return err
}
