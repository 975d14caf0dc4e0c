package views

import (
	"strconv"
	"strings"
	"time"
)

// Money writes an amount of millionths: at least two decimals, and no more than it
// has.
func (l *Locale) Money(currency string, micros int64) string {
	sign := ""
	if micros < 0 {
		sign, micros = "−", -micros
	}
	fraction := strconv.FormatInt(1_000_000+micros%1_000_000, 10)[1:]
	for len(fraction) > 2 && fraction[len(fraction)-1] == '0' {
		fraction = fraction[:len(fraction)-1]
	}
	amount := l.Number(micros/1_000_000) + "." + fraction
	switch currency {
	case "USD":
		return sign + "$" + amount
	case "EUR":
		return sign + "€" + amount
	case "GBP":
		return sign + "£" + amount
	case "CNY":
		return sign + "¥" + amount
	}
	return sign + amount + " " + currency
}

// Number writes a number with its thousands apart. English and Chinese do it alike.
func (l *Locale) Number(n int64) string {
	s := strconv.FormatInt(n, 10)
	digits := strings.TrimPrefix(s, "-")
	var b strings.Builder
	b.WriteString(s[:len(s)-len(digits)])
	for i, d := range digits {
		if i > 0 && (len(digits)-i)%3 == 0 {
			b.WriteByte(',')
		}
		b.WriteRune(d)
	}
	return b.String()
}

// seconds writes how long something took, for people.
func (l *Locale) seconds(d time.Duration) string {
	if d < time.Second {
		return l.T("time.millis", "n", strconv.FormatInt(d.Milliseconds(), 10))
	}
	if d < 10*time.Second {
		return l.T("time.seconds", "s", strconv.FormatFloat(d.Round(100*time.Millisecond).Seconds(), 'f', -1, 64))
	}
	s := int64(d.Round(time.Second) / time.Second)
	if s < 60 {
		return l.T("time.seconds", "s", strconv.FormatInt(s, 10))
	}
	return l.T("time.minutes", "m", strconv.FormatInt(s/60, 10), "s", strconv.FormatInt(s%60, 10))
}
