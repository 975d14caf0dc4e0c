package ops_test

import (
	"bytes"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"semel/chat"
	"semel/db/dbtest"
	"semel/ops"
)

// everyRule is one rule of each kind: each alert is a metric.
var everyRule = []ops.Rule{
	{On: ops.OnDuplicateRate, Threshold: 1}, {On: ops.OnDuplicateErrors, Threshold: 1}, {On: ops.OnDeadLetters}, {On: ops.OnOldestUnfinished, Threshold: 1},
	{On: ops.OnLatency, Threshold: 1}, {On: ops.OnOutboxOldest, Threshold: 1}, {On: ops.OnDiskFree, Threshold: 1, Below: true}, {On: ops.OnInvariantViolations},
}

// scraped returns everything there is to scrape, of a monitor that has seen something of
// everything, and the text itself.
func scraped(t *testing.T) (map[string]*dto.MetricFamily, string) {
	t.Helper()
	meter := ops.NewMeter()
	backup := &ops.Backup{At: chat.Stamp{Time: time.Unix(1_800_000_000, 0)}}
	m, err := ops.New(t.Context(), ops.Options{
		DB: dbtest.Open(t), Meter: meter, Version: "1.2", Rules: everyRule, Calls: func() int64 { return 7 }, LastBackup: func() *ops.Backup { return backup },
	})
	if err != nil {
		t.Fatal(err)
	}
	meter.Arrived(chat.DecisionReplayed)
	meter.Arrived(chat.DecisionReplayed)
	meter.Refused("key_reused")
	meter.Attempted(chat.OutcomeUnknown)
	meter.Answered(1_500_000, 40*time.Millisecond, 2*time.Second)
	meter.Answered(0, 0, 3*time.Hour)
	meter.Delivered(chat.OutcomeOK, time.Second)
	meter.Delivered(chat.OutcomeDefinite, time.Second)
	if _, err := m.Verify(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := m.WriteMetrics(t.Context(), &out); err != nil {
		t.Fatal(err)
	}
	text := out.String()
	p := expfmt.NewTextParser(model.LegacyValidation)
	families, err := p.TextToMetricFamilies(&out)
	if err != nil {
		t.Fatal(err)
	}
	return families, text
}

func TestMetricsKeepTheConventionsAndSayWhatHappened(t *testing.T) {
	families, text := scraped(t)
	problems, err := promlint.New(strings.NewReader(text)).Lint()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		if strings.HasPrefix(p.Metric, "semel_") {
			t.Errorf("%s: %s", p.Metric, p.Text)
		}
	}
	value := func(name string, labels ...string) float64 {
		t.Helper()
		for _, m := range families[name].GetMetric() {
			var has []string
			for _, l := range m.GetLabel() {
				has = append(has, l.GetName()+"="+l.GetValue())
			}
			if strings.Join(has, ",") == strings.Join(labels, ",") {
				return m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
			}
		}
		t.Errorf("there is no %s %v", name, labels)
		return math.NaN()
	}
	for _, c := range []struct {
		name  string
		label string
		want  float64
	}{
		{"semel_arrivals_total", "decision=replayed", 2}, {"semel_arrivals_total", "decision=first", 0}, {"semel_refused_total", "code=key_reused", 1},
		{"semel_attempts_total", "outcome=unknown", 1}, {"semel_model_calls_total", "", 7}, {"semel_charges_total", "", 2}, {"semel_charged_total", "currency=USD", 1.5},
		{"semel_first_token_seconds", "", 1}, {"semel_answer_seconds", "", 2}, {"semel_outbox_delivery_seconds", "", 1},
		{"semel_deliveries_total", "outcome=definite", 1}, {"semel_file_readable", "", 1}, {"semel_check_violations", "", 0}, {"semel_verified_ratio", "", 1},
		{"semel_lamp_ok", "lamp=calls", 0}, // seven calls that no row knows of
		{"semel_lamp_ok", "lamp=charges", 1}, {"semel_backup_timestamp_seconds", "", 1_800_000_000}, {"semel_alert_active", "alert=disk_free", 0},
	} {
		labels := strings.Fields(c.label)
		if got := value(c.name, labels...); got != c.want {
			t.Errorf("%s %s is %v, want %v", c.name, c.label, got, c.want)
		}
	}
	h := families["semel_answer_seconds"].GetMetric()[0].GetHistogram()
	if n := len(h.GetBucket()); h.GetBucket()[n-1].GetCumulativeCount() != 2 || h.GetBucket()[n-2].GetCumulativeCount() != 1 || h.GetSampleSum() != 10802 {
		t.Errorf("what was longer than every bound is lost: %v", h)
	}
	for _, name := range []string{"go_goroutines", "process_cpu_seconds_total"} {
		if families[name] == nil {
			t.Errorf("%s is missing", name)
		}
	}
	for name, f := range families {
		if n := len(f.GetMetric()); strings.HasPrefix(name, "semel_") && n > 10 {
			t.Errorf("%s has %d series", name, n)
		}
	}
}

// What is written about metrics and what is measured are the same.
func TestEveryMetricIsDescribedAndEveryOneThatIsNamedExists(t *testing.T) {
	families, _ := scraped(t)
	described, err := os.ReadFile("../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	for name := range families {
		if strings.HasPrefix(name, "semel_") && !strings.Contains(string(described), "`"+name+"`") {
			t.Errorf("docs/operations.md does not describe %s", name)
		}
	}
	for _, r := range everyRule {
		if !regexp.MustCompile(fmt.Sprintf("(?m)^\\| `%s` \\|", r.On)).Match(described) {
			t.Errorf("docs/operations.md does not say what to do about %s", r.On)
		}
	}
	files, err := filepath.Glob("../docs/monitoring/*")
	if err != nil || len(files) < 2 {
		t.Fatal(files, err)
	}
	named := regexp.MustCompile(`\b(semel|go|process)_[a-z0-9_]+`)
	for _, file := range append(files, "../docs/operations.md") {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for _, name := range named.FindAllString(string(b), -1) {
			n++
			base := name
			for _, suffix := range []string{"_bucket", "_sum", "_count"} {
				if f := families[strings.TrimSuffix(name, suffix)]; f.GetType() == dto.MetricType_HISTOGRAM {
					base = strings.TrimSuffix(name, suffix)
				}
			}
			if families[base] == nil {
				t.Errorf("%s names %s, which nothing measures", file, name)
			}
		}
		if n < 5 {
			t.Errorf("%s names %d metrics", file, n)
		}
	}
}
