-- The data model of Semel. Read this first.
--
-- One user intent is one row of requests, found again by its key (request id,
-- conversation, user). Everything that happened to it hangs off that row: the
-- arrivals of its id, the transitions of its state, the attempts to get an
-- answer, and at most one snapshot of that answer, one message, one charge and
-- one dedupe mark, all four written in one transaction.
--
-- Conventions
--   ids       TEXT outside (ULIDs mostly), INTEGER keys inside
--   times     INTEGER, milliseconds since 1970, from the program's clock: *_at
--   money     INTEGER, millionths of the currency: *_micros
--   tx        number of the transaction that wrote the row. Each caller of the
--             write queue has its own, so "written in the same transaction" is
--             an equality that SQL can check, group commit or not. An import has
--             one for each acceptance and each end that it writes.
--   record    transitions, snapshots, messages, carried and ledger are only ever
--             inserted; triggers refuse the rest, except that purging a deleted
--             conversation may delete what hangs under it (never the ledger).
--
-- A list of three or more in a CHECK, a trigger or a partial index is spelled out
-- with OR or CASE: for a longer IN, SQLite builds a b-tree each time it runs, and
-- that was a third of what a write cost.
--
-- The file is opened with foreign_keys and recursive_triggers on: without the
-- latter INSERT OR REPLACE would walk past the triggers.

-- One row about this file.
CREATE TABLE instance (
  one           INTEGER PRIMARY KEY CHECK (one = 1),
  tx            INTEGER NOT NULL DEFAULT 0,  -- the last transaction number given out
  epoch         INTEGER NOT NULL DEFAULT 1,  -- raised by a restore; pages reload on a new one
  purge_horizon INTEGER NOT NULL DEFAULT 0,  -- newest ULID time whose tombstone is gone: unknown ids older than it are never run
  pruned_id     INTEGER NOT NULL DEFAULT 0,  -- evidence of requests up to this id is pruned
  created_at    INTEGER NOT NULL,
  indexed_tx    INTEGER NOT NULL DEFAULT 0,  -- what was written up to this transaction is in the search index
  backed_up_at  INTEGER,                     -- this file is a backup of that moment: a restore makes it one to serve. NULL: it is one
  -- Running counts, for whoever would have to walk the file: ever written here, purged or not.
  attempts       INTEGER NOT NULL DEFAULT 0, -- calls to models that were allowed; without those of imports
  answers        INTEGER NOT NULL DEFAULT 0, -- requests that became acknowledged
  charges        INTEGER NOT NULL DEFAULT 0, -- charges in the ledger, and their sum
  charged_micros INTEGER NOT NULL DEFAULT 0,
  joined         INTEGER NOT NULL DEFAULT 0, -- arrivals by decision
  replayed       INTEGER NOT NULL DEFAULT 0,
  conflicts      INTEGER NOT NULL DEFAULT 0,
  restarts       INTEGER NOT NULL DEFAULT 0,
  expired        INTEGER NOT NULL DEFAULT 0,
  saved_micros   INTEGER NOT NULL DEFAULT 0  -- what those joined and replayed would have cost, had each been charged
) STRICT;

CREATE TABLE users (
  id          INTEGER PRIMARY KEY,
  name        TEXT    NOT NULL UNIQUE,
  disabled_at INTEGER,
  created_at  INTEGER NOT NULL,
  role        TEXT    NOT NULL DEFAULT 'member' CHECK (role = 'admin' OR role = 'operator' OR role = 'member'),
  password    TEXT    CHECK (password LIKE '$argon2id$%')  -- its hash; NULL: nobody can sign in
) STRICT;

-- Accounts. A user with a password is one; without any, the program is for the one user
-- of this machine. Of what people hold to be let in (tokens, keys) there are only digests.
CREATE INDEX users_accounts ON users (role) WHERE password IS NOT NULL;

-- Who is signed in, and where: a row a browser. What has ended is deleted.
CREATE TABLE logins (
  id         INTEGER PRIMARY KEY AUTOINCREMENT,
  digest     BLOB    NOT NULL UNIQUE CHECK (length(digest) = 32),  -- SHA-256 of the token
  user_id    INTEGER NOT NULL REFERENCES users (id),
  agent      TEXT    NOT NULL CHECK (length(agent) <= 300),        -- the browser, as it says
  created_at INTEGER NOT NULL,
  seen_at    INTEGER NOT NULL,             -- to the minute
  expires_at INTEGER NOT NULL CHECK (expires_at > created_at)
) STRICT;
CREATE INDEX logins_user    ON logins (user_id);
CREATE INDEX logins_expired ON logins (expires_at);

-- What programs are let in by. A revoked one stays, so that it can be named.
CREATE TABLE api_keys (
  id         INTEGER PRIMARY KEY AUTOINCREMENT,
  digest     BLOB    NOT NULL UNIQUE CHECK (length(digest) = 32),  -- SHA-256 of the key
  user_id    INTEGER NOT NULL REFERENCES users (id),
  name       TEXT    NOT NULL CHECK (length(name) BETWEEN 1 AND 100),
  scope      TEXT    NOT NULL CHECK (scope = 'chat' OR scope = 'ops'),
  created_at INTEGER NOT NULL,
  used_at    INTEGER,                      -- to the minute
  revoked_at INTEGER,
  form_id    TEXT    CHECK (length(form_id) = 26)                     -- the id of the form that made it; NULL: a command did
) STRICT;
CREATE UNIQUE INDEX api_keys_form ON api_keys (user_id, form_id);

