package db

import (
	"context"
	"errors"
	"fmt"
	"time"

	"semel/chat"
)

var (
	// ErrAccountName: another account has that name; nothing was stored.
	ErrAccountName = errors.New("another account has that name")
	// ErrFirstAdmin: the first account must be an admin's, or nobody could make a
	// second; nothing was stored.
	ErrFirstAdmin = errors.New("the first account must be an admin's")
	// ErrLastAdmin: without this one nobody could let anybody in; nothing was stored.
	ErrLastAdmin = errors.New("it is the last admin")
	// ErrAccountChanged: the account is not as the caller believed (its password, or
	// whether it is disabled); nothing was stored.
	ErrAccountChanged = errors.New("the account has changed")
	// ErrDisabled: the user was disabled; nothing was stored.
	ErrDisabled = errors.New("the account is disabled")
)

// An Account is a user who can sign in, or could until it was disabled.
type Account struct {
	ID        int64
	Name      string
	Role      chat.Role
	Disabled  bool
	CreatedAt time.Time
	SeenAt    time.Time // in a browser that is still signed in; zero when there is none
	Logins    int       // browsers that are signed in
	Keys      int       // that are not revoked
}

// A NewAccount is one to be added. Actor is who does.
type NewAccount struct {
	Name     string // as [chat.ParseName] returns it
	Role     chat.Role
	Password string // its hash
	Actor    string
	First    bool // only while there is none
}

// HasAccounts reports whether anybody can sign in, or could. Once it is true it stays.
func (d *DB) HasAccounts(ctx context.Context) (any bool, err error) {
	err = d.readOne(ctx, func(c *conn) (err error) {
		any, err = c.queryRow(sqlSelectAnyAccount, nil, new(int))
		return err
	})
	return any, err
}

// AddAccount stores an account. The first one is the local user with a name and a
// password, and has all that was that user's. Errors: ErrAccountName, ErrFirstAdmin,
// ErrNotNow when it must be the first and is not.
func (d *DB) AddAccount(ctx context.Context, n NewAccount) (id int64, err error) {
	err = d.writeAccounts(ctx, func(tx *Tx) error {
		any, err := tx.queryRow(sqlSelectAnyAccount, nil, new(int))
		switch {
		case err != nil:
			return err
		case any && n.First:
			return ErrNotNow
		case any:
			id, err = tx.insert(sqlInsertAccount, n.Name, n.Role, n.Password, tx.now)
		case n.Role != chat.RoleAdmin:
			return ErrFirstAdmin
		default:
			id = LocalUser
			_, err = tx.exec(sqlTakeOverLocal, n.Name, n.Password, LocalUser)
		}
		if isUnique(err) {
			return ErrAccountName
		}
		if err != nil {
			return err
		}
		return tx.audit(n.Actor, "add account", actorUser(id), string(n.Role), "")
	})
	return id, err
}

// Accounts returns all accounts, by name.
func (d *DB) Accounts(ctx context.Context, idle time.Duration) (list []Account, err error) {
	now := time.Now()
	err = d.readOne(ctx, func(c *conn) error {
		return c.query(sqlSelectAccounts, []any{now, now.Add(-idle)}, func(r row) error {
			var a Account
			err := r.scan(&a.ID, &a.Name, &a.Role, &a.Disabled, &a.CreatedAt, &a.SeenAt, &a.Logins, &a.Keys)
			list = append(list, a)
			return err
		})
	})
	return list, err
}

// Account returns the account of that name and the hash of its password, of a disabled
// one too. Errors: ErrNotFound.
func (d *DB) Account(ctx context.Context, name string) (a Account, password string, err error) {
	err = d.readOne(ctx, func(c *conn) error {
		return c.one(sqlSelectAccount, []any{name}, &a.ID, &a.Name, &a.Role, &a.Disabled, &a.CreatedAt, &password)
	})
	return a, password, err
}

// AccountByID is Account for who knows the id.
func (d *DB) AccountByID(ctx context.Context, id int64) (a Account, password string, err error) {
	err = d.readOne(ctx, func(c *conn) error {
		return c.one(sqlSelectAccountByID, []any{id}, &a.ID, &a.Name, &a.Role, &a.Disabled, &a.CreatedAt, &password)
	})
	return a, password, err
}

// one is queryRow where no row is ErrNotFound.
func (c *conn) one(sql string, args []any, dest ...any) error {
	found, err := c.queryRow(sql, args, dest...)
	if err == nil && !found {
		err = ErrNotFound
	}
	return err
}

