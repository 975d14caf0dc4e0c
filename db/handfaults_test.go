package db_test

import (
	"fmt"

	"semel/chat"
	"semel/db"
)

var byHand = db.Deed{Actor: "user:1", Reason: "because", Key: "key-0001"}

var handWrites = []write{
	{
		name:  "StopByHand of one that waits",
		setup: setupPending,
		call: func(d *db.DB, r chat.Request) (any, error) {
			return d.StopByHand(bg, r, chat.Failure{Code: "stopped", Outcome: chat.OutcomeNone, Retry: chat.RetryExplicit}, byHand)
		},
		again:  db.ErrDone,
		lookup: inState(chat.StateFailed, 0),
	},
	{
		name:  "StopByHand of one that is answered",
		setup: setupGenerating,
		call: func(d *db.DB, r chat.Request) (any, error) {
			return d.StopByHand(bg, r, chat.Failure{}, byHand)
		},
		again: db.ErrDone,
		lookup: func(d *db.DB, r chat.Request) error {
			n, err := d.Load(bg, r.ID)
			if err == nil && (!n.StopRequested || n.StopAttempt != 1) {
				err = fmt.Errorf("the stop is not stored: %+v", n)
			}
			return err
		},
	},
	{
		name:  "Restart by hand",
		setup: setupFailed,
		call: func(d *db.DB, r chat.Request) (any, error) {
			return d.Restart(bg, r, db.Restart{Reason: db.ReasonExplicit, Actor: "user:1", Deed: &byHand})
		},
		again:  db.ErrFenced,
		lookup: inState(chat.StatePending, 1),
	},
	{
		name:  "Release",
		setup: setupGenerating,
		call: func(d *db.DB, r chat.Request) (any, error) {
			return d.Release(bg, r.ID, 1, byHand)
		},
		lookup: func(d *db.DB, r chat.Request) error {
			rc, err := d.Receipt(bg, r.Key)
			if err == nil && (len(rc.Deeds) != 1 || rc.Deeds[0].Action != "release") {
				err = fmt.Errorf("what was done by hand is %+v", rc.Deeds)
			}
			return err
		},
	},
	{
		name:  "WriteDown",
		setup: setupGenerating,
		call: func(d *db.DB, r chat.Request) (any, error) {
			return nil, d.WriteDown(bg, "backup", byHand)
		},
		again: db.ErrDone,
		lookup: func(d *db.DB, r chat.Request) error {
			list, err := d.Audit(bg, db.AuditFilter{Action: "backup", Limit: 9})
			if err == nil && (len(list) != 1 || list[0].Object != "database") {
				err = fmt.Errorf("what was done by hand is %+v", list)
			}
			return err
		},
	},
	{
		name:  "Reveal",
		setup: setupGenerating,
		call: func(d *db.DB, r chat.Request) (any, error) {
			return d.Reveal(bg, r.ID, byHand)
		},
		again: db.ErrDone,
		lookup: func(d *db.DB, r chat.Request) error {
			rc, err := d.Receipt(bg, r.Key)
			if err == nil && (len(rc.Deeds) != 1 || rc.Deeds[0].Action != "reveal") {
				err = fmt.Errorf("what was done by hand is %+v", rc.Deeds)
			}
			return err
		},
	},
}
