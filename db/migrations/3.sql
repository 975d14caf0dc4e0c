-- Version 3: accounts, sessions and keys; what a restore left behind.


-- Backups and restores.
ALTER TABLE instance ADD COLUMN backed_up_at INTEGER;
ALTER TABLE outbox ADD COLUMN doubted_at INTEGER;

CREATE TABLE restores (
  epoch       INTEGER PRIMARY KEY CHECK (epoch > 1),
  backup_at   INTEGER NOT NULL,
  restored_at INTEGER NOT NULL,
  settled_at  INTEGER,
  tx          INTEGER NOT NULL
) STRICT;

CREATE TRIGGER restores_no_update BEFORE UPDATE ON restores
WHEN OLD.settled_at IS NOT NULL OR NEW.epoch <> OLD.epoch OR NEW.backup_at <> OLD.backup_at OR NEW.restored_at <> OLD.restored_at OR NEW.tx <> OLD.tx
BEGIN SELECT RAISE(ABORT, 'restores are append-only'); END;
CREATE TRIGGER restores_no_delete BEFORE DELETE ON restores
BEGIN SELECT RAISE(ABORT, 'restores are append-only'); END;
-- What was done to a request by hand is a part of its receipt.
CREATE INDEX audit_object ON audit (object);
