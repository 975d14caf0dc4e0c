-- Version 3: accounts, sessions and keys; what a restore left behind.


-- Backups and restores.
ALTER TABLE instance ADD COLUMN backed_up_at INTEGER;
ALTER TABLE outbox ADD COLUMN doubted_at INTEGER;

-- What leaves has a digest.
ALTER TABLE outbox ADD COLUMN sha256 BLOB CHECK (length(sha256) = 32);
UPDATE outbox SET sha256 = digest(CAST(webhook_id AS BLOB), CAST(destination AS BLOB), CAST(payload AS BLOB));
DROP TRIGGER outbox_identity;
CREATE TRIGGER outbox_identity BEFORE UPDATE OF id, request_id, kind, position, webhook_id, destination, payload, awaits, callback_ms, compensates, created_at, tx, sha256 ON outbox
BEGIN SELECT RAISE(ABORT, 'outbox: what leaves does not change'); END;

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

-- Running counts, from the rows there are. Of requests that were purged only the charge is left.
ALTER TABLE instance ADD COLUMN attempts INTEGER NOT NULL DEFAULT 0;
ALTER TABLE instance ADD COLUMN answers INTEGER NOT NULL DEFAULT 0;
ALTER TABLE instance ADD COLUMN charges INTEGER NOT NULL DEFAULT 0;
ALTER TABLE instance ADD COLUMN charged_micros INTEGER NOT NULL DEFAULT 0;
ALTER TABLE instance ADD COLUMN joined INTEGER NOT NULL DEFAULT 0;
ALTER TABLE instance ADD COLUMN replayed INTEGER NOT NULL DEFAULT 0;
ALTER TABLE instance ADD COLUMN conflicts INTEGER NOT NULL DEFAULT 0;
ALTER TABLE instance ADD COLUMN restarts INTEGER NOT NULL DEFAULT 0;
ALTER TABLE instance ADD COLUMN expired INTEGER NOT NULL DEFAULT 0;
ALTER TABLE instance ADD COLUMN saved_micros INTEGER NOT NULL DEFAULT 0;

CREATE TRIGGER ledger_uncounted AFTER DELETE ON ledger WHEN OLD.kind = 'charge'
BEGIN UPDATE instance SET charges = charges - 1, charged_micros = charged_micros - OLD.micros WHERE one = 1; END;

UPDATE instance SET
  attempts = (SELECT count(*) FROM attempts WHERE reason <> 'imported'),
  answers = (SELECT count(*) FROM transitions WHERE to_state = 'acknowledged')
    + (SELECT count(*) FROM ledger l WHERE l.kind = 'charge' AND NOT EXISTS (SELECT 1 FROM requests r WHERE r.id = l.request_id)),
  charges = (SELECT count(*) FROM ledger WHERE kind = 'charge'),
  charged_micros = (SELECT coalesce(sum(micros), 0) FROM ledger WHERE kind = 'charge'),
  joined = (SELECT count(*) FROM arrivals WHERE decision = 'joined'),
  replayed = (SELECT count(*) FROM arrivals WHERE decision = 'replayed'),
  conflicts = (SELECT count(*) FROM arrivals WHERE decision = 'conflict'),
  restarts = (SELECT count(*) FROM arrivals WHERE decision = 'restarted'),
  expired = (SELECT count(*) FROM arrivals WHERE decision = 'expired'),
  saved_micros = (SELECT coalesce(sum(l.micros), 0) FROM arrivals a JOIN ledger l ON l.request_id = a.request_id AND l.kind = 'charge'
    WHERE a.decision = 'joined' OR a.decision = 'replayed');

-- Accounts.
ALTER TABLE users ADD COLUMN role TEXT NOT NULL DEFAULT 'member' CHECK (role = 'admin' OR role = 'operator' OR role = 'member');
ALTER TABLE users ADD COLUMN password TEXT CHECK (password LIKE '$argon2id$%');
CREATE INDEX users_accounts ON users (role) WHERE password IS NOT NULL;
CREATE TABLE logins (
  id         INTEGER PRIMARY KEY AUTOINCREMENT,
  digest     BLOB    NOT NULL UNIQUE CHECK (length(digest) = 32),
  user_id    INTEGER NOT NULL REFERENCES users (id),
  agent      TEXT    NOT NULL CHECK (length(agent) <= 300),
  created_at INTEGER NOT NULL,
  seen_at    INTEGER NOT NULL,
  expires_at INTEGER NOT NULL CHECK (expires_at > created_at)
) STRICT;
CREATE INDEX logins_user    ON logins (user_id);
CREATE INDEX logins_expired ON logins (expires_at);
CREATE TABLE api_keys (
  id         INTEGER PRIMARY KEY AUTOINCREMENT,
  digest     BLOB    NOT NULL UNIQUE CHECK (length(digest) = 32),
  user_id    INTEGER NOT NULL REFERENCES users (id),
  name       TEXT    NOT NULL CHECK (length(name) BETWEEN 1 AND 100),
  scope      TEXT    NOT NULL CHECK (scope = 'chat' OR scope = 'ops'),
  created_at INTEGER NOT NULL,
  used_at    INTEGER,
  revoked_at INTEGER,
  form_id    TEXT    CHECK (length(form_id) = 26)
) STRICT;
CREATE UNIQUE INDEX api_keys_form ON api_keys (user_id, form_id);
CREATE TRIGGER api_keys_identity BEFORE UPDATE OF id, digest, user_id, scope, created_at, form_id ON api_keys
BEGIN SELECT RAISE(ABORT, 'api_keys: a key does not change'); END;
CREATE TRIGGER api_keys_revoked BEFORE UPDATE OF revoked_at ON api_keys
WHEN OLD.revoked_at IS NOT NULL
BEGIN SELECT RAISE(ABORT, 'api_keys: what is revoked stays so'); END;
CREATE TABLE login_tries (
  digest   BLOB    NOT NULL PRIMARY KEY CHECK (length(digest) = 32),
  tries    INTEGER NOT NULL CHECK (tries > 0),
  until_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX login_tries_over ON login_tries (until_at);