CREATE TRIGGER api_keys_identity BEFORE UPDATE OF id, digest, user_id, scope, created_at, form_id ON api_keys
BEGIN SELECT RAISE(ABORT, 'api_keys: a key does not change'); END;
CREATE TRIGGER api_keys_revoked BEFORE UPDATE OF revoked_at ON api_keys
WHEN OLD.revoked_at IS NOT NULL
BEGIN SELECT RAISE(ABORT, 'api_keys: what is revoked stays so'); END;

-- Passwords that were tried, each counted in a transaction of its own before it is
-- looked at, so that nothing that happens then undoes the count. A right one is
-- forgiven. A row is gone when its time is.
CREATE TABLE login_tries (
  digest   BLOB    NOT NULL PRIMARY KEY CHECK (length(digest) = 32),  -- of whose password, from where
  tries    INTEGER NOT NULL CHECK (tries > 0),
  until_at INTEGER NOT NULL                -- when it is as if nobody had tried
) STRICT, WITHOUT ROWID;
CREATE INDEX login_tries_over ON login_tries (until_at);

-- What a user has chosen for the pages and for new conversations; without a row, what
-- the columns say by default.
CREATE TABLE settings (
  user_id       INTEGER PRIMARY KEY REFERENCES users (id),
  theme         TEXT    NOT NULL DEFAULT 'system' CHECK (theme = 'system' OR theme = 'light' OR theme = 'dark'),
  language      TEXT    NOT NULL DEFAULT '',   -- '' is as the configuration or the browser says
  send_key      TEXT    NOT NULL DEFAULT 'enter' CHECK (send_key = 'enter' OR send_key = 'mod_enter'),
  model         TEXT    NOT NULL DEFAULT '',   -- of questions that name none, in conversations that name none; '' is the first
  system_prompt TEXT    NOT NULL DEFAULT '',   -- of new conversations, as are the parameters
  params        TEXT    NOT NULL DEFAULT '{}',
  updated_at    INTEGER NOT NULL
) STRICT;

-- Models that were connected on the settings page. A removed one stays, without its
-- key, so that a form that comes a second time adds nothing.
CREATE TABLE models (
  id             INTEGER PRIMARY KEY,
  form_id        TEXT    NOT NULL UNIQUE CHECK (length(form_id) = 26),  -- the id of the form that connected it
  name           TEXT    NOT NULL CHECK (length(name) BETWEEN 1 AND 100),
  preset         TEXT    NOT NULL,
  provider       TEXT    NOT NULL CHECK (provider = 'openai' OR provider = 'openai-responses' OR provider = 'anthropic'),
  url            TEXT    NOT NULL CHECK (url LIKE 'http%'),
  upstream_model TEXT    NOT NULL,
  context        INTEGER NOT NULL CHECK (context >= 0),
  on_unknown     TEXT    NOT NULL CHECK (on_unknown = '' OR on_unknown = 'rerun' OR on_unknown = 'ask'),  -- '' is as the price and the address say
  price_input    INTEGER CHECK (price_input  >= 0),  -- micros per million tokens; NULL: nobody said
  price_cached   INTEGER CHECK (price_cached >= 0),
  price_output   INTEGER CHECK (price_output >= 0),
  sealed_key     BLOB,             -- under the key file, bound to name and url; NULL: it needs none
  created_at     INTEGER NOT NULL,
  updated_at     INTEGER NOT NULL,
  removed_at     INTEGER,
  CHECK (removed_at IS NULL OR sealed_key IS NULL),
  CHECK ((price_input IS NULL) = (price_output IS NULL) AND (price_cached IS NULL OR price_input IS NOT NULL))
) STRICT;
CREATE UNIQUE INDEX models_name ON models (name) WHERE removed_at IS NULL;

-- A conversation is created by the first accepted question to it.
CREATE TABLE conversations (
  id            INTEGER PRIMARY KEY AUTOINCREMENT,
  session_id    TEXT    NOT NULL CHECK (length(session_id) BETWEEN 8 AND 64),
  user_id       INTEGER NOT NULL REFERENCES users (id),
  title         TEXT    NOT NULL,              -- the first words, until a person gives it another
  model         TEXT    NOT NULL DEFAULT '',   -- '' is the default model
  system_prompt TEXT    NOT NULL DEFAULT '',
  params        TEXT    NOT NULL DEFAULT '{}',
  pinned        INTEGER NOT NULL DEFAULT 0 CHECK (pinned IN (0, 1)),
  next_seq      INTEGER NOT NULL DEFAULT 1,    -- the next number of a message; only grows
  head_seq      INTEGER NOT NULL DEFAULT 0,    -- the message the next question follows; 0 is none
  created_at    INTEGER NOT NULL,
  updated_at    INTEGER NOT NULL,              -- the last question, or change of a setting: the order of the list
  deleted_at    INTEGER,                       -- may be undone for ten minutes
  purging       INTEGER NOT NULL DEFAULT 0 CHECK (purging IN (0, 1)),  -- past undo: rows are being removed
  archived_at   INTEGER,                       -- out of the list, not gone; the next question brings it back
  named_tx      INTEGER NOT NULL DEFAULT 0 CHECK (named_tx >= 0),  -- the transaction in which a person gave the title; 0: nobody did
  ended_tx      INTEGER NOT NULL DEFAULT 0 CHECK (ended_tx >= 0),  -- the last one that ended a request with an answer, or with a failure that nobody asked for
  seen_tx       INTEGER NOT NULL DEFAULT 0 CHECK (seen_tx >= 0),   -- what ended_tx was when a person last looked; news, where it is less now
  UNIQUE (session_id, user_id),
  CHECK (purging = 0 OR deleted_at IS NOT NULL)
) STRICT;
CREATE INDEX conversations_listed   ON conversations (user_id, pinned, updated_at) WHERE deleted_at IS NULL AND archived_at IS NULL;
CREATE INDEX conversations_archived ON conversations (user_id, pinned, updated_at) WHERE deleted_at IS NULL AND archived_at IS NOT NULL;
CREATE INDEX conversations_deleted  ON conversations (deleted_at) WHERE deleted_at IS NOT NULL;
CREATE UNIQUE INDEX conversations_named ON conversations (named_tx) WHERE named_tx > 0;

