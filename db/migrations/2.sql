-- Version 2: an archive, titles that people gave, what is new to them, search, how long
-- a model thought, what users chose, models that they connected, files that questions
-- carry. Columns are added where schema.sql has them: after the last one.

ALTER TABLE instance ADD COLUMN indexed_tx INTEGER NOT NULL DEFAULT 0;

ALTER TABLE conversations ADD COLUMN archived_at INTEGER;
ALTER TABLE conversations ADD COLUMN named_tx INTEGER NOT NULL DEFAULT 0 CHECK (named_tx >= 0);
ALTER TABLE conversations ADD COLUMN ended_tx INTEGER NOT NULL DEFAULT 0 CHECK (ended_tx >= 0);
ALTER TABLE conversations ADD COLUMN seen_tx INTEGER NOT NULL DEFAULT 0 CHECK (seen_tx >= 0);

ALTER TABLE snapshots ADD COLUMN thought_ms INTEGER NOT NULL DEFAULT 0 CHECK (thought_ms >= 0);

DROP INDEX conversations_recent;
DROP INDEX conversations_deleted;
CREATE INDEX conversations_listed   ON conversations (user_id, pinned, updated_at) WHERE deleted_at IS NULL AND archived_at IS NULL;
CREATE INDEX conversations_archived ON conversations (user_id, pinned, updated_at) WHERE deleted_at IS NULL AND archived_at IS NOT NULL;
CREATE INDEX conversations_deleted  ON conversations (deleted_at) WHERE deleted_at IS NOT NULL;
CREATE UNIQUE INDEX conversations_named ON conversations (named_tx) WHERE named_tx > 0;
CREATE UNIQUE INDEX messages_tx ON messages (tx);

CREATE VIRTUAL TABLE search USING fts5 (tokens, content = '', contentless_delete = 1, detail = none, tokenize = 'ascii');

CREATE TABLE settings (
  user_id       INTEGER PRIMARY KEY REFERENCES users (id),
  theme         TEXT    NOT NULL DEFAULT 'system' CHECK (theme = 'system' OR theme = 'light' OR theme = 'dark'),
  language      TEXT    NOT NULL DEFAULT '',
  send_key      TEXT    NOT NULL DEFAULT 'enter' CHECK (send_key = 'enter' OR send_key = 'mod_enter'),
  model         TEXT    NOT NULL DEFAULT '',
  system_prompt TEXT    NOT NULL DEFAULT '',
  params        TEXT    NOT NULL DEFAULT '{}',
  updated_at    INTEGER NOT NULL
) STRICT;

CREATE TABLE models (
  id             INTEGER PRIMARY KEY,
  form_id        TEXT    NOT NULL UNIQUE CHECK (length(form_id) = 26),
  name           TEXT    NOT NULL CHECK (length(name) BETWEEN 1 AND 100),
  preset         TEXT    NOT NULL,
  provider       TEXT    NOT NULL CHECK (provider = 'openai' OR provider = 'openai-responses' OR provider = 'anthropic'),
  url            TEXT    NOT NULL CHECK (url LIKE 'http%'),
  upstream_model TEXT    NOT NULL,
  context        INTEGER NOT NULL CHECK (context >= 0),
  on_unknown     TEXT    NOT NULL CHECK (on_unknown = '' OR on_unknown = 'rerun' OR on_unknown = 'ask'),
  price_input    INTEGER CHECK (price_input  >= 0),
  price_cached   INTEGER CHECK (price_cached >= 0),
  price_output   INTEGER CHECK (price_output >= 0),
  sealed_key     BLOB,
  created_at     INTEGER NOT NULL,
  updated_at     INTEGER NOT NULL,
  removed_at     INTEGER,
  CHECK (removed_at IS NULL OR sealed_key IS NULL),
  CHECK ((price_input IS NULL) = (price_output IS NULL) AND (price_cached IS NULL OR price_input IS NOT NULL))
) STRICT;
CREATE UNIQUE INDEX models_name ON models (name) WHERE removed_at IS NULL;

