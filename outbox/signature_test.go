package outbox

import (
	"encoding/base64"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
)

func testSecret(fill byte) string {
	return secretPrefix + base64.StdEncoding.EncodeToString([]byte(strings.Repeat(string(rune(fill)), 32)))
}

var secretA, secretB = testSecret('a'), testSecret('b')

func mustSign(t testing.TB, secrets []string, id string, at time.Time, body string) http.Header {
	t.Helper()
	h, err := Sign(secrets, id, at, []byte(body))
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// The library of those who wrote the standard is the judge of both directions.
func TestSignaturesAreThoseOfTheStandard(t *testing.T) {
	now := time.Now()
	for _, body := range []string{"", "{}", `{"type":"action.sign","data":{"party":"株式会社"}}`, "\x00\xff"} {
		h := mustSign(t, []string{secretA, secretB}, "msg_1", now, body)
		for _, secret := range []string{secretA, secretB} {
			judge, err := standardwebhooks.NewWebhook(secret)
			if err != nil {
				t.Fatal(err)
			}
			if err := judge.Verify([]byte(body), h); err != nil {
				t.Errorf("%q: the standard's library refuses our signature: %v", body, err)
			}
			text, err := judge.Sign("msg_2", now, []byte(body))
			if err != nil {
				t.Fatal(err)
			}
			theirs := mustSign(t, []string{secret}, "msg_2", now, body)
			theirs.Set(headerSignature, text)
			if id, err := Verify([]string{secretB, secretA}, theirs, []byte(body), now); id != "msg_2" || err != nil {
				t.Errorf("%q: signed by the standard's library: got %q, %v", body, id, err)
			}
		}
	}
}

func TestAMessageIsBelievedOnlyAsItWasSigned(t *testing.T) {
	now := time.Unix(1_800_000_000, 999_999_999)
	const body = `{"ok":true}`
	set := func(name, value string) func(http.Header) { return func(h http.Header) { h.Set(name, value) } }
	wrongOne := "v1," + base64.StdEncoding.EncodeToString(make([]byte, 32))
	for _, tt := range []struct {
		name    string
		secrets []string
		change  func(http.Header)
		body    string
		now     time.Time
		want    error
	}{
		{name: "as signed"},
		{name: "one of several secrets", secrets: []string{testSecret('c'), secretA}},
		{name: "one of several signatures", change: func(h http.Header) {
			h.Set(headerSignature, "v1a,xyz "+wrongOne+"  "+h.Get(headerSignature)+" v2,abc")
		}},
		{name: "another body", body: `{"ok":false}`, want: ErrSignature},
		{name: "another id", change: set(headerID, "msg_2"), want: ErrSignature},
		{name: "another time", change: set(headerTimestamp, "1800000001"), want: ErrSignature},
		{name: "another secret", secrets: []string{secretB}, want: ErrSignature},
		{name: "another version", change: func(h http.Header) {
			h.Set(headerSignature, strings.Replace(h.Get(headerSignature), "v1,", "v2,", 1))
		}, want: ErrSignature},
		{name: "a signature cut short", change: func(h http.Header) { h.Set(headerSignature, h.Get(headerSignature)[:20]) }, want: ErrSignature},
		{name: "an empty signature", change: set(headerSignature, "v1,"), want: ErrSignature},
		{name: "no version", change: func(h http.Header) {
			h.Set(headerSignature, strings.TrimPrefix(h.Get(headerSignature), "v1,"))
		}, want: ErrSignature},
		{name: "no id", change: func(h http.Header) { h.Del(headerID) }, want: ErrHeaders},
		{name: "no time", change: func(h http.Header) { h.Del(headerTimestamp) }, want: ErrHeaders},
		{name: "no signature", change: func(h http.Header) { h.Del(headerSignature) }, want: ErrHeaders},
		{name: "two ids", change: func(h http.Header) { h.Add(headerID, "msg_1") }, want: ErrHeaders},
		{name: "two times", change: func(h http.Header) { h.Add(headerTimestamp, "1") }, want: ErrHeaders},
		{name: "two lists", change: func(h http.Header) { h.Add(headerSignature, wrongOne) }, want: ErrHeaders},
		{name: "an id with a full stop", change: set(headerID, "msg.1"), want: ErrHeaders},
		{name: "a long id", change: set(headerID, strings.Repeat("x", 257)), want: ErrHeaders},
		{name: "a time with a sign", change: set(headerTimestamp, "+1800000000"), want: ErrHeaders},
		{name: "a time with zeros", change: set(headerTimestamp, "01800000000"), want: ErrHeaders},
		{name: "a time that is none", change: set(headerTimestamp, "soon"), want: ErrHeaders},
		{name: "a huge time", change: set(headerTimestamp, "99999999999999999999"), want: ErrHeaders},
		{name: "five minutes old", now: now.Add(tolerance)},
		{name: "older", now: now.Add(tolerance + time.Second), want: ErrStale},
		{name: "five minutes ahead", now: now.Add(-tolerance)},
		{name: "further ahead", now: now.Add(-tolerance - time.Second), want: ErrStale},
		{name: "no secret", secrets: []string{}, want: ErrSecret},
		{name: "an empty secret", secrets: []string{secretA, secretPrefix}, want: ErrSecret},
		{name: "a short secret", secrets: []string{secretPrefix + base64.StdEncoding.EncodeToString(make([]byte, 23))}, want: ErrSecret},
		{name: "a long secret", secrets: []string{secretPrefix + base64.StdEncoding.EncodeToString(make([]byte, 65))}, want: ErrSecret},
		{name: "a secret without its prefix", secrets: []string{strings.TrimPrefix(secretA, secretPrefix)}, want: ErrSecret},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h := mustSign(t, []string{secretA}, "msg_1", now, body)
			if tt.secrets == nil {
				tt.secrets = []string{secretA}
			}
			if tt.change != nil {
				tt.change(h)
			}
			if tt.body == "" {
				tt.body = body
			}
			if tt.now.IsZero() {
				tt.now = now
			}
			wantID := "msg_1"
			if tt.want != nil {
				wantID = ""
			}
			if id, err := Verify(tt.secrets, h, []byte(tt.body), tt.now); id != wantID || !errors.Is(err, tt.want) {
				t.Errorf("got %q, %v, want %q, %v", id, err, wantID, tt.want)
			}
		})
	}
}

