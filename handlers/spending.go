package handlers

import (
	"fmt"
	"net/http"
	"time"

	"semel/chat"
)

// spendingDays is how many days one call sums up.
const spendingDays = 366

// getSpending sums up the ledger by day (UTC) and user: from and to are days, both
// included; without them the last thirty.
func (s *server) getSpending(w http.ResponseWriter, r *http.Request) error {
	day := func(name string, otherwise time.Time) (time.Time, error) {
		v := r.URL.Query().Get(name)
		if v == "" {
			return otherwise, nil
		}
		t, err := time.Parse(time.DateOnly, v)
		if err != nil {
			return t, badRequest(name + " is a day, like 2026-01-31.")
		}
		return t, nil
	}
	to, err := day("to", time.Now().UTC().Truncate(24*time.Hour))
	if err != nil {
		return err
	}
	from, err := day("from", to.AddDate(0, 0, -29))
	if err != nil {
		return err
	}
	if days := int(to.Sub(from)/(24*time.Hour)) + 1; days < 1 || days > spendingDays {
		return badRequest(fmt.Sprintf("from is no later than to, and they are at most %d days.", spendingDays))
	}
	list, err := s.DB.Spending(r.Context(), from, to.AddDate(0, 0, 1))
	if err != nil {
		return err
	}
	type sum struct {
		Day         string     `json:"day"`
		UserID      int64      `json:"userId"`
		Answers     int64      `json:"answers"`
		Charges     chat.Money `json:"charges"`
		Adjustments chat.Money `json:"adjustments"`
		Waste       chat.Money `json:"waste"`
		Refunds     chat.Money `json:"refunds"`
	}
	out := struct {
		Spending []sum `json:"spending"`
	}{[]sum{}}
	money := func(micros int64) chat.Money { return chat.Money{Currency: s.Currency, Micros: micros} }
	for _, v := range list {
		out.Spending = append(out.Spending, sum{
			Day: v.Day.UTC().Format(time.DateOnly), UserID: v.UserID, Answers: v.Answers,
			Charges: money(v.Charges), Adjustments: money(v.Adjustments), Waste: money(v.Waste), Refunds: money(v.Refunds),
		})
	}
	s.writeJSON(w, http.StatusOK, out)
	return nil
}
