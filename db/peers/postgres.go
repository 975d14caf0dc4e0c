package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"semel/chat"
)

// A postgresStore does the work in two transactions, each one prepared statement
// and so one trip to the server.
type postgresStore struct {
	pool *pgxpool.Pool
	pid  int
}

//go:embed postgres.sql
var postgresSchema string

// createPostgres makes the tables anew, and sees to it that a commit is on disk
// when the server says so.
func createPostgres(ctx context.Context, url string) (version string, err error) {
	c, err := pgx.Connect(ctx, url)
	if err != nil {
		return "", err
	}
	defer func() { _ = c.Close(ctx) }()
	for _, name := range []string{"fsync", "synchronous_commit", "full_page_writes"} {
		var got string
		if err := c.QueryRow(ctx, "SHOW "+name).Scan(&got); err != nil {
			return "", err
		}
		if got != "on" {
			return "", fmt.Errorf("PostgreSQL: %s is %q, not on", name, got)
		}
	}
	const drop = `DROP TABLE IF EXISTS requests, transitions, snapshots, messages, ledger, processed;`
	if _, err := c.Exec(ctx, drop+postgresSchema); err != nil {
		return "", err
	}
	return version, c.QueryRow(ctx, "SHOW server_version").Scan(&version)
}

// openPostgres connects to a server that createPostgres has seen.
func openPostgres(ctx context.Context, url string, l link) (_ store, err error) {
	o, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, err
	}
	o.MaxConns, o.MinConns = int32(l.connections), int32(l.connections)
	pool, err := pgxpool.NewWithConfig(ctx, o)
	if err != nil {
		return nil, err
	}
	s := postgresStore{pool: pool}
	var backend int
	if err = pool.QueryRow(ctx, "SELECT pg_backend_pid()").Scan(&backend); err == nil {
		s.pid, err = parent(backend)
	}
	if err != nil {
		pool.Close()
		return nil, err
	}
	return s, nil
}

func (s postgresStore) claim(ctx context.Context, q question) (func(context.Context, answer) error, error) {
	now := time.Now()
	var id int64
	err := s.pool.QueryRow(ctx, sqlClaim, q.key.RequestID, q.key.SessionID, q.key.UserID, []byte(q.fingerprint), q.content,
		owner, now.Add(lease).UnixMilli(), model, price.Input, price.Cached, price.Output, now.UnixMilli(), actor).Scan(&id)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, errTaken
	}
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, a answer) error {
		tag, err := s.pool.Exec(ctx, sqlComplete, id, int64(1), owner, time.Now().UnixMilli(), actor, a.content,
			a.usage.InputTokens, a.usage.OutputTokens, price.Cost(a.usage))
		if err == nil && tag.RowsAffected() != 1 {
			err = errFenced
		}
		return err
	}, nil
}

func (s postgresStore) replay(ctx context.Context, k chat.Key, fp chat.Fingerprint) (string, error) {
	var stored []byte
	var content string
	err := s.pool.QueryRow(ctx, sqlReplay, k.RequestID, k.SessionID, k.UserID).Scan(&stored, &content)
	if errors.Is(err, pgx.ErrNoRows) || (err == nil && !fp.Equal(chat.Fingerprint(stored))) {
		return "", errNoAnswer
	}
	return content, err
}

func (s postgresStore) server() int { return s.pid }

func (s postgresStore) close() error {
	s.pool.Close()
	return nil
}

const (
	sqlClaim = `WITH r AS (
			INSERT INTO requests (request_id, session_id, user_id, fingerprint, content, state, attempt, owner, lease_until,
				model, price_input, price_cached, price_output, created_at)
			VALUES ($1, $2, $3, $4, $5, 'generating', 1, $6, $7, $8, $9, $10, $11, $12)
			ON CONFLICT DO NOTHING RETURNING id)
		INSERT INTO transitions SELECT id, 1, 'new', 'generating', 1, $13, 'claimed', $12 FROM r RETURNING request`

	sqlComplete = `WITH r AS (
			UPDATE requests SET state = 'committed', owner = NULL, lease_until = NULL, completed_at = $4
			WHERE id = $1 AND state = 'generating' AND attempt = $2 AND owner = $3 RETURNING *),
		t AS (INSERT INTO transitions SELECT id, 2, 'generating', 'committed', attempt, $5, 'answered', $4 FROM r),
		s AS (INSERT INTO snapshots SELECT id, attempt, model, $6, 'stop', $7, $8, $4 FROM r),
		m AS (INSERT INTO messages (session_id, request, role, created_at) SELECT session_id, id, 'assistant', $4 FROM r),
		l AS (INSERT INTO ledger SELECT id, user_id, attempt, model, $7, $8, $9, $4 FROM r)
		INSERT INTO processed SELECT request_id, session_id, user_id, id, fingerprint, $4 FROM r`

	sqlReplay = `SELECT r.fingerprint, s.content FROM requests r JOIN snapshots s ON s.request = r.id
		WHERE r.request_id = $1 AND r.session_id = $2 AND r.user_id = $3`
)
