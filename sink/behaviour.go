package sink

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A Behaviour says how deliveries are answered and effects called back.
type Behaviour struct {
	Answer   string `json:"answer"`
	Callback string `json:"callback"`
	// Times is how many deliveries of one id Answer is for; the ones after are answered
	// as they should be. 0 is all of them.
	Times      int      `json:"times"`
	Delay      Duration `json:"delay"` // of a slow answer, of a late callback
	RetryAfter Duration `json:"retryAfter"`
}

// How a delivery is answered.
const (
	AnswerOK     = "ok"     // executed, 200
	AnswerSlow   = "slow"   // executed, and 200 after Delay
	AnswerFail   = "fail"   // executed, and then 500
	AnswerDrop   = "drop"   // executed, and then the connection is closed
	AnswerRefuse = "refuse" // 422, not executed
	AnswerGone   = "gone"   // 410, not executed
	AnswerBusy   = "busy"   // 429 with Retry-After, not executed
)

// How what was executed is called back.
const (
	CallbackOK         = "ok"         // once, ok
	CallbackNotOK      = "not-ok"     // once, not ok
	CallbackTwice      = "twice"      // the same verdict twice, in two messages
	CallbackContradict = "contradict" // ok, and then not ok
	CallbackEarly      = "early"      // ok, before the delivery is answered
	CallbackLate       = "late"       // ok, after Delay
	CallbackNever      = "never"
)

// Answers and Callbacks are all there are.
var (
	Answers   = []string{AnswerOK, AnswerSlow, AnswerFail, AnswerDrop, AnswerRefuse, AnswerGone, AnswerBusy}
	Callbacks = []string{CallbackOK, CallbackNotOK, CallbackTwice, CallbackContradict, CallbackEarly, CallbackLate, CallbackNever}
)

// DefaultBehaviour is a good receiver. Another answer is for the first delivery of an
// id only, so that what follows shows what becomes of it.
func DefaultBehaviour() Behaviour {
	return Behaviour{Answer: AnswerOK, Callback: CallbackOK, Times: 1, Delay: Duration(20 * time.Second), RetryAfter: Duration(5 * time.Second)}
}

// ParseBehaviour reads "answer=slow,callback=twice,times=1,delay=20s,retry-after=5s".
// What is not said is as in [DefaultBehaviour].
func ParseBehaviour(text string) (Behaviour, error) {
	b := DefaultBehaviour()
	for part := range strings.SplitSeq(text, ",") {
		if part = strings.TrimSpace(part); part == "" {
			continue
		}
		key, value, _ := strings.Cut(part, "=")
		if err := b.set(key, value); err != nil {
			return Behaviour{}, err
		}
	}
	return b, b.check()
}

var behaviourKeys = []string{"answer", "callback", "times", "delay", "retry-after"}

func (b *Behaviour) set(key, value string) (err error) {
	switch key {
	case "answer":
		b.Answer = value
	case "callback":
		b.Callback = value
	case "times":
		b.Times, err = strconv.Atoi(value)
	case "delay":
		err = b.Delay.UnmarshalText([]byte(value))
	case "retry-after":
		err = b.RetryAfter.UnmarshalText([]byte(value))
	default:
		return fmt.Errorf("behaviour: there is no %q; there are %s", key, strings.Join(behaviourKeys, ", "))
	}
	if err != nil {
		return fmt.Errorf("behaviour: %s = %q cannot be read", key, value)
	}
	return nil
}

const longest = Duration(24 * time.Hour)

func (b Behaviour) check() error {
	switch {
	case !slices.Contains(Answers, b.Answer):
		return fmt.Errorf("behaviour: answer must be one of %s", strings.Join(Answers, ", "))
	case !slices.Contains(Callbacks, b.Callback):
		return fmt.Errorf("behaviour: callback must be one of %s", strings.Join(Callbacks, ", "))
	case b.Times < 0 || b.Times > 1000:
		return fmt.Errorf("behaviour: times must be 0 to 1000")
	case b.Delay < 0 || b.Delay > longest || b.RetryAfter < 0 || b.RetryAfter > longest:
		return fmt.Errorf("behaviour: delay and retry-after must be at most %s", longest)
	}
	return nil
}

// calls returns the verdicts that follow the answer, in order, and how long after it.
func (b Behaviour) calls() (verdicts []bool, wait time.Duration) {
	switch b.Callback {
	case CallbackOK:
		return []bool{true}, 0
	case CallbackNotOK:
		return []bool{false}, 0
	case CallbackTwice:
		return []bool{true, true}, 0
	case CallbackContradict:
		return []bool{true, false}, 0
	case CallbackLate:
		return []bool{true}, time.Duration(b.Delay)
	}
	return nil, 0 // never, or before the answer
}

func (b Behaviour) String() string {
	return fmt.Sprintf("answer=%s,callback=%s,times=%d,delay=%s,retry-after=%s", b.Answer, b.Callback, b.Times, b.Delay, b.RetryAfter)
}

// A Duration is written like 20s.
type Duration time.Duration

func (d Duration) String() string { return time.Duration(d).String() }

// MarshalText implements [encoding.TextMarshaler].
func (d Duration) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText implements [encoding.TextUnmarshaler].
func (d *Duration) UnmarshalText(text []byte) error {
	v, err := time.ParseDuration(string(text))
	*d = Duration(v)
	return err
}
