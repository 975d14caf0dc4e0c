package config

import (
	"bytes"
	"reflect"
	"strings"
	"testing"
)

func TestAnAlertTakesThePlaceOfTheOneOfItsKind(t *testing.T) {
	c := mustLoad(t, `
[[alerts]]
on = "outbox_oldest"
above = "1m30s"
[[alerts]]
on = "duplicate_rate"
above = 1
[[alerts]]
on = "disk_free"
below = "2GiB"
[[alerts]]
on = "latency"
off = true
`)
	got := map[string]Alert{}
	for _, a := range c.Alerts {
		got[a.On] = a
	}
	want := map[string]Alert{}
	for _, a := range defaultAlerts() {
		want[a.On] = a
	}
	want["outbox_oldest"] = Alert{On: "outbox_oldest", Threshold: 90}
	want["duplicate_rate"] = Alert{On: "duplicate_rate", Threshold: 1}
	want["disk_free"] = Alert{On: "disk_free", Threshold: 2 << 30, Below: true}
	want["latency"] = Alert{On: "latency", Threshold: 120, Off: true}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	var out bytes.Buffer
	if err := c.Print(&out, true); err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{`above = "1m30s"  # semel.toml:4`, `below = 2147483648  # semel.toml:10`, `off = true  # semel.toml:13`, `above = "10m"  # default`} {
		if !strings.Contains(out.String(), line) {
			t.Errorf("printed without %q:\n%s", line, out.String())
		}
	}
	if again := mustLoad(t, out.String()); !reflect.DeepEqual(again.Alerts, c.Alerts) {
		t.Errorf("read again: %+v, want %+v", again.Alerts, c.Alerts)
	}
}
