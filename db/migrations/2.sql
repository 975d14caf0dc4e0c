-- Version 2: an archive, titles that people gave, what is new to them, search, how long
-- a model thought, what users chose, models that they connected. Columns are added where
-- schema.sql has them: after the last one.

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