// SetPassword stores the hash of a user's new password, and signs the user out
// everywhere. Errors: ErrNotFound.
func (d *DB) SetPassword(ctx context.Context, user int64, password, actor string) error {
	return d.writeAccounts(ctx, func(tx *Tx) error {
		return tx.changeAccount(user, actor, "set password", "", sqlSetPassword, password, user)
	})
}

// SetRole gives a user another role, and signs the user out everywhere: what a browser
// holds was given for the old one. Errors: ErrNotFound, ErrLastAdmin.
func (d *DB) SetRole(ctx context.Context, user int64, role chat.Role, actor string) error {
	return d.writeAccounts(ctx, func(tx *Tx) error {
		if role != chat.RoleAdmin {
			if err := tx.otherAdmin(user); err != nil {
				return err
			}
		}
		return tx.changeAccount(user, actor, "set role", string(role), sqlSetRole, role, user)
	})
}

// Disable keeps a user out, and out of everything that is open; nothing is lost. Errors:
// ErrNotFound, ErrLastAdmin.
func (d *DB) Disable(ctx context.Context, user int64, actor string) error {
	return d.writeAccounts(ctx, func(tx *Tx) error {
		if err := tx.otherAdmin(user); err != nil {
			return err
		}
		return tx.changeAccount(user, actor, "disable", "", sqlDisableUser, tx.now, user)
	})
}

// Enable lets a disabled user in again. Errors: ErrNotFound.
func (d *DB) Enable(ctx context.Context, user int64, actor string) error {
	return d.writeAccounts(ctx, func(tx *Tx) error {
		return tx.changeAccount(user, actor, "enable", "", sqlEnableUser, user)
	})
}

// changeAccount changes an account, ends its logins and notes who did it and why.
func (tx *Tx) changeAccount(user int64, actor, action, reason, sql string, args ...any) error {
	n, err := tx.exec(sql, args...)
	if err == nil && n == 0 {
		return ErrNotFound
	}
	if err == nil {
		_, err = tx.exec(sqlDeleteLogins, user, []byte{})
	}
	if err != nil {
		return fmt.Errorf("%s: %w", action, err)
	}
	return tx.audit(actor, action, actorUser(user), reason, "")
}

// otherAdmin returns ErrLastAdmin when user is the only admin who can sign in.
func (tx *Tx) otherAdmin(user int64) error {
	other, err := tx.queryRow(sqlSelectOtherAdmin, []any{user}, new(int))
	if err == nil && !other {
		err = tx.one(sqlSelectAdmin, []any{user}, new(int))
		switch {
		case err == nil:
			return ErrLastAdmin
		case errors.Is(err, ErrNotFound): // neither is this one
			return nil
		}
	}
	return err
}

// A Login is a browser in which somebody is signed in.
type Login struct {
	ID        int64
	Account   Account
	Agent     string
	CreatedAt time.Time
	SeenAt    time.Time
	ExpiresAt time.Time
}

// A NewLogin is one to be started.
type NewLogin struct {
	Digest   []byte // SHA-256 of the new token
	Replaces []byte // of the one that the browser had, nil when it had none
	UserID   int64
	Password string // the hash that the password was found to fit
	Agent    string
	Lasts    time.Duration // at the most
}

// StartLogin signs a user in who has shown the password. Errors: ErrAccountChanged when
// that is no longer the password, or the user is disabled.
func (d *DB) StartLogin(ctx context.Context, l NewLogin) error {
	return d.writeAccounts(ctx, func(tx *Tx) error {
		is, err := tx.queryRow(sqlSelectPassword, []any{l.UserID, l.Password}, new(int))
		if err != nil {
			return err
		}
		if !is {
			return ErrAccountChanged
		}
		if _, err := tx.exec(sqlDeleteOldLogins, tx.now, l.Replaces); err != nil {
			return fmt.Errorf("delete old logins: %w", err)
		}
		if _, err := tx.exec(sqlInsertLogin, l.Digest, l.UserID, l.Agent, tx.now, tx.now, tx.now.Add(l.Lasts)); err != nil {
			return fmt.Errorf("insert login: %w", err)
		}
		return nil
	})
}

// Login returns the login of that token, unless it is over, unused for longer than idle,
// or of a disabled user. Errors: ErrNotFound.
func (d *DB) Login(ctx context.Context, digest []byte, idle time.Duration) (l Login, err error) {
	now := time.Now()
	err = d.readOne(ctx, func(c *conn) error {
		a := &l.Account
		return c.one(sqlSelectLogin, []any{digest, now, now.Add(-idle)}, &l.ID, &l.Agent, &l.CreatedAt, &l.SeenAt, &l.ExpiresAt, &a.ID, &a.Name, &a.Role, &a.CreatedAt)
	})
	return l, err
}

