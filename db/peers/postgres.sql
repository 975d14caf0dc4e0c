-- What PostgreSQL keeps: the same facts as Semel's schema, with keys and without
-- triggers, checks and foreign keys, which would only cost it.
SET default_toast_compression = lz4;

CREATE TABLE requests (
  id           bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  request_id   text   NOT NULL,
  session_id   text   NOT NULL,
  user_id      bigint NOT NULL,
  fingerprint  bytea  NOT NULL,
  content      text   NOT NULL,
  state        text   NOT NULL,
  attempt      bigint NOT NULL,
  owner        text,
  lease_until  bigint,
  model        text   NOT NULL,
  price_input  bigint NOT NULL,
  price_cached bigint NOT NULL,
  price_output bigint NOT NULL,
  created_at   bigint NOT NULL,
  completed_at bigint,
  UNIQUE (request_id, session_id, user_id)
) WITH (fillfactor = 60); -- its one update finds room on the page and touches no index

CREATE TABLE transitions (
  request    bigint NOT NULL,
  n          bigint NOT NULL,
  from_state text   NOT NULL,
  to_state   text   NOT NULL,
  attempt    bigint NOT NULL,
  actor      text   NOT NULL,
  reason     text   NOT NULL,
  at         bigint NOT NULL,
  PRIMARY KEY (request, n)
);

CREATE TABLE snapshots (
  request       bigint PRIMARY KEY,
  attempt       bigint NOT NULL,
  model         text   NOT NULL,
  content       text   NOT NULL,
  finish        text   NOT NULL,
  input_tokens  bigint NOT NULL,
  output_tokens bigint NOT NULL,
  created_at    bigint NOT NULL
);

CREATE TABLE messages (
  id         bigint GENERATED ALWAYS AS IDENTITY,
  session_id text   NOT NULL,
  request    bigint NOT NULL,
  role       text   NOT NULL,
  created_at bigint NOT NULL,
  PRIMARY KEY (session_id, id)
);

CREATE TABLE ledger (
  request       bigint PRIMARY KEY, -- one charge each
  user_id       bigint NOT NULL,
  attempt       bigint NOT NULL,
  model         text   NOT NULL,
  input_tokens  bigint NOT NULL,
  output_tokens bigint NOT NULL,
  micros        bigint NOT NULL,
  at            bigint NOT NULL
);

CREATE TABLE processed (
  request_id  text   NOT NULL,
  session_id  text   NOT NULL,
  user_id     bigint NOT NULL,
  request     bigint NOT NULL,
  fingerprint bytea  NOT NULL,
  at          bigint NOT NULL,
  PRIMARY KEY (request_id, session_id, user_id)
);
