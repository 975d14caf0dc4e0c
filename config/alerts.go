package config

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"
)

// An Alert says when something is worth an alarm.
type Alert struct {
	On        string
	Threshold float64 // in seconds, bytes, shares of 1 or counts
	Below     bool    // it fires below the threshold, not above
	Off       bool
}

// An alertKind is what an alert can be on.
type alertKind struct {
	on    string
	unit  alertUnit
	below bool
	usual float64 // the threshold of who sets none
}

type alertUnit int

const (
	inCounts alertUnit = iota
	inShares
	inSeconds
	inBytes
)

// alertKinds are all there are, in the order they are printed. Every one is in force
// unless it is off.
var alertKinds = []alertKind{
	{"duplicate_rate", inShares, false, 0.5},
	{"duplicate_errors", inCounts, false, 10},
	{"dead_letters", inCounts, false, 0},
	{"oldest_unfinished", inSeconds, false, 600},
	{"latency", inSeconds, false, 120},
	{"outbox_oldest", inSeconds, false, 600},
	{"disk_free", inBytes, true, 1 << 30},
	{"backup_age", inSeconds, false, 48 * 60 * 60},
	{"wal_bytes", inBytes, false, 256 << 20},
	{"invariant_violations", inCounts, false, 0},
}

func kindOfAlert(on string) *alertKind {
	i := slices.IndexFunc(alertKinds, func(k alertKind) bool { return k.on == on })
	if i < 0 {
		return nil
	}
	return &alertKinds[i]
}

func alertNames() (names []string) {
	for _, k := range alertKinds {
		names = append(names, k.on)
	}
	return names
}

func defaultAlerts() (list []Alert) {
	for _, k := range alertKinds {
		list = append(list, Alert{On: k.on, Threshold: k.usual, Below: k.below})
	}
	return list
}

// alertKeys are the keys of one [[alerts]]. The first says what the others mean.
var alertKeys = []key[Alert]{
	text("on", "What it is on: docs/operations.md says what each is and what to do about it.",
		func(a *Alert) *string { return &a.On }, oneOf(alertNames()...)),
	threshold("above", "It fires above this: a duration, a count, or a share of 1.", false),
	threshold("below", "It fires below this, in bytes or like \"1GiB\".", true),
	{
		name: "off", doc: "It never fires.",
		set: truth("off", "", func(a *Alert) *bool { return &a.Off }).set,
		get: func(a *Alert) string {
			if !a.Off {
				return `""`
			}
			return "true"
		},
	},
}

func threshold(name, doc string, below bool) key[Alert] {
	return key[Alert]{
		name: name, doc: doc,
		set: func(a *Alert, v value) error {
			k := kindOfAlert(a.On)
			if k == nil {
				return nil // on is missing, which is said
			}
			if k.below != below {
				return fmt.Errorf("%s is set with %s", a.On, map[bool]string{true: "below", false: "above"}[k.below])
			}
			n, err := k.parse(v)
			if err == nil {
				a.Threshold = n
			}
			return err
		},
		get: func(a *Alert) string {
			k := kindOfAlert(a.On)
			if k.below != below {
				return `""`
			}
			switch k.unit {
			case inSeconds:
				return quote(short(time.Duration(a.Threshold * float64(time.Second))))
			case inShares:
				return strconv.FormatFloat(a.Threshold, 'f', -1, 64)
			}
			return strconv.FormatInt(int64(a.Threshold), 10)
		},
	}
}

func (k alertKind) parse(v value) (float64, error) {
	n, whole := v.val.(int64)
	switch k.unit {
	case inShares:
		f, ok := v.val.(float64)
		if whole {
			f, ok = float64(n), true
		}
		if !ok || !(f >= 0 && f <= 1) {
			return 0, errors.New("must be a share from 0 to 1")
		}
		return f, nil
	case inSeconds:
		s, _ := v.val.(string)
		d, err := time.ParseDuration(s)
		if err != nil || d <= 0 {
			return 0, errors.New(`must be a duration like "10s", "5m" or "720h"`)
		}
		return d.Seconds(), nil
	case inBytes:
		if s, ok := v.val.(string); ok {
			n, whole = parseSize(s)
		}
		if !whole || n < 0 {
			return 0, errors.New("must be a whole number of bytes, or one with KiB, MiB or GiB")
		}
		return float64(n), nil
	}
	if !whole || n < 0 {
		return 0, errors.New("must be a whole number, 0 or more")
	}
	return float64(n), nil
}

// loadAlerts puts what is given in the place of the alert of its kind.
func (c *Config) loadAlerts(given []table) findings {
	var wrong findings
	seen := map[string]bool{}
	for i, t := range given {
		prefix := fmt.Sprintf("alerts[%d]", i)
		set, errs := known(t, "alerts", alertKeys)
		wrong = append(wrong, errs...)
		var a Alert
		origins, errs := setKeys(&a, set, prefix, alertKeys)
		wrong = append(wrong, errs...)
		_, above := set["above"]
		_, below := set["below"]
		k := kindOfAlert(a.On)
		switch {
		case set["on"].broken:
			continue
		case k == nil:
			wrong.add("%s (%s): on is missing", prefix, t.origin)
			continue
		case seen[a.On]:
			wrong.add("%s (%s): there is another alert on %q", prefix, t.origin, a.On)
			continue
		case !above && !below && !a.Off:
			wrong.add("%s (%s): say when: above or below, or off = true", prefix, t.origin)
		}
		seen[a.On] = true
		if !above && !below {
			a.Threshold = k.usual
		}
		a.Below = k.below
		at := slices.IndexFunc(c.Alerts, func(other Alert) bool { return other.On == a.On })
		c.Alerts[at] = a
		c.addOrigins(fmt.Sprintf("alerts[%d]", at), origins)
	}
	return wrong
}