-- One row an intent. The key is in this column order because ULIDs are in order
-- of time: a new key lands at the end of the index, so accepting a question costs
-- the same with ten thousand requests in the file and with five million.
--
-- Life (the only edges; a trigger below refuses others):
--   new > pending > generating > acknowledged > committed
--   pending > failed, generating > failed, generating > pending, failed > pending
CREATE TABLE requests (
  id              INTEGER PRIMARY KEY AUTOINCREMENT,
  request_id      TEXT    NOT NULL CHECK (length(request_id) BETWEEN 8 AND 64),
  conversation_id INTEGER NOT NULL,            -- conversations.id; no foreign key, whose check on delete would need an index that is random in time
  user_id         INTEGER NOT NULL REFERENCES users (id),
  kind            TEXT    NOT NULL CHECK (kind = 'message' OR kind = 'edit' OR kind = 'regenerate' OR kind = 'continue'),
  seq             INTEGER NOT NULL,            -- its place in the conversation. message and edit: the number of the question, its answer has seq + 1; others: the number of the answer
  fingerprint     BLOB    NOT NULL CHECK (length(fingerprint) = 80),

  state           TEXT    NOT NULL CHECK (state = 'pending' OR state = 'generating' OR state = 'acknowledged' OR state = 'committed' OR state = 'failed'),
  steps           INTEGER NOT NULL DEFAULT 1,  -- how many transitions it has
  attempt         INTEGER NOT NULL DEFAULT 0,  -- the fencing token: only a claim raises it
  owner           TEXT,                        -- the process life that generates
  lease_until     INTEGER,
  stop_requested_at INTEGER,                   -- a person's stop, durable before it acts
  stop_attempt    INTEGER,                     -- the attempt that stop meant
  retry_at        INTEGER,                     -- pending: not before
  refused         INTEGER NOT NULL DEFAULT 0,  -- refused attempts since the last restart by a person
  crashes         INTEGER NOT NULL DEFAULT 0,  -- re-runs after a death since then

  model           TEXT    NOT NULL,            -- frozen at acceptance, with parameters and price
  params          TEXT    NOT NULL,
  system_prompt   TEXT    NOT NULL,
  price_input     INTEGER NOT NULL CHECK (price_input  >= 0),  -- micros per million tokens
  price_cached    INTEGER NOT NULL CHECK (price_cached >= 0),
  price_output    INTEGER NOT NULL CHECK (price_output >= 0),

  placed          INTEGER NOT NULL DEFAULT 0 CHECK (placed IN (0, 1)),  -- it has its place in the tree of messages
  parent_seq      INTEGER NOT NULL DEFAULT 0,  -- the message its own first message hangs under; 0 is none
  context         TEXT,                        -- frozen by the first claim: the numbers of the messages sent, oldest first. '' where that was elsewhere (an import)
  context_dropped INTEGER NOT NULL DEFAULT 0,  -- messages that did not fit the model's context

  failure_code    TEXT,
  failure_outcome TEXT    CHECK (failure_outcome = 'none' OR failure_outcome = 'definite' OR failure_outcome = 'unknown'),
  failure_retry   TEXT    CHECK (failure_retry = 'auto' OR failure_retry = 'explicit' OR failure_retry = 'never'),
  failure_detail  TEXT,

  accepted_tx     INTEGER NOT NULL,
  created_at      INTEGER NOT NULL,
  updated_at      INTEGER NOT NULL,
  acknowledged_at INTEGER,                     -- the answer is final
  completed_at    INTEGER,                     -- committed or failed

  UNIQUE (request_id, conversation_id, user_id),
  CHECK ((state = 'generating') = (owner IS NOT NULL)),
  CHECK ((owner IS NULL) = (lease_until IS NULL)),
  CHECK ((state IN ('acknowledged', 'committed')) = (acknowledged_at IS NOT NULL)),
  CHECK ((state IN ('committed', 'failed')) = (completed_at IS NOT NULL)),
  CHECK ((state = 'failed') = (failure_code IS NOT NULL)),
  CHECK ((failure_code IS NULL) = (failure_outcome IS NULL) AND (failure_code IS NULL) = (failure_retry IS NULL)),
  CHECK (retry_at IS NULL OR state = 'pending'),
  CHECK (steps > 1 OR state = 'pending'),      -- whatever it becomes, it begins as pending
  CHECK ((stop_requested_at IS NULL) = (stop_attempt IS NULL)),
  CHECK (attempt > 0 OR state IN ('pending', 'failed')),
  CHECK (attempt = 0 OR (placed = 1 AND context IS NOT NULL))
) STRICT;
-- One answer at a time in a conversation: the database's word, not the scheduler's.
CREATE UNIQUE INDEX requests_generating ON requests (conversation_id) WHERE state = 'generating';
-- What a claim has to look at in its conversation: small, however large the file.
CREATE INDEX requests_open ON requests (conversation_id, seq) WHERE (state NOT IN ('committed', 'failed') OR placed = 0);
-- Requests without a question are not found through messages.
CREATE INDEX requests_without_question ON requests (conversation_id, seq) WHERE kind IN ('regenerate', 'continue');