CREATE TABLE contents (
  sha256     BLOB    NOT NULL PRIMARY KEY CHECK (length(sha256) = 32),
  media_type TEXT    NOT NULL CHECK (media_type = 'text/plain' OR media_type = 'image/png' OR media_type = 'image/jpeg' OR media_type = 'image/gif' OR media_type = 'image/webp'),
  width      INTEGER NOT NULL CHECK (width  >= 0),
  height     INTEGER NOT NULL CHECK (height >= 0),
  tokens     INTEGER NOT NULL,
  content    BLOB    NOT NULL CHECK (length(content) > 0),
  CHECK ((media_type = 'text/plain') = (width = 0) AND (width = 0) = (height = 0))
) STRICT;

CREATE TRIGGER contents_no_update BEFORE UPDATE ON contents
BEGIN SELECT RAISE(ABORT, 'contents are immutable'); END;

CREATE TABLE attachments (
  id          TEXT    NOT NULL PRIMARY KEY CHECK (length(id) = 32),
  user_id     INTEGER NOT NULL REFERENCES users (id),
  sha256      BLOB    NOT NULL REFERENCES contents (sha256),
  name        TEXT    NOT NULL CHECK (name <> ''),
  uploaded_at INTEGER NOT NULL
) STRICT;
CREATE INDEX attachments_content  ON attachments (sha256);
CREATE INDEX attachments_uploaded ON attachments (uploaded_at);

CREATE TRIGGER attachments_identity BEFORE UPDATE OF id, user_id, sha256, name ON attachments
BEGIN SELECT RAISE(ABORT, 'attachments: only the time changes'); END;

CREATE TABLE carried (
  conversation_id INTEGER NOT NULL,
  seq             INTEGER NOT NULL,
  n               INTEGER NOT NULL CHECK (n >= 1),
  attachment_id   TEXT    NOT NULL REFERENCES attachments (id),
  tx              INTEGER NOT NULL,
  PRIMARY KEY (conversation_id, seq, n),
  FOREIGN KEY (conversation_id, seq) REFERENCES messages (conversation_id, seq)
) STRICT, WITHOUT ROWID;
CREATE INDEX carried_attachment ON carried (attachment_id);

CREATE TRIGGER carried_no_update BEFORE UPDATE ON carried
BEGIN SELECT RAISE(ABORT, 'carried is append-only'); END;
CREATE TRIGGER carried_no_delete BEFORE DELETE ON carried
WHEN (SELECT purging FROM conversations WHERE id = OLD.conversation_id) IS NOT 1
BEGIN SELECT RAISE(ABORT, 'carried is append-only'); END;

-- What ended before there were marks is no news.
UPDATE conversations SET ended_tx = e.tx, seen_tx = e.tx FROM (
  SELECT r.conversation_id AS id, max(t.tx) AS tx FROM requests r JOIN transitions t ON t.request_id = r.id
  WHERE t.to_state = 'acknowledged' OR (t.to_state = 'failed' AND t.reason <> 'stopped') GROUP BY 1) e
WHERE e.id = conversations.id;

-- A title with which the first question does not begin was given by a person. In
-- which transaction nobody knows: each gets a number of its own, so that it is found.
UPDATE conversations SET named_tx = (SELECT tx FROM instance) + n.n FROM (
  SELECT c.id, row_number() OVER (ORDER BY c.id) AS n FROM conversations c
  WHERE c.purging = 0 AND NOT EXISTS (SELECT 1 FROM messages m WHERE m.conversation_id = c.id AND m.role = 'user'
    AND m.seq = (SELECT min(seq) FROM messages f WHERE f.conversation_id = c.id)
    AND substr(ltrim(m.content, ' ' || char(9, 10, 13)), 1, length(rtrim(c.title, '…'))) = rtrim(c.title, '…'))) n
WHERE n.id = conversations.id;
UPDATE instance SET tx = max(tx, (SELECT coalesce(max(named_tx), 0) FROM conversations));

-- Imports: a source, a reason, and a context that nobody knows. The checks of a table
-- are changed in its text, because no row that there is can break the wider ones.
PRAGMA writable_schema = ON;
UPDATE sqlite_schema SET sql = replace(sql, 'source = ''openai'')', 'source = ''openai'' OR source = ''import'')') WHERE type = 'table' AND name = 'arrivals';
UPDATE sqlite_schema SET sql = replace(sql, 'reason = ''explicit'')', 'reason = ''explicit'' OR reason = ''imported'')') WHERE type = 'table' AND name = 'attempts';
PRAGMA writable_schema = RESET;
DROP TRIGGER requests_context;
CREATE TRIGGER requests_context BEFORE UPDATE OF context, context_dropped, placed, parent_seq ON requests
WHEN (OLD.context <> '' AND (NEW.context IS NOT OLD.context OR NEW.context_dropped <> OLD.context_dropped))
  OR (OLD.placed = 1 AND (NEW.placed <> 1 OR NEW.parent_seq <> OLD.parent_seq))
