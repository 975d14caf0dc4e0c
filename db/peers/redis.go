package main

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"math/bits"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"semel/chat"
)

// A redisStore does the work with the least that is as durable and as atomic as
// Semel: a claim is one SET NX, a completion one script.
//
//	request:KEY    fingerprint, state, claim: the lease while it runs, the dedupe mark for good
//	answer:KEY     the text
//	lifecycle:KEY  what happened to it, oldest first
//	messages:CONV  the answers of a conversation in order
//	ledger         all charges
type redisStore struct {
	c   rueidis.Client
	pid int
}

// openRedis connects to the server behind a socket, whose AOF must be synced as
// appendfsync says.
func openRedis(ctx context.Context, socket, appendfsync string, l link) (_ store, version string, err error) {
	o := rueidis.ClientOption{
		InitAddress: []string{socket}, ForceSingleClient: true, DisableCache: true,
		DialCtxFn: func(ctx context.Context, path string, d *net.Dialer, _ *tls.Config) (net.Conn, error) {
			return d.DialContext(ctx, "unix", path)
		},
	}
	if l.shared {
		o.PipelineMultiplex = bits.Len(uint(l.connections)) - 1 // a power of two
	} else {
		o.DisableAutoPipelining, o.BlockingPoolSize = true, l.connections
	}
	c, err := rueidis.NewClient(o)
	if err != nil {
		return nil, "", err
	}
	defer func() {
		if err != nil {
			c.Close()
		}
	}()
	for name, want := range map[string]string{"appendonly": "yes", "appendfsync": appendfsync} {
		got, err := c.Do(ctx, c.B().ConfigGet().Parameter(name).Build()).AsStrMap()
		if err != nil {
			return nil, "", err
		}
		if got[name] != want {
			return nil, "", fmt.Errorf("%s: %s is %q, not %q", socket, name, got[name], want)
		}
	}
	info, err := c.Do(ctx, c.B().Info().Section("server").Build()).ToString()
	if err != nil {
		return nil, "", err
	}
	pid, err := strconv.Atoi(infoLine(info, "process_id"))
	return redisStore{c, pid}, infoLine(info, "redis_version"), err
}

func infoLine(info, name string) string {
	_, rest, _ := strings.Cut(info, "\n"+name+":")
	value, _, _ := strings.Cut(rest, "\r\n")
	return value
}

// A redisClaim is what follows the fingerprint and the state in request:KEY.
type redisClaim struct {
	Attempt     int        `json:"attempt"`
	Owner       string     `json:"owner,omitempty"`
	LeaseUntil  int64      `json:"leaseUntil,omitempty"`
	Model       string     `json:"model"`
	Price       chat.Price `json:"price"`
	Content     string     `json:"content"`
	CreatedAt   int64      `json:"createdAt"`
	CompletedAt int64      `json:"completedAt,omitempty"`
}

type redisStep struct {
	From    string `json:"from"`
	To      string `json:"to"`
	Attempt int    `json:"attempt"`
	Actor   string `json:"actor"`
	Reason  string `json:"reason"`
	At      int64  `json:"at"`
}

type redisCharge struct {
	Request string `json:"request"`
	User    int64  `json:"user"`
	Attempt int    `json:"attempt"`
	Model   string `json:"model"`
	Input   int64  `json:"input"`
	Output  int64  `json:"output"`
	Micros  int64  `json:"micros"`
	At      int64  `json:"at"`
}

// The fingerprint, of a fixed length, and the state come first: a replay compares
// them and decodes nothing.
const (
	redisGenerating = "generating "
	redisCommitted  = "committed "
)

func (s redisStore) claim(ctx context.Context, q question) (func(context.Context, answer) error, error) {
	now := time.Now()
	name := redisName(q.key)
	c := redisClaim{
		Attempt: 1, Owner: owner, LeaseUntil: now.Add(lease).UnixMilli(), Model: model, Price: price,
		Content: q.content, CreatedAt: now.UnixMilli(),
	}
	held := string(q.fingerprint) + redisGenerating + encode(c)
	err := s.c.Do(ctx, s.c.B().Set().Key("request:"+name).Value(held).Nx().Build()).Error()
	if rueidis.IsRedisNil(err) {
		return nil, errTaken
	}
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, a answer) error {
		at := time.Now().UnixMilli()
		c.Owner, c.LeaseUntil, c.CompletedAt = "", 0, at
		done, err := redisComplete.Exec(ctx, s.c,
			[]string{"request:" + name, "answer:" + name, "lifecycle:" + name, "messages:" + q.key.SessionID, "ledger"},
			[]string{
				held, string(q.fingerprint) + redisCommitted + encode(c), a.content,
				encode(redisStep{"new", "generating", 1, actor, "claimed", now.UnixMilli()}),
				encode(redisStep{"generating", "committed", 1, actor, "answered", at}),
				q.key.RequestID,
				encode(redisCharge{name, q.key.UserID, 1, model, a.usage.InputTokens, a.usage.OutputTokens, price.Cost(a.usage), at}),
			}).AsInt64()
		if err == nil && done != 1 {
			err = errFenced
		}
		return err
	}, nil
}

// A script and not MULTI, which cannot compare: only who still holds the claim
// completes it. Its effects go into the AOF as one MULTI.
var redisComplete = rueidis.NewLuaScript(`
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[1], ARGV[2])
redis.call('SET', KEYS[2], ARGV[3])
redis.call('RPUSH', KEYS[3], ARGV[4], ARGV[5])
redis.call('RPUSH', KEYS[4], ARGV[6])
redis.call('RPUSH', KEYS[5], ARGV[7])
return 1`)

func (s redisStore) replay(ctx context.Context, k chat.Key, fp chat.Fingerprint) (string, error) {
	name := redisName(k)
	list, err := s.c.Do(ctx, s.c.B().Mget().Key("request:"+name, "answer:"+name).Build()).ToArray()
	if err != nil {
		return "", err
	}
	state, err := list[0].ToString()
	if rueidis.IsRedisNil(err) || (err == nil && !strings.HasPrefix(state, string(fp)+redisCommitted)) {
		return "", errNoAnswer
	}
	if err != nil {
		return "", err
	}
	return list[1].ToString()
}

func (s redisStore) server() int { return s.pid }

func (s redisStore) close() error {
	s.c.Close()
	return nil
}

func redisName(k chat.Key) string {
	return strconv.FormatInt(k.UserID, 10) + ":" + k.SessionID + ":" + k.RequestID
}

func encode(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // of structs of strings and numbers
	}
	return string(b)
}