CREATE TRIGGER requests_edges BEFORE UPDATE OF state ON requests
WHEN NOT CASE OLD.state
  WHEN 'pending'      THEN NEW.state = 'failed' OR (NEW.state = 'generating' AND NEW.attempt = OLD.attempt + 1)
  WHEN 'generating'   THEN NEW.state IN ('pending', 'failed') OR NEW.state = 'acknowledged'
  WHEN 'acknowledged' THEN NEW.state = 'committed'
  WHEN 'failed'       THEN NEW.state = 'pending'
  ELSE 0 END
BEGIN SELECT RAISE(ABORT, 'requests: no such edge'); END;

CREATE TRIGGER requests_identity BEFORE UPDATE OF id, request_id, conversation_id, user_id, kind, seq, fingerprint,
  params, system_prompt, accepted_tx, created_at ON requests
BEGIN SELECT RAISE(ABORT, 'requests: what was accepted does not change'); END;

CREATE TRIGGER requests_attempt BEFORE UPDATE OF attempt ON requests
WHEN NEW.attempt <> OLD.attempt + 1 OR NEW.state <> 'generating'
BEGIN SELECT RAISE(ABORT, 'requests: only a claim changes the attempt'); END;

CREATE TRIGGER requests_context BEFORE UPDATE OF context, context_dropped, placed, parent_seq ON requests
WHEN (OLD.context <> '' AND (NEW.context IS NOT OLD.context OR NEW.context_dropped <> OLD.context_dropped))
  OR (OLD.placed = 1 AND (NEW.placed <> 1 OR NEW.parent_seq <> OLD.parent_seq))
BEGIN SELECT RAISE(ABORT, 'requests: the context is frozen, and the place'); END;

CREATE TRIGGER requests_price BEFORE UPDATE OF model, price_input, price_cached, price_output ON requests
WHEN OLD.state <> 'failed' OR NEW.state <> 'pending'
BEGIN SELECT RAISE(ABORT, 'requests: only a restart changes the model or its price'); END;

CREATE TRIGGER requests_no_delete BEFORE DELETE ON requests
WHEN (SELECT purging FROM conversations WHERE id = OLD.conversation_id) IS NOT 1
BEGIN SELECT RAISE(ABORT, 'requests: only a purge deletes'); END;

-- Every change of state, in the transaction that changed it.
CREATE TABLE transitions (
  request_id INTEGER NOT NULL REFERENCES requests (id),
  n          INTEGER NOT NULL CHECK (n >= 1),
  from_state TEXT    NOT NULL,
  to_state   TEXT    NOT NULL,
  attempt    INTEGER NOT NULL,
  actor      TEXT    NOT NULL,  -- user:ID, worker:LIFE, recovery:LIFE, reaper:LIFE
  reason     TEXT    NOT NULL,
  at         INTEGER NOT NULL,
  tx         INTEGER NOT NULL,
  PRIMARY KEY (request_id, n),
  CHECK (CASE from_state
    WHEN 'new'          THEN to_state = 'pending'
    WHEN 'pending'      THEN to_state IN ('generating', 'failed')
    WHEN 'generating'   THEN to_state IN ('pending', 'failed') OR to_state = 'acknowledged'
    WHEN 'acknowledged' THEN to_state = 'committed'
    WHEN 'failed'       THEN to_state = 'pending'
    ELSE 0 END),
  CHECK ((n = 1) = (from_state = 'new'))
) STRICT, WITHOUT ROWID;

CREATE TRIGGER transitions_no_update BEFORE UPDATE ON transitions
BEGIN SELECT RAISE(ABORT, 'transitions are append-only'); END;
CREATE TRIGGER transitions_no_delete BEFORE DELETE ON transitions
WHEN (SELECT c.purging FROM requests r JOIN conversations c ON c.id = r.conversation_id WHERE r.id = OLD.request_id) IS NOT 1
BEGIN SELECT RAISE(ABORT, 'transitions are append-only'); END;

-- Every arrival of an accepted id. What a repeat was answered is written after
-- the answer, in batches.
CREATE TABLE arrivals (
  request_id INTEGER NOT NULL REFERENCES requests (id),
  n          INTEGER NOT NULL,
  at         INTEGER NOT NULL,
  source     TEXT    NOT NULL CHECK (source = 'web' OR source = 'api' OR source = 'form' OR source = 'queue' OR source = 'openai' OR source = 'import'),
  decision   TEXT    NOT NULL CHECK (decision = 'first' OR decision = 'joined' OR decision = 'replayed' OR decision = 'conflict' OR decision = 'expired' OR decision = 'restarted'),
  status     INTEGER,           -- HTTP status it was answered with, once known
  PRIMARY KEY (request_id, n),
  CHECK ((n = 1) = (decision = 'first'))
) STRICT, WITHOUT ROWID;