// TouchLogin notes that a login is in use.
func (d *DB) TouchLogin(ctx context.Context, id int64) error {
	return d.writeAccounts(ctx, func(tx *Tx) error {
		_, err := tx.exec(sqlTouchLogin, tx.now, id)
		return err
	})
}

// Logins returns where a user is signed in, the newest first.
func (d *DB) Logins(ctx context.Context, user int64, idle time.Duration) (list []Login, err error) {
	now := time.Now()
	err = d.readOne(ctx, func(c *conn) error {
		return c.query(sqlSelectLogins, []any{user, now, now.Add(-idle)}, func(r row) error {
			var l Login
			err := r.scan(&l.ID, &l.Agent, &l.CreatedAt, &l.SeenAt, &l.ExpiresAt)
			list = append(list, l)
			return err
		})
	})
	return list, err
}

// EndLogin ends one login of a user. One that is not there is no error.
func (d *DB) EndLogin(ctx context.Context, user, id int64) error {
	return d.writeAccounts(ctx, func(tx *Tx) error {
		_, err := tx.exec(sqlDeleteLogin, user, id)
		return err
	})
}

// EndLogins ends all logins of a user but the one of that token; nil is all.
func (d *DB) EndLogins(ctx context.Context, user int64, but []byte) error {
	if but == nil {
		but = []byte{}
	}
	return d.writeAccounts(ctx, func(tx *Tx) error {
		_, err := tx.exec(sqlDeleteLogins, user, but)
		return err
	})
}

// A Key is what a program is let in by.
type Key struct {
	ID        int64
	UserID    int64
	User      string // the name
	Role      chat.Role
	Name      string
	Scope     chat.Scope
	Digest    []byte // SHA-256 of the key, of one that is to be added, as is
	FormID    string // the id of the form that makes it, "" for none
	CreatedAt time.Time
	UsedAt    time.Time
	RevokedAt time.Time
}

// AddKey stores a key of a user and returns it as it is stored. The same key a second
// time stores nothing. Errors: ErrFormUsed, where the form made
// another of that user, or it is revoked.
func (d *DB) AddKey(ctx context.Context, k Key, actor string) (Key, error) {
	var form any
	if k.FormID != "" {
		form = k.FormID
	}
	err := d.writeAccounts(ctx, func(tx *Tx) error {
		var same bool
		found, err := tx.queryRow(sqlSelectKeyMade, []any{k.Digest, k.UserID, form}, &k.ID, &k.CreatedAt, &same)
		switch {
		case err != nil:
			return err
		case found && !same:
			return ErrFormUsed
		case found:
			return nil
		}
		if k.ID, err = tx.insert(sqlInsertKey, k.Digest, k.UserID, k.Name, k.Scope, tx.now, form); err != nil {
			return fmt.Errorf("insert key: %w", err)
		}
		k.CreatedAt = tx.now
		return tx.audit(actor, "add key", fmt.Sprintf("key:%d", k.ID), k.Name, "")
	})
	return k, err
}

// Key returns the key of that digest, unless it is revoked or its user disabled. Errors:
// ErrNotFound.
func (d *DB) Key(ctx context.Context, digest []byte) (k Key, err error) {
	err = d.readOne(ctx, func(c *conn) error {
		return c.one(sqlSelectKey, []any{digest}, &k.ID, &k.UserID, &k.User, &k.Role, &k.Name, &k.Scope, &k.CreatedAt, &k.UsedAt)
	})
	return k, err
}

// TouchKey notes that a key is in use.
func (d *DB) TouchKey(ctx context.Context, id int64) error {
	return d.writeAccounts(ctx, func(tx *Tx) error {
		_, err := tx.exec(sqlTouchKey, tx.now, id)
		return err
	})
}

// Keys returns the keys of a user, of all users for 0, the newest first.
func (d *DB) Keys(ctx context.Context, user int64) (list []Key, err error) {
	sql, args := sqlSelectKeysOf, []any{user}
	if user == 0 {
		sql, args = sqlSelectKeys, nil
	}
	err = d.readOne(ctx, func(c *conn) error {
		return c.query(sql, args, func(r row) error {
			var k Key
			err := r.scan(&k.ID, &k.UserID, &k.User, &k.Name, &k.Scope, &k.CreatedAt, &k.UsedAt, &k.RevokedAt)
			list = append(list, k)
			return err
		})
	})
	return list, err
}

