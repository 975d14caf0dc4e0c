package outbox

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Why a message is not believed. A person needs to know which; whoever sent it
// does not.
var (
	ErrSecret    = errors.New("no usable secret: a secret is whsec_ and the base64 of 24 to 64 bytes")
	ErrHeaders   = errors.New("webhook-id, webhook-timestamp or webhook-signature is missing, doubled or malformed")
	ErrSignature = errors.New("no signature of the message is by a known secret")
	ErrStale     = errors.New("the message was signed more than five minutes ago, or ahead")
)

// tolerance is how far the clocks of two machines, and the way between them, may be
// apart.
const tolerance = 5 * time.Minute

const (
	headerID        = "Webhook-Id"
	headerTimestamp = "Webhook-Timestamp"
	headerSignature = "Webhook-Signature"

	secretPrefix = "whsec_"
)

// Sign returns the headers of a message as Standard Webhooks 1.0 has them, with one
// signature for each secret, so that a secret can be replaced while messages are
// under way.
func Sign(secrets []string, id string, at time.Time, body []byte) (http.Header, error) {
	keys, err := signingKeys(secrets)
	if err != nil {
		return nil, err
	}
	if !isMessageID(id) {
		return nil, ErrHeaders
	}
	return signed(keys, id, at, body), nil
}

func signed(keys [][]byte, id string, at time.Time, body []byte) http.Header {
	timestamp := strconv.FormatInt(at.Unix(), 10)
	list := make([]string, len(keys))
	for i, key := range keys {
		list[i] = "v1," + signature(key, id, timestamp, body)
	}
	return http.Header{headerID: {id}, headerTimestamp: {timestamp}, headerSignature: {strings.Join(list, " ")}}
}

// Verify returns the id of the message that h and body are, where one of its
// signatures is by one of the secrets and was made within five minutes of now. Any
// error means that it must not be believed: [ErrSecret], [ErrHeaders],
// [ErrSignature] or, of a message that is genuine, [ErrStale].
func Verify(secrets []string, h http.Header, body []byte, now time.Time) (messageID string, err error) {
	keys, err := signingKeys(secrets)
	if err != nil {
		return "", err
	}
	id, timestamp, list := h.Values(headerID), h.Values(headerTimestamp), h.Values(headerSignature)
	if len(id) != 1 || len(timestamp) != 1 || len(list) != 1 || !isMessageID(id[0]) {
		return "", ErrHeaders
	}
	seconds, err := strconv.ParseInt(timestamp[0], 10, 64)
	if err != nil || strconv.FormatInt(seconds, 10) != timestamp[0] {
		return "", ErrHeaders
	}
	genuine := false
	for _, key := range keys {
		want := []byte(signature(key, id[0], timestamp[0], body))
		for given := range strings.SplitSeq(list[0], " ") {
			version, text, _ := strings.Cut(given, ",")
			if hmac.Equal([]byte(text), want) && version == "v1" {
				genuine = true
			}
		}
	}
	if !genuine {
		return "", ErrSignature
	}
	// In seconds, which cannot overflow a duration.
	if s := now.Unix(); seconds < s-int64(tolerance/time.Second) || seconds > s+int64(tolerance/time.Second) {
		return "", ErrStale
	}
	return id[0], nil
}

func signature(key []byte, id, timestamp string, body []byte) string {
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(id + "." + timestamp + "."))
	mac.Write(body)
	return base64.StdEncoding.EncodeToString(mac.Sum(nil))
}

// signingKeys refuses a list in which one cannot be used: an empty key would sign for
// everybody.
func signingKeys(secrets []string) ([][]byte, error) {
	var keys [][]byte
	for _, s := range secrets {
		text, ok := strings.CutPrefix(s, secretPrefix)
		key, err := base64.StdEncoding.Strict().DecodeString(text)
		if !ok || err != nil || len(key) < 24 || len(key) > 64 {
			return nil, ErrSecret
		}
		keys = append(keys, key)
	}
	if len(keys) == 0 {
		return nil, ErrSecret
	}
	return keys, nil
}

// isMessageID refuses what a header cannot carry, and the full stop: it ends the id
// in what is signed, so that with one in it another id could have the same signature.
func isMessageID(id string) bool {
	return id != "" && len(id) <= 256 && !strings.ContainsFunc(id, func(r rune) bool { return r <= ' ' || r > '~' || r == '.' })
}