-- Every call to a model: the row is durable before the first byte leaves. One whose
-- reason is imported was made elsewhere, of which an import told.
CREATE TABLE attempts (
  request_id     INTEGER NOT NULL REFERENCES requests (id),
  n              INTEGER NOT NULL CHECK (n >= 1),  -- the fencing token it ran under
  reason         TEXT    NOT NULL CHECK (reason = 'accepted' OR reason = 'engine_retry' OR reason = 'rerun' OR reason = 'restarted' OR reason = 'explicit' OR reason = 'imported'),  -- why it was allowed
  owner          TEXT    NOT NULL,
  model          TEXT    NOT NULL,
  upstream_id    TEXT,                             -- the provider's name for the run
  started_at     INTEGER NOT NULL,
  dispatched_at  INTEGER NOT NULL,
  first_token_at INTEGER,
  ended_at       INTEGER,
  outcome        TEXT CHECK (outcome = 'ok' OR outcome = 'none' OR outcome = 'definite' OR outcome = 'unknown' OR outcome = 'stopped' OR outcome = 'fenced'),
  code           TEXT,                             -- of a failure
  input_tokens   INTEGER,
  cached_tokens  INTEGER,
  output_tokens  INTEGER,
  estimated      INTEGER CHECK (estimated IN (0, 1)),
  tx             INTEGER NOT NULL,
  PRIMARY KEY (request_id, n),
  CHECK ((ended_at IS NULL) = (outcome IS NULL))
) STRICT, WITHOUT ROWID;

CREATE TRIGGER attempts_closed BEFORE UPDATE ON attempts
WHEN OLD.outcome IS NOT NULL
BEGIN SELECT RAISE(ABORT, 'attempts: a closed attempt does not change'); END;
CREATE TRIGGER attempts_no_delete BEFORE DELETE ON attempts
WHEN (SELECT c.purging FROM requests r JOIN conversations c ON c.id = r.conversation_id WHERE r.id = OLD.request_id) IS NOT 1
BEGIN SELECT RAISE(ABORT, 'attempts are not deleted'); END;

-- Text of an answer while it streams, a piece a second. What a failed attempt had
-- got stays here and is shown; a finished answer is in its snapshot instead.
CREATE TABLE partials (
  request_id INTEGER NOT NULL REFERENCES requests (id),
  attempt    INTEGER NOT NULL,
  n          INTEGER NOT NULL,
  text       TEXT    NOT NULL,
  reasoning  TEXT    NOT NULL,
  at         INTEGER NOT NULL,
  PRIMARY KEY (request_id, attempt, n)
) STRICT, WITHOUT ROWID;

-- The answer as the model gave it: one a request, immutable.
CREATE TABLE snapshots (
  request_id    INTEGER PRIMARY KEY REFERENCES requests (id),
  attempt       INTEGER NOT NULL,
  model         TEXT    NOT NULL,
  upstream_id   TEXT    NOT NULL,
  content       TEXT    NOT NULL,
  reasoning     TEXT    NOT NULL,
  tool_calls    TEXT    NOT NULL,  -- JSON array, as the model gave them
  finish        TEXT    NOT NULL CHECK (finish = 'stop' OR finish = 'length' OR finish = 'stopped' OR finish = 'filtered' OR finish = 'tool'),
  input_tokens  INTEGER NOT NULL CHECK (input_tokens >= 0),
  cached_tokens INTEGER NOT NULL CHECK (cached_tokens BETWEEN 0 AND input_tokens),
  output_tokens INTEGER NOT NULL CHECK (output_tokens >= 0),
  estimated     INTEGER NOT NULL CHECK (estimated IN (0, 1)),
  sha256        BLOB    NOT NULL CHECK (length(sha256) = 32),  -- of content, a zero byte, reasoning, a zero byte, tool_calls
  created_at    INTEGER NOT NULL,
  tx            INTEGER NOT NULL,
  thought_ms    INTEGER NOT NULL DEFAULT 0 CHECK (thought_ms >= 0), -- from the dispatch to the first word after reasoning; 0 without reasoning, or not known
  declarations_id INTEGER REFERENCES declarations (id)          -- what was decided from; NULL where the model asked for nothing
) STRICT;

CREATE TRIGGER snapshots_no_update BEFORE UPDATE ON snapshots
BEGIN SELECT RAISE(ABORT, 'snapshots are immutable'); END;
CREATE TRIGGER snapshots_no_delete BEFORE DELETE ON snapshots
WHEN (SELECT c.purging FROM requests r JOIN conversations c ON c.id = r.conversation_id WHERE r.id = OLD.request_id) IS NOT 1
BEGIN SELECT RAISE(ABORT, 'snapshots are immutable'); END;

