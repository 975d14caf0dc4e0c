package chat

import (
	"math/big"
	"unicode/utf8"
)

// A Price is micro-units of the currency per million tokens, frozen with the
// request at acceptance.
type Price struct {
	Input, Cached, Output int64
}

// Free reports whether every part of p is zero.
func (p Price) Free() bool { return p == Price{} }

// Cost returns the price of u in micro-units, rounded up once over the whole.
// Cached tokens are a subset of the input tokens and cost the cached price.
// Counts below zero count as zero; a result too large for an int64 is the
// largest int64, so that no count can turn into a credit.
func (p Price) Cost(u Usage) int64 {
	in, cached, out := max(u.InputTokens, 0), max(u.CachedTokens, 0), max(u.OutputTokens, 0)
	cached = min(cached, in)
	sum := new(big.Int)
	for _, part := range [][2]int64{{in - cached, p.Input}, {cached, p.Cached}, {out, p.Output}} {
		sum.Add(sum, new(big.Int).Mul(big.NewInt(part[0]), big.NewInt(max(part[1], 0))))
	}
	sum.Add(sum, big.NewInt(999_999))
	sum.Quo(sum, big.NewInt(1_000_000))
	if !sum.IsInt64() {
		return 1<<63 - 1
	}
	return sum.Int64()
}

// EstimateTokens guesses how many tokens s is: four bytes of Latin text or one
// rune of anything else. It is used where a provider did not count.
func EstimateTokens(s string) int64 {
	latin, other := 0, 0
	for i := 0; i < len(s); {
		if s[i] < utf8.RuneSelf {
			latin++
			i++
			continue
		}
		_, n := utf8.DecodeRuneInString(s[i:])
		other++
		i += n
	}
	return int64((latin+3)/4 + other)
}