// RevokeKey ends a key, of that user only unless user is 0. One that is revoked already
// is no error. Errors: ErrNotFound.
func (d *DB) RevokeKey(ctx context.Context, user, id int64, actor string) error {
	return d.writeAccounts(ctx, func(tx *Tx) error {
		var revoked bool
		err := tx.one(sqlSelectKeyOf, []any{id, user}, &revoked)
		if err != nil || revoked {
			return err
		}
		if _, err := tx.exec(sqlRevokeKey, tx.now, id); err != nil {
			return fmt.Errorf("revoke key: %w", err)
		}
		return tx.audit(actor, "revoke key", fmt.Sprintf("key:%d", id), "", "")
	})
}

// A Guess is one of the things that a password that is tried counts against: it may be
// tried Burst times at once, and then once every Every.
type Guess struct {
	Digest []byte
	Every  time.Duration
	Burst  int
}

// CountTry counts a password that is about to be looked at, against all of tries or
// none, and returns how long to wait where that is one too many. What happens to the
// password later does not undo it; ForgiveTry does.
func (d *DB) CountTry(ctx context.Context, tries ...Guess) (wait time.Duration, err error) {
	err = d.writeAccounts(ctx, func(tx *Tx) error {
		wait = 0
		until := make([]time.Time, len(tries))
		for i, t := range tries {
			var stored time.Time
			if _, err := tx.queryRow(sqlSelectTry, []any{t.Digest}, &stored); err != nil {
				return err
			}
			full := tx.now.Add(time.Duration(t.Burst) * t.Every)
			if stored.After(full) { // the clock was set back
				stored = full
			}
			if stored.Before(tx.now) {
				stored = tx.now
			}
			until[i] = stored.Add(t.Every)
			wait = max(wait, until[i].Sub(full))
		}
		if wait > 0 {
			return nil
		}
		if _, err := tx.exec(sqlDeleteTries, tx.now); err != nil {
			return fmt.Errorf("delete tries: %w", err)
		}
		for i, t := range tries {
			if _, err := tx.exec(sqlCountTry, t.Digest, until[i]); err != nil {
				return fmt.Errorf("count try: %w", err)
			}
		}
		return nil
	})
	return wait, err
}

// ForgiveTry takes the last try back from each of tries, and forgets those of forget.
func (d *DB) ForgiveTry(ctx context.Context, forget Guess, tries ...Guess) error {
	return d.writeAccounts(ctx, func(tx *Tx) error {
		if _, err := tx.exec(sqlForgetTry, forget.Digest); err != nil {
			return fmt.Errorf("forget tries: %w", err)
		}
		for _, t := range tries {
			if _, err := tx.exec(sqlForgiveTry, t.Every.Milliseconds(), t.Digest); err != nil {
				return fmt.Errorf("forgive try: %w", err)
			}
		}
		return nil
	})
}

// UnfinishedOfDisabled returns the requests without their answer of users who are
// disabled.
func (d *DB) UnfinishedOfDisabled(ctx context.Context) (list []chat.Request, err error) {
	err = d.readOne(ctx, func(c *conn) error {
		return c.query(sqlSelectOpenOfDisabled, nil, func(row row) error {
			var r chat.Request
			defer func() { list = append(list, r) }()
			return row.scan(append(requestDest(&r), new(bool))...)
		})
	})
	return list, err
}