BEGIN SELECT RAISE(ABORT, 'requests: the context is frozen, and the place'); END;

-- Effects.
CREATE TABLE declarations (
  id         INTEGER PRIMARY KEY,
  sha256     BLOB    NOT NULL UNIQUE CHECK (length(sha256) = 32),
  body       TEXT    NOT NULL,
  created_at INTEGER NOT NULL
) STRICT;

CREATE TRIGGER declarations_no_update BEFORE UPDATE ON declarations
BEGIN SELECT RAISE(ABORT, 'declarations are append-only'); END;
CREATE TRIGGER declarations_no_delete BEFORE DELETE ON declarations
BEGIN SELECT RAISE(ABORT, 'declarations are append-only'); END;

CREATE TABLE decisions (
  request_id INTEGER NOT NULL REFERENCES requests (id),
  position   INTEGER NOT NULL CHECK (position >= 0),
  webhook_id TEXT    NOT NULL UNIQUE,
  action     TEXT    NOT NULL,
  arguments  TEXT    NOT NULL,
  digest     BLOB    NOT NULL CHECK (length(digest) = 32),
  verdict    TEXT    NOT NULL CHECK (verdict = 'auto' OR verdict = 'ask' OR verdict = 'never' OR verdict = 'invalid'),
  code       TEXT    NOT NULL,
  reason     TEXT    NOT NULL,
  at         INTEGER NOT NULL,
  tx         INTEGER NOT NULL,
  PRIMARY KEY (request_id, position),
  CHECK ((verdict IN ('auto', 'ask')) = (code = ''))
) STRICT, WITHOUT ROWID;

CREATE TRIGGER decisions_no_update BEFORE UPDATE ON decisions
BEGIN SELECT RAISE(ABORT, 'decisions are append-only'); END;
CREATE TRIGGER decisions_no_delete BEFORE DELETE ON decisions
WHEN (SELECT c.purging FROM requests r JOIN conversations c ON c.id = r.conversation_id WHERE r.id = OLD.request_id) IS NOT 1
BEGIN SELECT RAISE(ABORT, 'decisions are append-only'); END;

CREATE TABLE verdicts (
  request_id INTEGER NOT NULL,
  position   INTEGER NOT NULL,
  verdict    TEXT    NOT NULL CHECK (verdict = 'approve' OR verdict = 'reject'),
  digest     BLOB    NOT NULL CHECK (length(digest) = 32),
  actor      TEXT    NOT NULL,
  reason     TEXT    NOT NULL,
  at         INTEGER NOT NULL,
  tx         INTEGER NOT NULL,
  PRIMARY KEY (request_id, position),
  FOREIGN KEY (request_id, position) REFERENCES decisions (request_id, position)
) STRICT, WITHOUT ROWID;

CREATE TRIGGER verdicts_no_update BEFORE UPDATE ON verdicts
BEGIN SELECT RAISE(ABORT, 'verdicts are append-only'); END;
CREATE TRIGGER verdicts_no_delete BEFORE DELETE ON verdicts
WHEN (SELECT c.purging FROM requests r JOIN conversations c ON c.id = r.conversation_id WHERE r.id = OLD.request_id) IS NOT 1
BEGIN SELECT RAISE(ABORT, 'verdicts are append-only'); END;