// FuzzVerify looks for headers that panic, or that are believed without the secret,
// or by the standard's library and not here.
func FuzzVerify(f *testing.F) {
	h := mustSign(f, []string{secretA}, "msg_1", time.Now(), "{}")
	f.Add("msg_1", h.Get(headerTimestamp), h.Get(headerSignature), []byte("{}"))
	f.Add("", "-1", "v1,", []byte(nil))
	f.Add("a.b", "9223372036854775807", "v1, v1,a,b  v1", []byte("x"))
	f.Fuzz(func(t *testing.T, id, timestamp, signatures string, body []byte) {
		now := time.Now()
		h := http.Header{headerID: {id}, headerTimestamp: {timestamp}, headerSignature: {signatures}}
		got, err := Verify([]string{secretA}, h, body, now)
		if _, other := Verify([]string{secretB}, h, body, now); other == nil {
			t.Fatalf("believed without the secret: %q", h)
		}
		judge, newErr := standardwebhooks.NewWebhook(secretA)
		if newErr != nil {
			t.Fatal(newErr)
		}
		theirs := judge.Verify(body, h)
		if err == nil && (theirs != nil || got != id) {
			t.Errorf("believed %q as %q, which the standard's library does not: %v", h, got, theirs)
		}
		// It reads numbers and ids more freely than the standard writes them.
		if theirs == nil && err != nil && !errors.Is(err, ErrHeaders) && !errors.Is(err, ErrStale) {
			t.Errorf("refused %q, %v, which the standard's library believes", h, err)
		}
	})
}
