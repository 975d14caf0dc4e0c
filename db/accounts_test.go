package db_test

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"semel/chat"
	"semel/db"
	"semel/db/dbtest"
)

const (
	aHash   = "$argon2id$v=19$m=19456,t=2,p=1$c2FsdA$aGFzaA"
	newHash = "$argon2id$v=19$m=19456,t=2,p=1$c2FsdA$bmV3"
	idle    = 12 * time.Hour
)

func digest(token string) []byte {
	d := sha256.Sum256([]byte(token))
	return d[:]
}

func addAccount(t testing.TB, d *db.DB, name string, role chat.Role) int64 {
	t.Helper()
	id, err := d.AddAccount(bg, db.NewAccount{Name: name, Role: role, Password: aHash, Actor: "user:1"})
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func signIn(t testing.TB, d *db.DB, user int64, token string) {
	t.Helper()
	if err := d.StartLogin(bg, db.NewLogin{Digest: digest(token), UserID: user, Password: aHash, Agent: "a browser", Lasts: 7 * 24 * time.Hour}); err != nil {
		t.Fatal(err)
	}
}

// fillAccounts lets an admin, an operator and a member in, and one who is disabled.
func fillAccounts(t testing.TB, d *db.DB) {
	t.Helper()
	ada := addAccount(t, d, "ada", chat.RoleAdmin)
	bob := addAccount(t, d, "bob", chat.RoleOperator)
	gone := addAccount(t, d, "gone", chat.RoleMember)
	signIn(t, d, ada, "token of ada")
	signIn(t, d, bob, "token of bob")
	signIn(t, d, gone, "token of gone")
	for i, k := range []db.Key{{UserID: ada, Name: "script", Scope: chat.ScopeChat}, {UserID: bob, Name: "metrics", Scope: chat.ScopeOps}, {UserID: gone, Name: "old", Scope: chat.ScopeChat}} {
		k.Digest = digest(k.Name)
		k, err := d.AddKey(bg, k, "user:1")
		if err == nil && i == 1 {
			err = d.RevokeKey(bg, 0, k.ID, "user:1")
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := d.Disable(bg, gone, "user:1"); err != nil {
		t.Fatal(err)
	}
	if wait, err := d.CountTry(bg, aTry); err != nil || wait != 0 {
		t.Fatal(wait, err)
	}
	dbtest.Check(t, d)
}

var aTry = db.Guess{Digest: digest("ada from here"), Every: time.Minute, Burst: 3}

func setupAccounts(t *testing.T, d *db.DB) chat.Request {
	r := setupFailed(t, d)
	fillAccounts(t, d)
	return r
}

var accountWrites = []write{
	{
		name:  "AddAccount the first",
		setup: setupFailed,
		call: func(d *db.DB, _ chat.Request) (any, error) {
			return d.AddAccount(bg, db.NewAccount{Name: "ada", Role: chat.RoleAdmin, Password: aHash, Actor: "setup", First: true})
		},
		again: db.ErrNotNow,
	},
	{
		name:  "AddAccount another",
		setup: setupAccounts,
		call: func(d *db.DB, _ chat.Request) (any, error) {
			return d.AddAccount(bg, db.NewAccount{Name: "eve", Role: chat.RoleMember, Password: aHash, Actor: "user:1"})
		},
		again: db.ErrAccountName,
	},
	{
		name:  "SetPassword",
		setup: setupAccounts,
		call:  func(d *db.DB, _ chat.Request) (any, error) { return nil, d.SetPassword(bg, 1, newHash, "user:1") },
	},
	{
		name:  "SetRole",
		setup: setupAccounts,
		call:  func(d *db.DB, _ chat.Request) (any, error) { return nil, d.SetRole(bg, 2, chat.RoleMember, "user:1") },
	},
	{
		name:  "Disable",
		setup: setupAccounts,
		call:  func(d *db.DB, _ chat.Request) (any, error) { return nil, d.Disable(bg, 2, "user:1") },
	},
	{
		name:  "Enable",
		setup: setupAccounts,
		call:  func(d *db.DB, _ chat.Request) (any, error) { return nil, d.Enable(bg, 3, "user:1") },
	},
	{
		name:  "StartLogin",
		setup: setupAccounts,
		call: func(d *db.DB, _ chat.Request) (any, error) {
			return nil, d.StartLogin(bg, db.NewLogin{Digest: digest("new"), Replaces: digest("token of ada"), UserID: 1, Password: aHash, Agent: "x", Lasts: time.Hour})
		},
		lookup: func(d *db.DB, _ chat.Request) error { _, err := d.Login(bg, digest("new"), idle); return err },
	},
	{
		name:  "TouchLogin",
		setup: setupAccounts,
		call:  func(d *db.DB, _ chat.Request) (any, error) { return nil, d.TouchLogin(bg, 1) },
	},
	{
		name:  "EndLogin",
		setup: setupAccounts,
		call:  func(d *db.DB, _ chat.Request) (any, error) { return nil, d.EndLogin(bg, 1, 1) },
	},
	{
		name:  "EndLogins",
		setup: setupAccounts,
		call:  func(d *db.DB, _ chat.Request) (any, error) { return nil, d.EndLogins(bg, 1, nil) },
	},
	{
		name:  "AddKey",
		setup: setupAccounts,
		call: func(d *db.DB, _ chat.Request) (any, error) {
			return d.AddKey(bg, db.Key{UserID: 1, Name: "another", Scope: chat.ScopeOps, Digest: digest("another")}, "user:1")
		},
		lookup: func(d *db.DB, _ chat.Request) error { _, err := d.Key(bg, digest("another")); return err },
	},
	{
		name:  "TouchKey",
		setup: setupAccounts,
		call:  func(d *db.DB, _ chat.Request) (any, error) { return nil, d.TouchKey(bg, 1) },
	},
	{
		name:  "RevokeKey",
		setup: setupAccounts,
		call:  func(d *db.DB, _ chat.Request) (any, error) { return nil, d.RevokeKey(bg, 1, 1, "user:1") },
	},
	{
		name:  "CountTry",
		setup: setupAccounts,
		call:  func(d *db.DB, _ chat.Request) (any, error) { return d.CountTry(bg, aTry) },
	},
	{
		name:  "ForgiveTry",
		setup: setupAccounts,
		call:  func(d *db.DB, _ chat.Request) (any, error) { return nil, d.ForgiveTry(bg, aTry, aTry) },
	},
}

func TestTheFirstAccountHasWhatWasTheLocalUsers(t *testing.T) {
	d := dbtest.Open(t)
	dbtest.Answered(t, d, "session-1", "mine", "yours")
	if any, err := d.HasAccounts(bg); any || err != nil {
		t.Fatal(any, err)
	}
	member := db.NewAccount{Name: "bob", Role: chat.RoleMember, Password: aHash}
	if _, err := d.AddAccount(bg, member); !errors.Is(err, db.ErrFirstAdmin) {
		t.Fatalf("a member as the first: %v", err)
	}
	if id := addAccount(t, d, "ada", chat.RoleAdmin); id != db.LocalUser {
		t.Errorf("the first is %d", id)
	}
	if th, err := d.Thread(bg, db.LocalUser, "session-1"); err != nil || len(th.Messages) != 2 {
		t.Errorf("%d messages, %v", len(th.Messages), err)
	}
	if any, err := d.HasAccounts(bg); !any || err != nil {
		t.Error(any, err)
	}
	if _, err := d.AddAccount(bg, db.NewAccount{Name: "eve", Role: chat.RoleAdmin, Password: aHash, First: true}); !errors.Is(err, db.ErrNotNow) {
		t.Errorf("a second first: %v", err)
	}
	if id := addAccount(t, d, "bob", chat.RoleMember); id == db.LocalUser {
		t.Error("the second is the local user too")
	}
	if _, err := d.AddAccount(bg, member); !errors.Is(err, db.ErrAccountName) {
		t.Errorf("a name for the second time: %v", err)
	}
	dbtest.Check(t, d)
}

func TestOfManyFirstAccountsOneIs(t *testing.T) {
	d := dbtest.Open(t)
	var wg sync.WaitGroup
	won := make(chan int64, 64)
	for i := range 64 {
		wg.Go(func() {
			id, err := d.AddAccount(bg, db.NewAccount{Name: fmt.Sprint("admin", i), Role: chat.RoleAdmin, Password: aHash, First: true})
			if err == nil {
				won <- id
			} else if !errors.Is(err, db.ErrNotNow) {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if len(won) != 1 {
		t.Errorf("%d are the first", len(won))
	}
}

func TestAnAdminIsLeft(t *testing.T) {
	d := dbtest.Open(t)
	ada, bob := addAccount(t, d, "ada", chat.RoleAdmin), addAccount(t, d, "bob", chat.RoleMember)
	for what, err := range map[string]error{"disabled": d.Disable(bg, ada, "x"), "made a member": d.SetRole(bg, ada, chat.RoleMember, "x")} {
		if !errors.Is(err, db.ErrLastAdmin) {
			t.Errorf("the last admin is %s: %v", what, err)
		}
	}
	if err := errors.Join(d.Disable(bg, bob, "x"), d.Disable(bg, bob, "x"), d.SetRole(bg, bob, chat.RoleAdmin, "x")); err != nil {
		t.Fatal(err)
	}
	if err := d.Disable(bg, ada, "x"); !errors.Is(err, db.ErrLastAdmin) {
		t.Errorf("with another admin who is disabled: %v", err)
	}
	if err := errors.Join(d.Enable(bg, bob, "x"), d.Disable(bg, ada, "x")); err != nil {
		t.Error(err)
	}
	for _, err := range []error{d.Disable(bg, 77, "x"), d.Enable(bg, 77, "x"), d.SetRole(bg, 77, chat.RoleAdmin, "x"), d.SetPassword(bg, 77, newHash, "x")} {
		if !errors.Is(err, db.ErrNotFound) {
			t.Errorf("of nobody: %v", err)
		}
	}
}

func TestALoginEndsByItsTimeAndByWhatHappensToItsUser(t *testing.T) {
	ends := map[string]func(d *db.DB) error{
		"another password": func(d *db.DB) error { return d.SetPassword(bg, 2, newHash, "x") },
		"another role":     func(d *db.DB) error { return d.SetRole(bg, 2, chat.RoleOperator, "x") },
		"disabled":         func(d *db.DB) error { return d.Disable(bg, 2, "x") },
		"signed out":       func(d *db.DB) error { return d.EndLogin(bg, 2, 1) },
		"out everywhere":   func(d *db.DB) error { return d.EndLogins(bg, 2, nil) },
		"replaced": func(d *db.DB) error {
			return d.StartLogin(bg, db.NewLogin{Digest: digest("new"), Replaces: digest("token"), UserID: 2, Password: aHash, Lasts: time.Hour})
		},
	}
	for what, end := range ends {
		d := dbtest.Open(t)
		addAccount(t, d, "ada", chat.RoleAdmin)
		addAccount(t, d, "bob", chat.RoleMember)
		signIn(t, d, 2, "token")
		if l, err := d.Login(bg, digest("token"), idle); err != nil || l.Account.Name != "bob" || l.Account.Role != chat.RoleMember || l.Agent != "a browser" {
			t.Fatalf("%+v %v", l, err)
		}
		signIn(t, d, 1, "token of ada")
		if err := errors.Join(d.EndLogin(bg, 1, 1), d.EndLogins(bg, 2, digest("token"))); err != nil { // another's, and all but this
			t.Fatal(err)
		}
		if _, err := d.Login(bg, digest("token"), idle); err != nil {
			t.Fatal(err)
		}
		if err := end(d); err != nil {
			t.Fatal(err)
		}
		if _, err := d.Login(bg, digest("token"), idle); !errors.Is(err, db.ErrNotFound) {
			t.Errorf("%s: %v", what, err)
		}
		if _, err := d.Login(bg, digest("token of ada"), idle); err != nil {
			t.Errorf("%s: another's: %v", what, err)
		}
		dbtest.Check(t, d)
	}
}

func TestALoginIsOverWhenItIsNotUsedAndInTheEnd(t *testing.T) {
	d := dbtest.Open(t)
	path := d.Path()
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		d := dbtest.OpenAt(t, path, nil)
		addAccount(t, d, "ada", chat.RoleAdmin)
		signIn(t, d, 1, "token")
		is := func(want bool, when string) {
			t.Helper()
			_, err := d.Login(bg, digest("token"), idle)
			if list, lerr := d.Logins(bg, 1, idle); lerr != nil || (len(list) == 1) != want || (err == nil) != want {
				t.Errorf("%s: %v, %d in the list, want it there: %t", when, err, len(list), want)
			}
		}
		time.Sleep(idle - time.Second)
		is(true, "almost idle")
		time.Sleep(2 * time.Second)
		is(false, "idle")
		for range 13 {
			if err := d.TouchLogin(bg, 1); err != nil {
				t.Fatal(err)
			}
			time.Sleep(idle - time.Second)
		}
		is(true, "in use for six days")
		if err := d.TouchLogin(bg, 1); err != nil {
			t.Fatal(err)
		}
		time.Sleep(idle - time.Second)
		is(false, "after a week")
		signIn(t, d, 1, "another")
		if n, err := db.Int(bg, d, `SELECT count(*) FROM logins`); n != 1 || err != nil {
			t.Errorf("%d logins are stored, %v", n, err)
		}
	})
}

func TestALoginIsForThePasswordThatIsInForce(t *testing.T) {
	d := dbtest.Open(t)
	addAccount(t, d, "ada", chat.RoleAdmin)
	addAccount(t, d, "bob", chat.RoleMember)
	start := func() error {
		return d.StartLogin(bg, db.NewLogin{Digest: digest("late"), UserID: 2, Password: aHash, Lasts: time.Hour})
	}
	if err := d.Disable(bg, 2, "x"); err != nil {
		t.Fatal(err)
	}
	if err := start(); !errors.Is(err, db.ErrAccountChanged) {
		t.Errorf("disabled since: %v", err)
	}
	if err := errors.Join(d.Enable(bg, 2, "x"), d.SetPassword(bg, 2, newHash, "x")); err != nil {
		t.Fatal(err)
	}
	if err := start(); !errors.Is(err, db.ErrAccountChanged) {
		t.Errorf("another password since: %v", err)
	}
}

func TestAKeyOpensUntilItIsRevokedOrItsUserDisabled(t *testing.T) {
	d := dbtest.Open(t)
	addAccount(t, d, "ada", chat.RoleAdmin)
	bob := addAccount(t, d, "bob", chat.RoleMember)
	form := chat.NewID()
	made, err := d.AddKey(bg, db.Key{UserID: bob, Name: "script", Scope: chat.ScopeChat, Digest: digest("k"), FormID: form}, "x")
	if err != nil {
		t.Fatal(err)
	}
	id := made.ID
	if same, err := d.AddKey(bg, db.Key{UserID: bob, Name: "script", Scope: chat.ScopeChat, Digest: digest("k"), FormID: form}, "x"); same.ID != id || same.CreatedAt.UnixMilli() != made.CreatedAt.UnixMilli() || err != nil {
		t.Errorf("the same again is %+v, %v, want %+v", same, err, made)
	}
	if _, err := d.AddKey(bg, db.Key{UserID: bob, Name: "script", Scope: chat.ScopeChat, Digest: digest("k2"), FormID: form}, "x"); !errors.Is(err, db.ErrFormUsed) {
		t.Errorf("another key by the same form: %v", err)
	}
	if keys, err := d.Keys(bg, bob); len(keys) != 1 || err != nil {
		t.Errorf("keys %+v, %v", keys, err)
	}
	opens := func(want bool, when string) {
		t.Helper()
		if k, err := d.Key(bg, digest("k")); (err == nil) != want || want && (k.User != "bob" || k.Scope != chat.ScopeChat || k.Role != chat.RoleMember) {
			t.Errorf("%s: %+v, %v", when, k, err)
		}
	}
	opens(true, "new")
	if err := d.Disable(bg, bob, "x"); err != nil {
		t.Fatal(err)
	}
	opens(false, "its user is disabled")
	if err := d.Enable(bg, bob, "x"); err != nil {
		t.Fatal(err)
	}
	opens(true, "enabled again")
	if err := d.RevokeKey(bg, 1, id, "x"); !errors.Is(err, db.ErrNotFound) {
		t.Errorf("another's key: %v", err)
	}
	if err := errors.Join(d.RevokeKey(bg, bob, id, "x"), d.RevokeKey(bg, 0, id, "x")); err != nil {
		t.Error(err)
	}
	opens(false, "revoked")
	for _, of := range []int64{0, bob} {
		if list, err := d.Keys(bg, of); err != nil || len(list) != 1 || list[0].RevokedAt.IsZero() {
			t.Errorf("%+v %v", list, err)
		}
	}
	if list, err := d.Keys(bg, 1); err != nil || len(list) != 0 {
		t.Errorf("of another: %+v %v", list, err)
	}
	c := raw(t, d.Path(), "")
	for _, s := range []string{`UPDATE api_keys SET revoked_at = NULL`, `UPDATE api_keys SET scope = 'ops'`, `UPDATE api_keys SET user_id = 1`, `UPDATE api_keys SET form_id = NULL`} {
		if _, err := c.ExecContext(bg, s); err == nil {
			t.Errorf("%s is done", s)
		}
	}
}

// X16, X17: tries are counted before they are looked at, from all sides together, over
// a restart.
func TestX17TriesAreCountedOverARestart(t *testing.T) {
	path := filepath.Join(t.TempDir(), "test.db")
	dbtest.OpenAt(t, path, nil).Close()
	here := db.Guess{Digest: digest("ada here"), Every: time.Minute, Burst: 3}
	place := db.Guess{Digest: digest("here"), Every: time.Second, Burst: 100}
	synctest.Test(t, func(t *testing.T) {
		d := dbtest.OpenAt(t, path, nil)
		try := func(want time.Duration, tries ...db.Guess) {
			t.Helper()
			if wait, err := d.CountTry(bg, tries...); err != nil || wait != want {
				t.Errorf("wait %v, %v, want %v", wait, err, want)
			}
		}
		for range 3 {
			try(0, here, place)
		}
		for range 5 { // who is refused does not wait longer for it
			try(time.Minute, here, place)
		}
		if n, err := db.Int(bg, d, `SELECT tries FROM login_tries WHERE digest = ?`, place.Digest); n != 3 || err != nil {
			t.Errorf("%d tries from there, %v", n, err)
		}
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
		d = dbtest.OpenAt(t, path, nil)
		try(time.Minute, here)
		time.Sleep(time.Minute)
		try(0, here, place)
		try(time.Minute, here, place)
		if err := d.ForgiveTry(bg, here, place); err != nil {
			t.Fatal(err)
		}
		for range 3 {
			try(0, here, place)
		}
		time.Sleep(time.Hour)
		try(0, aTry)
		if n, err := db.Int(bg, d, `SELECT count(*) FROM login_tries`); n != 1 || err != nil {
			t.Errorf("%d rows are kept, %v", n, err)
		}
		// A clock that was wrong for a while locks nobody out for longer than the rule.
		if err := db.Write(bg, d, func(tx *db.Tx) error {
			_, err := tx.Exec(`INSERT INTO login_tries VALUES (?, 9, ?)`, here.Digest, time.Now().Add(1000*time.Hour))
			return err
		}); err != nil {
			t.Fatal(err)
		}
		try(time.Minute, here)
	})
}

func TestOfParallelTriesNoMoreAreLetThroughThanMayBe(t *testing.T) {
	d := dbtest.Open(t)
	through := make(chan bool, 200)
	var wg sync.WaitGroup
	for range 200 {
		wg.Go(func() {
			if wait, err := d.CountTry(bg, db.Guess{Digest: digest("x"), Every: time.Hour, Burst: 10}); err != nil {
				t.Error(err)
			} else if wait == 0 {
				through <- true
			}
		})
	}
	wg.Wait()
	if len(through) != 10 {
		t.Errorf("%d are let through", len(through))
	}
}

func TestADisabledUserIsNotAnsweredAnyMore(t *testing.T) {
	d := dbtest.Open(t)
	addAccount(t, d, "ada", chat.RoleAdmin)
	addAccount(t, d, "bob", chat.RoleAdmin)
	r := dbtest.Accept(t, d, "session-1", "wait for it")
	if list, err := d.UnfinishedOfDisabled(bg); err != nil || len(list) != 0 {
		t.Errorf("%v %v", list, err)
	}
	if err := d.Disable(bg, 1, "x"); err != nil {
		t.Fatal(err)
	}
	if list, err := d.UnfinishedOfDisabled(bg); err != nil || len(list) != 1 || list[0].ID != r.ID || list[0].Key != r.Key {
		t.Errorf("%+v %v", list, err)
	}
	if _, err := d.Accept(bg, dbtest.Submission("session-1", chat.NewID(), "late")); !errors.Is(err, db.ErrDisabled) {
		t.Errorf("accepted: %v", err)
	}
}

// Commands change accounts beside the serving process, whose numbers of transactions
// they leave alone.
func TestAccountsAreChangedBesideAServer(t *testing.T) {
	d := dbtest.Open(t)
	dbtest.Answered(t, d, "session-1", "one", "two")
	if _, err := db.Open(db.Options{Path: d.Path(), Schema: dbtest.Schema(t)}); !errors.Is(err, db.ErrServed) {
		t.Fatal(err)
	}
	beside, err := db.Open(db.Options{Path: d.Path(), Beside: true})
	if err != nil {
		t.Fatal(err)
	}
	before, err := db.Int(bg, d, `SELECT tx FROM instance`)
	if err != nil {
		t.Fatal(err)
	}
	addAccount(t, beside, "ada", chat.RoleAdmin)
	for what, want := range map[string]int64{`SELECT tx FROM instance`: before, `SELECT tx FROM audit`: 0} {
		if n, err := db.Int(bg, d, what); n != want || err != nil {
			t.Errorf("%s is %d, %v, want %d", what, n, err, want)
		}
	}
	var wg sync.WaitGroup
	for i := range 20 {
		wg.Go(func() { addAccount(t, beside, fmt.Sprint("beside", i), chat.RoleMember) })
		wg.Go(func() { addAccount(t, d, fmt.Sprint("server", i), chat.RoleMember) })
	}
	wg.Wait()
	if n, err := db.Int(bg, d, `SELECT tx FROM instance`); n != before+20 || err != nil {
		t.Errorf("the number of the last transaction is %d, %v, want %d", n, err, before+20)
	}
	if list, err := d.Accounts(bg, idle); len(list) != 41 || err != nil {
		t.Errorf("%d accounts, %v", len(list), err)
	}
	for what, err := range map[string]error{
		"a question": func() error {
			_, err := beside.Accept(bg, dbtest.Submission("session-1", chat.NewID(), "x"))
			return err
		}(),
		"a probe": beside.Ping(bg),
	} {
		if err == nil {
			t.Errorf("%s is written beside the server", what)
		}
	}
	if err := beside.Close(); err != nil {
		t.Error(err)
	}
	dbtest.Answered(t, d, "session-1", "three", "four")
	dbtest.Check(t, d)
	if _, err := db.Open(db.Options{Path: filepath.Join(t.TempDir(), "none.db"), Beside: true}); err == nil {
		t.Error("a file that is not there is opened")
	}
}

func TestNoTokenAndNoKeyIsInTheFile(t *testing.T) {
	d := dbtest.Open(t)
	fillAccounts(t, d)
	dump, err := db.Dump(bg, d, "logins")
	if err != nil || len(dump) != 2 {
		t.Fatal(dump, err)
	}
	keys, err := db.Dump(bg, d, "api_keys")
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range append(dump, keys...) {
		if bytes.Contains([]byte(row), []byte("token of")) {
			t.Errorf("%s", row)
		}
	}
}
