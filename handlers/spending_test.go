package handlers_test

import (
	"testing"
	"time"

	"semel/chat"
)

func TestSpendingIsSummedUpByDayAndUser(t *testing.T) {
	d := openDoor(t)
	type sums struct {
		Spending []struct {
			Day              string
			UserID, Answers  int64
			Charges, Refunds chat.Money
		}
	}
	var none, got sums
	d.get("/api/ops/spending").wants(200).into(&none)
	if none.Spending == nil || len(none.Spending) != 0 {
		t.Errorf("before anything was spent: %+v", none)
	}
	_, _, rec := d.answered("[[echo yes]]")
	d.get("/api/ops/spending").wants(200).into(&got)
	today := time.Now().UTC().Format(time.DateOnly)
	if len(got.Spending) != 1 || got.Spending[0].Answers != 1 || got.Spending[0].Charges != *rec.Cost || rec.Cost.Micros == 0 {
		t.Errorf("the sums are %+v, one answer cost %+v", got, rec.Cost)
	}
	if day := got.Spending[0].Day; day > today || day < time.Now().UTC().AddDate(0, 0, -1).Format(time.DateOnly) {
		t.Errorf("the day is %s", day)
	}
	d.get("/api/ops/spending?from=2020-01-01&to=2020-12-31").wants(200).into(&none)
	if len(none.Spending) != 0 {
		t.Errorf("of another year: %+v", none)
	}
	for _, q := range []string{"from=yesterday", "to=2026-02-30", "from=2026-02-02&to=2026-02-01", "from=2024-01-01&to=2025-01-02"} {
		d.get("/api/ops/spending?" + q).wants(400)
	}
}