CREATE TABLE outbox (
  id          INTEGER PRIMARY KEY AUTOINCREMENT,
  request_id  INTEGER NOT NULL REFERENCES requests (id),
  kind        TEXT    NOT NULL CHECK (kind = 'effect' OR kind = 'compensation' OR kind = 'charge'),
  position    INTEGER NOT NULL CHECK (position >= 0),
  webhook_id  TEXT    NOT NULL UNIQUE,
  destination TEXT    NOT NULL,
  payload     TEXT    NOT NULL,
  awaits      INTEGER NOT NULL CHECK (awaits IN (0, 1)),
  callback_ms INTEGER NOT NULL CHECK (callback_ms >= 0),
  compensates INTEGER NOT NULL CHECK (compensates IN (0, 1)),

  state       TEXT    NOT NULL CHECK (CASE state WHEN 'pending' THEN 1 WHEN 'delivering' THEN 1 WHEN 'awaiting' THEN 1 WHEN 'dead' THEN 1
    WHEN 'timed_out' THEN 1 WHEN 'refused' THEN 1 WHEN 'compensating' THEN 1 WHEN 'delivered' THEN 1 WHEN 'abandoned' THEN 1 WHEN 'compensated' THEN 1 ELSE 0 END),
  steps       INTEGER NOT NULL DEFAULT 0,
  attempt     INTEGER NOT NULL DEFAULT 0,
  tries       INTEGER NOT NULL DEFAULT 0,
  owner       TEXT,
  lease_until INTEGER,
  next_at     INTEGER,
  due_at      INTEGER,
  first_at    INTEGER,
  code        TEXT    NOT NULL DEFAULT '',
  created_at  INTEGER NOT NULL,
  updated_at  INTEGER NOT NULL,
  settled_at  INTEGER,
  tx          INTEGER NOT NULL,

  UNIQUE (request_id, kind, position),
  CHECK ((state = 'delivering') = (owner IS NOT NULL)),
  CHECK ((owner IS NULL) = (lease_until IS NULL)),
  CHECK ((state = 'pending') = (next_at IS NOT NULL)),
  CHECK ((state = 'awaiting') = (due_at IS NOT NULL)),
  CHECK ((state IN ('delivered', 'abandoned') OR state = 'compensated') = (settled_at IS NOT NULL)),
  CHECK ((attempt = 0) = (first_at IS NULL)),
  CHECK (state <> 'awaiting' OR awaits = 1),
  CHECK (kind = 'effect' OR (awaits = 0 AND compensates = 0))
) STRICT;
CREATE INDEX outbox_due      ON outbox (next_at) WHERE state = 'pending';
CREATE INDEX outbox_awaiting ON outbox (due_at) WHERE state = 'awaiting';
CREATE INDEX outbox_busy     ON outbox (id) WHERE state = 'delivering';
CREATE INDEX outbox_troubled ON outbox (id) WHERE state IN ('dead', 'timed_out') OR state = 'refused';

CREATE TRIGGER outbox_edges BEFORE UPDATE OF state ON outbox
WHEN NEW.state <> OLD.state AND NOT CASE OLD.state
  WHEN 'pending'      THEN (NEW.state = 'delivering' AND NEW.attempt = OLD.attempt + 1) OR NEW.state IN ('dead', 'delivered') OR NEW.state IN ('refused', 'compensating') OR NEW.state = 'abandoned'
  WHEN 'delivering'   THEN NEW.state IN ('pending', 'awaiting') OR NEW.state IN ('delivered', 'dead') OR NEW.state IN ('refused', 'compensating')
  WHEN 'awaiting'     THEN NEW.state IN ('delivered', 'refused') OR NEW.state IN ('timed_out', 'compensating') OR NEW.state = 'abandoned'
  WHEN 'dead'         THEN NEW.state IN ('pending', 'delivered') OR NEW.state IN ('refused', 'compensating') OR NEW.state = 'abandoned'
  WHEN 'timed_out'    THEN NEW.state IN ('pending', 'delivered') OR NEW.state IN ('refused', 'compensating') OR NEW.state = 'abandoned'
  WHEN 'refused'      THEN NEW.state = 'abandoned'
  WHEN 'compensating' THEN NEW.state IN ('compensated', 'abandoned')
  ELSE 0 END
BEGIN SELECT RAISE(ABORT, 'outbox: no such edge'); END;

CREATE TRIGGER outbox_identity BEFORE UPDATE OF id, request_id, kind, position, webhook_id, destination, payload, awaits, callback_ms, compensates, created_at, tx ON outbox
BEGIN SELECT RAISE(ABORT, 'outbox: what leaves does not change'); END;

CREATE TRIGGER outbox_attempt BEFORE UPDATE OF attempt ON outbox
WHEN NEW.attempt <> OLD.attempt + 1 OR NEW.state <> 'delivering'
BEGIN SELECT RAISE(ABORT, 'outbox: only a delivery raises the attempt'); END;

