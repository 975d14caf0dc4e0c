package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"

	"semel/chat"
	"semel/db"
)

// A semelStore is Semel's own: its exported methods, as the engine calls them. A
// claim here is two transactions, the acceptance and the worker's claim.
type semelStore struct{ d *db.DB }

// openSemel creates a database in dir with the schema of the module this stands in.
func openSemel(dir string) (store, error) {
	schema, err := os.ReadFile("../../schema.sql")
	if err != nil {
		return nil, err
	}
	d, err := db.Open(db.Options{Path: filepath.Join(dir, "semel.db"), Schema: string(schema)})
	if err != nil {
		return nil, err
	}
	return semelStore{d}, nil
}

func (s semelStore) claim(ctx context.Context, q question) (func(context.Context, answer) error, error) {
	r, err := s.d.Accept(ctx, db.Submission{
		Key: q.key, Kind: chat.KindMessage, Fingerprint: q.fingerprint, Content: q.content, Title: q.content,
		Default: model, Source: chat.SourceAPI, Price: func(string) (chat.Price, bool) { return price, true },
	})
	if errors.Is(err, db.ErrExists) {
		return nil, errTaken
	}
	if err != nil {
		return nil, err
	}
	if r, _, err = s.d.Claim(ctx, db.Claim{Request: r, Owner: owner, Lease: lease}); err != nil {
		return nil, err
	}
	return func(ctx context.Context, a answer) error {
		_, err := s.d.Finish(ctx, r, db.Answer{
			Content: a.content, ToolCalls: "[]", Finish: chat.FinishStop, UpstreamID: "up", Outcome: chat.OutcomeOK,
			Usage: a.usage, Actor: actor, Reason: "answered",
		})
		if errors.Is(err, db.ErrFenced) {
			return errFenced
		}
		return err
	}, nil
}

// replay does what the engine and the handler do for a duplicate: LookUp, the
// compare of the fingerprint, and the record that is shown.
func (s semelStore) replay(ctx context.Context, k chat.Key, fp chat.Fingerprint) (string, error) {
	r, err := s.d.LookUp(ctx, k)
	if errors.Is(err, db.ErrNotFound) || (err == nil && !(r.State.Answered() && fp.Equal(r.Fingerprint))) {
		return "", errNoAnswer
	}
	if err != nil {
		return "", err
	}
	rec, err := s.d.RecordOf(ctx, r.ID)
	return rec.Content, err
}

func (semelStore) server() int { return 0 }

func (s semelStore) close() error { return s.d.Close() }