-- Turns of a conversation. A question carries its text, an answer is the snapshot
-- of its request and stores no second copy. Where a message hangs in the tree
-- follows from its request: a question under parent_seq, an answer under its own
-- question or, when the request wrote none, under parent_seq.
CREATE TABLE messages (
  conversation_id INTEGER NOT NULL REFERENCES conversations (id),
  seq             INTEGER NOT NULL CHECK (seq >= 1),
  request_id      INTEGER NOT NULL,
  role            TEXT    NOT NULL CHECK (role IN ('user', 'assistant')),
  content         TEXT,
  tokens          INTEGER NOT NULL,  -- estimated; decides what fits a model's context
  created_at      INTEGER NOT NULL,
  tx              INTEGER NOT NULL,
  PRIMARY KEY (conversation_id, seq),
  CHECK ((role = 'user') = (content IS NOT NULL))
) STRICT, WITHOUT ROWID;
-- A transaction writes one message at the most: its number finds the message again.
CREATE UNIQUE INDEX messages_tx ON messages (tx);

CREATE TRIGGER messages_no_update BEFORE UPDATE ON messages
BEGIN SELECT RAISE(ABORT, 'messages are append-only'); END;
CREATE TRIGGER messages_no_delete BEFORE DELETE ON messages
WHEN (SELECT purging FROM conversations WHERE id = OLD.conversation_id) IS NOT 1
BEGIN SELECT RAISE(ABORT, 'messages are append-only'); END;

-- What files hold: once, whoever uploaded it. What an image is was read from its
-- bytes; whatever is none is text.
CREATE TABLE contents (
  sha256     BLOB    NOT NULL PRIMARY KEY CHECK (length(sha256) = 32),
  media_type TEXT    NOT NULL CHECK (media_type = 'text/plain' OR media_type = 'image/png' OR media_type = 'image/jpeg' OR media_type = 'image/gif' OR media_type = 'image/webp'),
  width      INTEGER NOT NULL CHECK (width  >= 0),  -- of an image; 0 of a text
  height     INTEGER NOT NULL CHECK (height >= 0),
  tokens     INTEGER NOT NULL,                      -- estimated
  content    BLOB    NOT NULL CHECK (length(content) > 0),
  CHECK ((media_type = 'text/plain') = (width = 0) AND (width = 0) = (height = 0))
) STRICT;

CREATE TRIGGER contents_no_update BEFORE UPDATE ON contents
BEGIN SELECT RAISE(ABORT, 'contents are immutable'); END;

-- Who uploaded what, under which name: the id follows from these three. A user can
-- name no other upload. One that no question carries goes after a while, and a
-- content with the last upload of it.
CREATE TABLE attachments (
  id          TEXT    NOT NULL PRIMARY KEY CHECK (length(id) = 32),
  user_id     INTEGER NOT NULL REFERENCES users (id),
  sha256      BLOB    NOT NULL REFERENCES contents (sha256),
  name        TEXT    NOT NULL CHECK (name <> ''),
  uploaded_at INTEGER NOT NULL            -- the last time
) STRICT;
CREATE INDEX attachments_content  ON attachments (sha256);
CREATE INDEX attachments_uploaded ON attachments (uploaded_at);

CREATE TRIGGER attachments_identity BEFORE UPDATE OF id, user_id, sha256, name ON attachments
BEGIN SELECT RAISE(ABORT, 'attachments: only the time changes'); END;

-- What a question carries, in order, written with its acceptance.
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

-- Money. Outlives the conversation, without text; request_id stays unique for
-- ever (requests.id is never given out twice).
CREATE TABLE ledger (
  id            INTEGER PRIMARY KEY,
  request_id    INTEGER NOT NULL,
  user_id       INTEGER NOT NULL REFERENCES users (id),
  kind          TEXT    NOT NULL CHECK (kind = 'charge' OR kind = 'adjustment' OR kind = 'waste' OR kind = 'refund'),
  attempt       INTEGER NOT NULL,
  model         TEXT    NOT NULL,
  input_tokens  INTEGER NOT NULL,
  cached_tokens INTEGER NOT NULL,
  output_tokens INTEGER NOT NULL,
  micros        INTEGER NOT NULL,
  estimated     INTEGER NOT NULL CHECK (estimated IN (0, 1)),
  at            INTEGER NOT NULL,
  tx            INTEGER NOT NULL,
  CHECK (kind = 'adjustment' OR (kind = 'refund' AND micros <= 0) OR (kind IN ('charge', 'waste') AND micros >= 0))
) STRICT;
CREATE UNIQUE INDEX ledger_charge ON ledger (request_id) WHERE kind = 'charge';
CREATE UNIQUE INDEX ledger_waste  ON ledger (request_id, attempt) WHERE kind = 'waste';
CREATE INDEX ledger_other ON ledger (request_id) WHERE kind IN ('adjustment', 'refund');

CREATE TRIGGER ledger_no_update BEFORE UPDATE ON ledger
BEGIN SELECT RAISE(ABORT, 'ledger is append-only'); END;
CREATE TRIGGER ledger_no_delete BEFORE DELETE ON ledger
BEGIN SELECT RAISE(ABORT, 'ledger is append-only'); END;

-- Nothing takes a charge away. Where something does all the same, the running counts know.
CREATE TRIGGER ledger_uncounted AFTER DELETE ON ledger WHEN OLD.kind = 'charge'
BEGIN UPDATE instance SET charges = charges - 1, charged_micros = charged_micros - OLD.micros WHERE one = 1; END;

-- The dedupe mark: this key has its answer. Lives as long as the conversation.
CREATE TABLE processed (
  request_id      TEXT    NOT NULL,
  conversation_id INTEGER NOT NULL,
  user_id         INTEGER NOT NULL,
  request         INTEGER NOT NULL,  -- requests.id
  fingerprint     BLOB    NOT NULL,
  at              INTEGER NOT NULL,
  tx              INTEGER NOT NULL,
  PRIMARY KEY (request_id, conversation_id, user_id)
) STRICT, WITHOUT ROWID;

