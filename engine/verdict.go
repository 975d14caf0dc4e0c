package engine

import (
	"fmt"
	"math/rand/v2"
	"time"

	"semel/chat"
	"semel/llm"
)

// A decision is what happens after a failed call.
type decision struct {
	retry   bool
	reason  string // of the retry
	wait    time.Duration
	refused int64
	failure chat.Failure
	waste   bool
}

const (
	backoffBase   = time.Second
	backoffMost   = time.Minute
	longestRetry  = 60 * time.Second // a Retry-After above it is not waited for
	crashesAtOnce = 2                // re-runs after a death without a wait
)

// verdict is contract section 4 as one pure function but for its jitter.
func verdict(r chat.Request, m Model, le *llm.Error, text bool) decision {
	d := decision{
		refused: r.Refused + 1,
		failure: chat.Failure{Code: le.Code, Outcome: le.Outcome, Retry: chat.RetryExplicit, Detail: le.Detail},
		waste:   le.Outcome == chat.OutcomeUnknown || (le.Outcome == chat.OutcomeDefinite && text),
	}
	if d.failure.Code == "" {
		d.failure.Code = "provider_error"
	}
	exhausted := d.refused >= m.MaxAttempts
	switch {
	case le.Outcome == chat.OutcomeUnknown:
		d.retry, d.reason = m.Rerun && !exhausted, "rerun"
	case text, le.Outcome == chat.OutcomeDefinite && !le.Transient:
		// partial or permanent: a person decides
	case le.RetryAfter > longestRetry:
		d.failure.Retry = chat.RetryAuto
		d.failure.Detail = fmt.Sprintf("The model asks to wait for %s.", le.RetryAfter.Round(time.Second))
	default:
		d.failure.Retry = chat.RetryAuto
		d.retry, d.reason = !exhausted, "engine_retry"
	}
	if d.retry {
		d.wait = max(backoff(int(d.refused-1), backoffBase, backoffMost), le.RetryAfter)
	}
	return d
}

// backoff is exponential with full jitter: anywhere between nothing and base
// doubled n times, never above most.
func backoff(n int, base, most time.Duration) time.Duration {
	d := most
	if n < 32 && base<<n > 0 {
		d = min(base<<n, most)
	}
	return rand.N(d)
}