const (
	sqlSelectAnyAccount = `SELECT 1 FROM users WHERE password IS NOT NULL LIMIT 1`

	sqlInsertAccount = `INSERT INTO users (name, role, password, created_at) VALUES (?, ?, ?, ?)`

	sqlTakeOverLocal = `UPDATE users SET name = ?, role = 'admin', password = ?, disabled_at = NULL WHERE id = ?`

	sqlSelectAccounts = `SELECT u.id, u.name, u.role, u.disabled_at IS NOT NULL, u.created_at,
		(SELECT max(l.seen_at) FROM logins l WHERE l.user_id = u.id AND l.expires_at > ?1 AND l.seen_at > ?2),
		(SELECT count(*) FROM logins l WHERE l.user_id = u.id AND l.expires_at > ?1 AND l.seen_at > ?2),
		(SELECT count(*) FROM api_keys k WHERE k.user_id = u.id AND k.revoked_at IS NULL)
		FROM users u WHERE u.password IS NOT NULL ORDER BY u.name`

	sqlSelectAccount = `SELECT id, name, role, disabled_at IS NOT NULL, created_at, password FROM users WHERE name = ? AND password IS NOT NULL`

	sqlSelectAccountByID = `SELECT id, name, role, disabled_at IS NOT NULL, created_at, password FROM users WHERE id = ? AND password IS NOT NULL`

	sqlSetPassword = `UPDATE users SET password = ? WHERE id = ? AND password IS NOT NULL`

	sqlSetRole = `UPDATE users SET role = ? WHERE id = ? AND password IS NOT NULL`

	sqlDisableUser = `UPDATE users SET disabled_at = coalesce(disabled_at, ?) WHERE id = ? AND password IS NOT NULL`

	sqlEnableUser = `UPDATE users SET disabled_at = NULL WHERE id = ? AND password IS NOT NULL`

	sqlSelectAdmin = `SELECT 1 FROM users WHERE id = ? AND role = 'admin' AND disabled_at IS NULL AND password IS NOT NULL`

	sqlSelectOtherAdmin = `SELECT 1 FROM users WHERE role = 'admin' AND password IS NOT NULL AND disabled_at IS NULL AND id <> ? LIMIT 1`

	sqlSelectUserDisabled = `SELECT 1 FROM users WHERE id = ? AND disabled_at IS NOT NULL`

	sqlSelectPassword = `SELECT 1 FROM users WHERE id = ? AND password = ? AND disabled_at IS NULL`

	sqlDeleteOldLogins = `DELETE FROM logins WHERE expires_at <= ? OR digest = ?`

	sqlInsertLogin = `INSERT INTO logins (digest, user_id, agent, created_at, seen_at, expires_at) VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (digest) DO NOTHING`

	sqlSelectLogin = `SELECT l.id, l.agent, l.created_at, l.seen_at, l.expires_at, u.id, u.name, u.role, u.created_at FROM logins l JOIN users u ON u.id = l.user_id
		WHERE l.digest = ? AND l.expires_at > ? AND l.seen_at > ? AND u.disabled_at IS NULL AND u.password IS NOT NULL`

	sqlTouchLogin = `UPDATE logins SET seen_at = ? WHERE id = ?`

	sqlSelectLogins = `SELECT id, agent, created_at, seen_at, expires_at FROM logins WHERE user_id = ? AND expires_at > ? AND seen_at > ? ORDER BY id DESC`

	sqlDeleteLogin = `DELETE FROM logins WHERE user_id = ? AND id = ?`

	sqlDeleteLogins = `DELETE FROM logins WHERE user_id = ? AND digest <> ?`

	sqlSelectKeyMade = `SELECT id, created_at, digest = ?1 AND revoked_at IS NULL FROM api_keys WHERE digest = ?1 OR (user_id = ?2 AND form_id = ?3)`

	sqlInsertKey = `INSERT INTO api_keys (digest, user_id, name, scope, created_at, form_id) VALUES (?, ?, ?, ?, ?, ?)`

	sqlSelectKey = `SELECT k.id, u.id, u.name, u.role, k.name, k.scope, k.created_at, k.used_at FROM api_keys k JOIN users u ON u.id = k.user_id
		WHERE k.digest = ? AND k.revoked_at IS NULL AND u.disabled_at IS NULL AND u.password IS NOT NULL`

	sqlTouchKey = `UPDATE api_keys SET used_at = ? WHERE id = ?`

	sqlKeyColumns = `SELECT k.id, u.id, u.name, k.name, k.scope, k.created_at, k.used_at, k.revoked_at FROM api_keys k JOIN users u ON u.id = k.user_id`

	sqlSelectKeys = sqlKeyColumns + ` ORDER BY k.id DESC`

	sqlSelectKeysOf = sqlKeyColumns + ` WHERE k.user_id = ? ORDER BY k.id DESC`

	sqlSelectKeyOf = `SELECT revoked_at IS NOT NULL FROM api_keys WHERE id = ?1 AND (?2 = 0 OR user_id = ?2)`

	sqlRevokeKey = `UPDATE api_keys SET revoked_at = ? WHERE id = ?`

	sqlSelectTry = `SELECT until_at FROM login_tries WHERE digest = ?`

	sqlDeleteTries = `DELETE FROM login_tries WHERE until_at <= ?`

	sqlCountTry = `INSERT INTO login_tries (digest, tries, until_at) VALUES (?, 1, ?) ON CONFLICT (digest) DO UPDATE SET tries = tries + 1, until_at = excluded.until_at`

	sqlForgetTry = `DELETE FROM login_tries WHERE digest = ?`

	sqlForgiveTry = `UPDATE login_tries SET tries = max(1, tries - 1), until_at = until_at - ? WHERE digest = ?`

	sqlSelectOpenOfDisabled = sqlRequestColumns + ` WHERE r.user_id IN (SELECT id FROM users WHERE disabled_at IS NOT NULL)` + sqlOpen
)