-- What is left of a purged conversation: sixteen bytes an id, so that none of
-- its ids ever runs again. The tombstone of a ULID goes after the same time as
-- evidence does, and then purge_horizon stands in for it.
CREATE TABLE tombstones (
  digest    BLOB    NOT NULL PRIMARY KEY CHECK (length(digest) = 16),
  ulid_at   INTEGER,           -- the time inside the id; NULL when it has none, and then the row stays
  purged_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX tombstones_old ON tombstones (purged_at) WHERE ulid_at IS NOT NULL;

-- Effects (contract, section 5). An answer may ask for actions. What is decided about
-- each is a row of decisions, what a person said of one that asks a row of verdicts;
-- both are only ever inserted. What leaves for somebody else is a row of outbox, written
-- with the decision or the verdict that allows it: it has a stable id and fixed bytes for
-- ever, and a state. Each time it is sent is a row of deliveries, each time its receiver
-- calls back a row of callbacks. A request with effects is committed when all are settled.

-- The actions that models could ask for when an answer was made, as they were declared:
-- each set stored once. A decision follows from this and the snapshot alone.
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

-- One row a tool call, by its position, in the transaction that made the answer final.
CREATE TABLE decisions (
  request_id INTEGER NOT NULL REFERENCES requests (id),
  position   INTEGER NOT NULL CHECK (position >= 0),
  webhook_id TEXT    NOT NULL UNIQUE,              -- names the decision and its effect, here and elsewhere
  action     TEXT    NOT NULL,
  arguments  TEXT    NOT NULL,                     -- a JSON object as the model gave it; '' when it gave none
  digest     BLOB    NOT NULL CHECK (length(digest) = 32),  -- of action, a zero byte, arguments: what a person is shown
  verdict    TEXT    NOT NULL CHECK (verdict = 'auto' OR verdict = 'ask' OR verdict = 'never' OR verdict = 'invalid'),
  code       TEXT    NOT NULL,                     -- why not; '' for auto and ask
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

-- The end of asking: what a person said, or that nobody needs to say any more.
CREATE TABLE verdicts (
  request_id INTEGER NOT NULL,
  position   INTEGER NOT NULL,
  verdict    TEXT    NOT NULL CHECK (verdict = 'approve' OR verdict = 'reject'),
  digest     BLOB    NOT NULL CHECK (length(digest) = 32),  -- of what was shown
  actor      TEXT    NOT NULL,
  reason     TEXT    NOT NULL,                     -- in the person's words; 'superseded' or 'deleted' where it was none's
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

-- What leaves. Life (the only edges; a trigger below refuses others):
--   pending     waits for its turn, or for the next try
--   delivering  a worker of the relay is sending it
--   awaiting    delivered; the receiver is to call back
--   dead        given up: a person decides
--   timed_out   nobody called back in time: a person decides
--   refused     called back with no, and nothing compensates: a person decides
--   compensating  its compensation, a row of its own, is on its way
--   delivered, abandoned, compensated   settled, and nothing follows
CREATE TABLE outbox (
  id          INTEGER PRIMARY KEY AUTOINCREMENT,
  request_id  INTEGER NOT NULL REFERENCES requests (id),
  kind        TEXT    NOT NULL CHECK (kind = 'effect' OR kind = 'compensation' OR kind = 'charge'),
  position    INTEGER NOT NULL CHECK (position >= 0),  -- of the decision; 0 of a charge
  webhook_id  TEXT    NOT NULL UNIQUE,             -- an effect's is its decision's
  destination TEXT    NOT NULL,                    -- where to, by name: the address is in the configuration
  payload     TEXT    NOT NULL,
  awaits      INTEGER NOT NULL CHECK (awaits IN (0, 1)),  -- a callback settles it, not the delivery
  callback_ms INTEGER NOT NULL CHECK (callback_ms >= 0),  -- how long it waits for that
  compensates INTEGER NOT NULL CHECK (compensates IN (0, 1)),  -- a compensation is declared

  state       TEXT    NOT NULL CHECK (CASE state WHEN 'pending' THEN 1 WHEN 'delivering' THEN 1 WHEN 'awaiting' THEN 1 WHEN 'dead' THEN 1
    WHEN 'timed_out' THEN 1 WHEN 'refused' THEN 1 WHEN 'compensating' THEN 1 WHEN 'delivered' THEN 1 WHEN 'abandoned' THEN 1 WHEN 'compensated' THEN 1 ELSE 0 END),
  steps       INTEGER NOT NULL DEFAULT 0,          -- how often its state changed: the compare of a compare-and-set
  attempt     INTEGER NOT NULL DEFAULT 0,          -- the fencing token: only a delivery raises it
  tries       INTEGER NOT NULL DEFAULT 0,          -- deliveries since it was written, or a person sent it again
  owner       TEXT,                                -- the process life that delivers
  lease_until INTEGER,
  next_at     INTEGER,                             -- pending: not before
  due_at      INTEGER,                             -- awaiting: until
  first_at    INTEGER,                             -- the first delivery
  code        TEXT    NOT NULL DEFAULT '',         -- of the last trouble
  created_at  INTEGER NOT NULL,
  updated_at  INTEGER NOT NULL,
  settled_at  INTEGER,
  tx          INTEGER NOT NULL,                    -- that wrote it
  doubted_at  INTEGER,                             -- what a restore lost may have sent it, from then on; NULL: nothing is lost
  sha256      BLOB    CHECK (length(sha256) = 32), -- of webhook_id, a zero byte, destination, a zero byte, payload; what has none is not sent

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

CREATE TRIGGER outbox_identity BEFORE UPDATE OF id, request_id, kind, position, webhook_id, destination, payload, awaits, callback_ms, compensates, created_at, tx, sha256 ON outbox
BEGIN SELECT RAISE(ABORT, 'outbox: what leaves does not change'); END;

CREATE TRIGGER outbox_attempt BEFORE UPDATE OF attempt ON outbox
WHEN NEW.attempt <> OLD.attempt + 1 OR NEW.state <> 'delivering'
BEGIN SELECT RAISE(ABORT, 'outbox: only a delivery raises the attempt'); END;

CREATE TRIGGER outbox_no_delete BEFORE DELETE ON outbox
WHEN (SELECT c.purging FROM requests r JOIN conversations c ON c.id = r.conversation_id WHERE r.id = OLD.request_id) IS NOT 1
BEGIN SELECT RAISE(ABORT, 'outbox: only a purge deletes'); END;

-- Every time something was sent: the row is durable before the first byte leaves.
CREATE TABLE deliveries (
  outbox_id  INTEGER NOT NULL REFERENCES outbox (id),
  n          INTEGER NOT NULL CHECK (n >= 1),      -- the fencing token it ran under
  reason     TEXT    NOT NULL CHECK (reason = 'first' OR reason = 'retry' OR reason = 'redrive'),
  owner      TEXT    NOT NULL,
  target     TEXT    NOT NULL,                     -- the address, without secrets
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

-- What receivers said of effects, verified. The first verdict wins.
CREATE TABLE callbacks (
  outbox_id  INTEGER NOT NULL REFERENCES outbox (id),
  n          INTEGER NOT NULL CHECK (n >= 1),
  message_id TEXT    NOT NULL,                     -- the sender's own
  ok         INTEGER NOT NULL CHECK (ok IN (0, 1)),
  reason     TEXT    NOT NULL,
  decision   TEXT    NOT NULL CHECK (decision = 'first' OR decision = 'duplicate' OR decision = 'contradiction' OR decision = 'late'),
  times      INTEGER NOT NULL DEFAULT 1,           -- it came, under this id
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

-- Destinations that said they want no more (410), until a person sends to one again.
CREATE TABLE disabled_destinations (
  name TEXT    NOT NULL PRIMARY KEY,
  at   INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- What people did to what is above, and to the machine, by hand.
CREATE TABLE audit (
  id     INTEGER PRIMARY KEY,
  at     INTEGER NOT NULL,
  actor  TEXT    NOT NULL,
  action TEXT    NOT NULL,                         -- redrive, abandon, compensate, refund, adjustment, stop, release, retry, reveal, backup
  object TEXT    NOT NULL,                         -- a webhook id, a request, or "database"
  reason TEXT    NOT NULL,
  key    TEXT,                                     -- of whoever may ask twice for the same; NULL where that cannot do it twice
  tx     INTEGER NOT NULL
) STRICT;
CREATE UNIQUE INDEX audit_key ON audit (key) WHERE key IS NOT NULL;
CREATE INDEX audit_object ON audit (object);

CREATE TRIGGER audit_no_update BEFORE UPDATE ON audit
BEGIN SELECT RAISE(ABORT, 'audit is append-only'); END;
CREATE TRIGGER audit_no_delete BEFORE DELETE ON audit
BEGIN SELECT RAISE(ABORT, 'audit is append-only'); END;

-- Times that a backup took the place of a file that had gone on. What was accepted in
-- between is lost, and may have been answered: an unknown id of that time is run only
-- when a person says so (contract, section 7).
CREATE TABLE restores (
  epoch       INTEGER PRIMARY KEY CHECK (epoch > 1),  -- of the file since
  backup_at   INTEGER NOT NULL,                    -- what was stored until then is there
  restored_at INTEGER NOT NULL,
  settled_at  INTEGER,                             -- what the backup had unfinished is decided; NULL: not yet
  tx          INTEGER NOT NULL
) STRICT;

CREATE TRIGGER restores_no_update BEFORE UPDATE ON restores
WHEN OLD.settled_at IS NOT NULL OR NEW.epoch <> OLD.epoch OR NEW.backup_at <> OLD.backup_at OR NEW.restored_at <> OLD.restored_at OR NEW.tx <> OLD.tx
BEGIN SELECT RAISE(ABORT, 'restores are append-only'); END;
CREATE TRIGGER restores_no_delete BEFORE DELETE ON restores
BEGIN SELECT RAISE(ABORT, 'restores are append-only'); END;

-- What search looks things up in. A row a message and a title that a person gave,
-- with the number of the transaction that wrote it as rowid, so that the newest come
-- last. It holds tokens only (package search says which), no text and no positions:
-- what it finds is looked at again. It is filled behind the writers' backs, up to
-- instance.indexed_tx. The tokenizer takes everything but ASCII signs and spaces for
-- letters, and there are none of those in it.
CREATE VIRTUAL TABLE search USING fts5 (tokens, content = '', contentless_delete = 1, detail = none, tokenize = 'ascii');
