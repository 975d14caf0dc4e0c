package chat_test

import (
	"math"
	"strings"
	"testing"

	"semel/chat"
)

func TestACostIsRoundedUpOnceOverTheWhole(t *testing.T) {
	price := chat.Price{Input: 150_000, Cached: 75_000, Output: 600_000}
	for name, c := range map[string]struct {
		price chat.Price
		usage chat.Usage
		want  int64
	}{
		"nothing used":                       {price, chat.Usage{}, 0},
		"free":                               {chat.Price{}, chat.Usage{InputTokens: 1 << 40, OutputTokens: 1 << 40}, 0},
		"one token is rounded up":            {price, chat.Usage{InputTokens: 1}, 1},
		"each part a fraction, one cent":     {price, chat.Usage{InputTokens: 2, CachedTokens: 1, OutputTokens: 1}, 1},
		"exactly one micro":                  {chat.Price{Input: 1_000_000}, chat.Usage{InputTokens: 1}, 1},
		"exactly is not rounded":             {chat.Price{Input: 500_000, Output: 500_000}, chat.Usage{InputTokens: 1, OutputTokens: 1}, 1},
		"one over is":                        {chat.Price{Input: 500_001, Output: 500_000}, chat.Usage{InputTokens: 1, OutputTokens: 1}, 2},
		"a million of each":                  {price, chat.Usage{InputTokens: 1_000_000, OutputTokens: 1_000_000}, 750_000},
		"cached tokens are among the input":  {price, chat.Usage{InputTokens: 1_000_000, CachedTokens: 400_000}, 90_000 + 30_000},
		"all of it cached":                   {price, chat.Usage{InputTokens: 1_000_000, CachedTokens: 1_000_000}, 75_000},
		"more cached than input counts once": {price, chat.Usage{InputTokens: 1_000_000, CachedTokens: 9_000_000}, 75_000},
		"counts below zero count as zero":    {price, chat.Usage{InputTokens: -5, CachedTokens: -5, OutputTokens: -5}, 0},
		"a cached count below zero":          {price, chat.Usage{InputTokens: 1_000_000, CachedTokens: -1_000_000}, 150_000},
		"a price below zero is no credit":    {chat.Price{Input: -1, Cached: -1, Output: -1}, chat.Usage{InputTokens: 1 << 30, OutputTokens: 1 << 30}, 0},
		"an overflow saturates":              {chat.Price{Input: math.MaxInt64, Output: math.MaxInt64}, chat.Usage{InputTokens: math.MaxInt64, OutputTokens: math.MaxInt64}, math.MaxInt64},
		"the largest product that fits":      {chat.Price{Output: 1_000_000}, chat.Usage{OutputTokens: math.MaxInt64}, math.MaxInt64},
		"a product beyond 64 bits that fits": {chat.Price{Output: 1_000_000}, chat.Usage{OutputTokens: 1 << 60}, 1 << 60},
	} {
		if got := c.price.Cost(c.usage); got != c.want {
			t.Errorf("%s: %+v of %+v costs %d, want %d", name, c.price, c.usage, got, c.want)
		}
	}
}

func FuzzCost(f *testing.F) {
	f.Add(int64(150_000), int64(75_000), int64(600_000), int64(10), int64(3), int64(7))
	f.Add(int64(math.MaxInt64), int64(math.MinInt64), int64(-1), int64(math.MinInt64), int64(math.MaxInt64), int64(1))
	f.Fuzz(func(t *testing.T, pi, pc, po, in, cached, out int64) {
		p, u := chat.Price{Input: pi, Cached: pc, Output: po}, chat.Usage{InputTokens: in, CachedTokens: cached, OutputTokens: out}
		cost := p.Cost(u)
		if cost < 0 {
			t.Errorf("%+v of %+v costs %d", p, u, cost)
		}
		if u.OutputTokens < math.MaxInt64 {
			u.OutputTokens++
			if more := p.Cost(u); more < cost {
				t.Errorf("one token more costs less: %d, before %d", more, cost)
			}
		}
	})
}

func TestOnlyAPriceOfZeroIsFree(t *testing.T) {
	if !(chat.Price{}).Free() {
		t.Error("the zero price is not free")
	}
	for _, p := range []chat.Price{{Input: 1}, {Cached: 1}, {Output: 1}} {
		if p.Free() {
			t.Errorf("%+v is free", p)
		}
	}
}

func TestAnEstimateCountsLatinByFourAndOthersOneByOne(t *testing.T) {
	for in, want := range map[string]int64{
		"": 0, "a": 1, "four": 1, "fives": 2, "你好": 2, "你好 ok": 3, "🙂": 1, "\xff\xff": 2, strings.Repeat("a", 4000): 1000,
	} {
		if got := chat.EstimateTokens(in); got != want {
			t.Errorf("EstimateTokens(%.20q) = %d, want %d", in, got, want)
		}
	}
}
