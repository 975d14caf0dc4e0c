package upkeep

import (
	"fmt"
	"slices"
	"time"
)

// Keep says how many backups stay.
type Keep struct {
	Newest  int // at least one
	Weekly  int // of so many weeks, from Monday and UTC, the last one of each
	Monthly int // of so many months, likewise
}

// old returns which of the backups that were made at these moments need not stay, by
// index. Nothing goes because of its age: weeks and months count that have a backup, so
// that who was away for a year finds what was there. What is of later than now was made
// by a clock that was wrong, then or now; it is judged apart, and takes the place of none
// that is not.
func (k Keep) old(made []time.Time, now time.Time) (list []int) {
	order := make([]int, len(made)) // the newest first
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return made[b].Compare(made[a]) })
	stays := map[int]bool{}
	for _, future := range []bool{true, false} {
		for _, rule := range []struct {
			most int
			span func(time.Time) string
		}{
			{max(k.Newest, 1), nil},
			{k.Weekly, week},
			{k.Monthly, month},
		} {
			last, spans := "", 0
			for n, i := range order {
				if made[i].After(now) != future {
					continue
				}
				span := fmt.Sprint(n)
				if rule.span != nil {
					span = rule.span(made[i])
				}
				if span == last {
					continue
				}
				if spans++; spans > rule.most {
					break
				}
				last, stays[i] = span, true
			}
		}
	}
	for i := range made {
		if !stays[i] {
			list = append(list, i)
		}
	}
	return list
}

func week(t time.Time) string {
	year, n := t.UTC().ISOWeek()
	return fmt.Sprint(year, " week ", n)
}

func month(t time.Time) string { return t.UTC().Format("2006-01") }