CREATE TRIGGER outbox_no_delete BEFORE DELETE ON outbox
WHEN (SELECT c.purging FROM requests r JOIN conversations c ON c.id = r.conversation_id WHERE r.id = OLD.request_id) IS NOT 1
BEGIN SELECT RAISE(ABORT, 'outbox: only a purge deletes'); END;

CREATE TABLE deliveries (
  outbox_id  INTEGER NOT NULL REFERENCES outbox (id),
  n          INTEGER NOT NULL CHECK (n >= 1),
  reason     TEXT    NOT NULL CHECK (reason = 'first' OR reason = 'retry' OR reason = 'redrive'),
  owner      TEXT    NOT NULL,
  target     TEXT    NOT NULL,
  started_at INTEGER NOT NULL,
  ended_at   INTEGER,
  outcome    TEXT CHECK (outcome = 'ok' OR outcome = 'none' OR outcome = 'definite' OR outcome = 'unknown'),
  status     INTEGER,
  code       TEXT,
  detail     TEXT,
  tx         INTEGER NOT NULL,
  PRIMARY KEY (outbox_id, n),
  CHECK ((ended_at IS NULL) = (outcome IS NULL))
) STRICT, WITHOUT ROWID;

CREATE TRIGGER deliveries_closed BEFORE UPDATE ON deliveries
WHEN OLD.outcome IS NOT NULL
BEGIN SELECT RAISE(ABORT, 'deliveries: a closed delivery does not change'); END;
CREATE TRIGGER deliveries_no_delete BEFORE DELETE ON deliveries
WHEN (SELECT c.purging FROM outbox o JOIN requests r ON r.id = o.request_id JOIN conversations c ON c.id = r.conversation_id WHERE o.id = OLD.outbox_id) IS NOT 1
BEGIN SELECT RAISE(ABORT, 'deliveries are not deleted'); END;

CREATE TABLE callbacks (
  outbox_id  INTEGER NOT NULL REFERENCES outbox (id),
  n          INTEGER NOT NULL CHECK (n >= 1),
  message_id TEXT    NOT NULL,
  ok         INTEGER NOT NULL CHECK (ok IN (0, 1)),
  reason     TEXT    NOT NULL,
  decision   TEXT    NOT NULL CHECK (decision = 'first' OR decision = 'duplicate' OR decision = 'contradiction' OR decision = 'late'),
  times      INTEGER NOT NULL DEFAULT 1,
  at         INTEGER NOT NULL,
  tx         INTEGER NOT NULL,
  PRIMARY KEY (outbox_id, n),
  UNIQUE (outbox_id, message_id)
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX callbacks_first ON callbacks (outbox_id) WHERE decision = 'first';

CREATE TRIGGER callbacks_no_update BEFORE UPDATE OF outbox_id, n, message_id, ok, reason, decision, at, tx ON callbacks
BEGIN SELECT RAISE(ABORT, 'callbacks are append-only'); END;
CREATE TRIGGER callbacks_no_delete BEFORE DELETE ON callbacks
WHEN (SELECT c.purging FROM outbox o JOIN requests r ON r.id = o.request_id JOIN conversations c ON c.id = r.conversation_id WHERE o.id = OLD.outbox_id) IS NOT 1
BEGIN SELECT RAISE(ABORT, 'callbacks are append-only'); END;

CREATE TABLE disabled_destinations (
  name TEXT    NOT NULL PRIMARY KEY,
  at   INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE audit (
  id     INTEGER PRIMARY KEY,
  at     INTEGER NOT NULL,
  actor  TEXT    NOT NULL,
  action TEXT    NOT NULL,
  object TEXT    NOT NULL,
  reason TEXT    NOT NULL,
  key    TEXT,
  tx     INTEGER NOT NULL
) STRICT;
CREATE UNIQUE INDEX audit_key ON audit (key) WHERE key IS NOT NULL;

CREATE TRIGGER audit_no_update BEFORE UPDATE ON audit
BEGIN SELECT RAISE(ABORT, 'audit is append-only'); END;
CREATE TRIGGER audit_no_delete BEFORE DELETE ON audit
BEGIN SELECT RAISE(ABORT, 'audit is append-only'); END;
ALTER TABLE snapshots ADD COLUMN declarations_id INTEGER REFERENCES declarations (id);
CREATE INDEX ledger_other ON ledger (request_id) WHERE kind IN ('adjustment', 'refund');
