package views

import (
	"math"
	"strings"
	"testing"
	"time"

	"semel/chat"
)

func TestALampSaysByIconWordAndCountsHowItStands(t *testing.T) {
	for _, l := range Locales {
		p := OpsPage{Frame: Frame{Locale: l}}
		seen := map[string]bool{}
		for _, v := range []OpsLamp{{State: "ok", Left: 3, Right: 3}, {State: "pending", Left: 3, Right: 5, InFlight: 2}, {State: "broken", Left: 4, Right: 3}} {
			p.Stats.ModelCalls, p.Stats.Charged = v, v
			for _, lamp := range p.lamps() {
				if lamp.state != v.State || lamp.says == "" || (v.State == "ok") != strings.Contains(lamp.counts, "=") {
					t.Errorf("%+v", lamp)
				}
				seen[lamp.icon+lamp.word] = true
			}
		}
		if len(seen) != 3 {
			t.Errorf("%s: the lamps look like %v", l.Tag, seen)
		}
	}
}

// Each alert that can be configured has its words and leads to where one sees why.
func TestAnAlertSaysWhatIsWrongAndWhere(t *testing.T) {
	for _, l := range Locales {
		p := OpsPage{Frame: Frame{Locale: l}}
		for on, want := range map[string]string{
			"duplicate_rate": "60 %", "duplicate_errors": "12", "dead_letters": "3", "oldest_unfinished": "15 min", "latency": "130", "outbox_oldest": "15 min",
			"disk_free": "512 MiB", "invariant_violations": "1",
		} {
			value := map[string]float64{"duplicate_rate": 0.6, "duplicate_errors": 12, "dead_letters": 3, "oldest_unfinished": 900, "latency": 7900, "outbox_oldest": 900, "disk_free": 512 << 20, "invariant_violations": 1}[on]
			if on == "latency" {
				want = "2 h"
			}
			text, to := p.alert(OpsAlert{On: on, Value: value})
			if !strings.Contains(text, want) || strings.Contains(text, on) || to == "/ops" {
				t.Errorf("%s: %q to %s, want %s in it", on, text, to, want)
			}
		}
	}
}

func TestALineHasGapsWhereNothingIsKnown(t *testing.T) {
	nan := math.NaN()
	if v := lineOf([]float64{nan, 0, 1, nan, nan, 0.5, nan}, 1, "good"); len(v.stretches) != 2 || v.stretches[0] != "16.7,97.0 33.3,3.0" || v.stretches[1] != "83.3,50.0 83.3,50.0" {
		t.Errorf("%q", v.stretches)
	}
	if v := lineOf([]float64{nan, nan}, 1, "good"); len(v.stretches) != 0 {
		t.Errorf("%q", v.stretches)
	}
	for v, want := range map[float64]float64{0: 1, 0.03: 0.05, 1: 1, 1.2: 2, 7: 10, 2_100_000: 5_000_000} {
		if got := niceTop(v); math.Abs(got-want) > want/1e9 {
			t.Errorf("the top above %v is %v, want %v", v, got, want)
		}
	}
}

func TestWhyAnArrivalWasADuplicateDependsOnWhatItMet(t *testing.T) {
	at := time.UnixMilli(1_700_000_000_000)
	p := OpsRequestPage{Frame: Frame{Locale: Locales[0]}, Receipt: Receipt{Transitions: []Transition{
		{At: at, From: "new", To: "pending"}, {At: at.Add(2 * time.Second), From: "pending", To: "generating", Attempt: 1},
		{At: at.Add(4 * time.Second), From: "generating", To: "failed", Attempt: 1}, {At: at.Add(6 * time.Second), From: "failed", To: "pending", Attempt: 1},
		{At: at.Add(8 * time.Second), From: "pending", To: "generating", Attempt: 2},
	}}}
	for _, tt := range []struct {
		after    time.Duration
		decision string
		want     string
	}{
		{0, "first", "No duplicate: this"}, {time.Second, "joined", "waiting for its turn"}, {3 * time.Second, "joined", "attempt 1 was being"},
		{5 * time.Second, "replayed", "only a person may restart"}, {5 * time.Second, "restarted", "started another attempt"}, {7 * time.Second, "joined", "waiting"},
		{9 * time.Second, "joined", "attempt 2 was being"}, {9 * time.Second, "conflict", "other content"}, {9 * time.Second, "expired", "deleted"},
	} {
		a := Arrival{At: at.Add(tt.after), Decision: chat.Decision(tt.decision)}
		if got := p.why(a); !strings.Contains(got, tt.want) {
			t.Errorf("%s after %s: %q", tt.decision, tt.after, got)
		}
	}
}
