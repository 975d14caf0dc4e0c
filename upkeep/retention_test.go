package upkeep_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"semel/upkeep"
)

func day(s string) time.Time {
	at, err := time.Parse("2006-01-02 15:04", s+" 03:00")
	if err != nil {
		panic(err)
	}
	return at
}

// stay returns what is left of the backups of these moments.
func stay(k upkeep.Keep, made []time.Time, now time.Time) (list []time.Time) {
	old := upkeep.Old(k, made, now)
	for i, at := range made {
		if !slices.Contains(old, i) {
			list = append(list, at)
		}
	}
	return list
}

func TestTheNewestStayAndTheLastOfEachWeekAndMonth(t *testing.T) {
	usual := upkeep.Keep{Newest: 7, Weekly: 4, Monthly: 12}
	var year []time.Time // one a day, up to a Wednesday
	for at := day("2025-07-01"); !at.After(day("2026-09-02")); at = at.AddDate(0, 0, 1) {
		year = append(year, at)
	}
	for _, tt := range []struct {
		what string
		keep upkeep.Keep
		made []time.Time
		now  string
		want string // those that stay
	}{
		{"none", usual, nil, "2026-09-02", ""},
		{"one", usual, []time.Time{day("2020-01-01")}, "2026-09-02", "2020-01-01"},
		{"fourteen months of days", usual, year, "2026-09-02",
			"2025-10-31 2025-11-30 2025-12-31 2026-01-31 2026-02-28 2026-03-31 2026-04-30 2026-05-31 2026-06-30 2026-07-31 " + // months; August's is among the newest
				"2026-08-16 2026-08-23 " + // Sundays; this week's and the last one's are among the newest
				"2026-08-27 2026-08-28 2026-08-29 2026-08-30 2026-08-31 2026-09-01 2026-09-02"},
		{"the newest alone", upkeep.Keep{Newest: 2}, year, "2026-09-02", "2026-09-01 2026-09-02"},
		{"no number is none at all", upkeep.Keep{}, year, "2026-09-02", "2026-09-02"},
		{"weeks alone", upkeep.Keep{Newest: 1, Weekly: 3}, year, "2026-09-02", "2026-08-23 2026-08-30 2026-09-02"},
		{"the end of a year is in the first week of the next", upkeep.Keep{Newest: 1, Weekly: 2}, []time.Time{day("2025-12-28"), day("2025-12-29"), day("2025-12-31"), day("2026-01-04")}, "2026-01-04", "2025-12-28 2026-01-04"},
		{"nobody was there for years", usual, append(slices.Clone(year), day("2031-01-01")), "2031-01-01",
			"2025-11-30 2025-12-31 2026-01-31 2026-02-28 2026-03-31 2026-04-30 2026-05-31 2026-06-30 2026-07-31 2026-08-23 2026-08-28 2026-08-29 2026-08-30 2026-08-31 2026-09-01 2026-09-02 2031-01-01"},
		{"in any order", upkeep.Keep{Newest: 2}, []time.Time{day("2026-03-01"), day("2026-01-01"), day("2026-02-01")}, "2026-09-02", "2026-02-01 2026-03-01"},
		// A clock that went back to 1970 makes a backup there: it stays, and those of before do.
		{"a clock that was set back", upkeep.Keep{Newest: 2}, []time.Time{day("2026-01-01"), day("2026-01-02"), day("2026-01-03"), day("1970-01-02")}, "1970-01-02", "1970-01-02 2026-01-02 2026-01-03"},
		// It was ahead for a while: what it made then takes the place of none that is made now.
		{"a clock that was ahead", upkeep.Keep{Newest: 2}, []time.Time{day("2026-01-01"), day("2026-01-02"), day("2026-01-03"), day("2099-01-01"), day("2099-01-02"), day("2099-01-03")}, "2026-01-03",
			"2026-01-02 2026-01-03 2099-01-02 2099-01-03"},
	} {
		var got []string
		for _, at := range stay(tt.keep, tt.made, day(tt.now)) {
			got = append(got, at.Format(time.DateOnly))
		}
		slices.Sort(got)
		if strings.Join(got, " ") != tt.want {
			t.Errorf("%s:\ngot  %s\nwant %s", tt.what, strings.Join(got, " "), tt.want)
		}
	}
}

// Whatever moments there are, whatever the clock says.
func TestWhatStaysHasTheNewestAndABound(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		k := upkeep.Keep{Newest: rapid.IntRange(0, 9).Draw(t, "newest"), Weekly: rapid.IntRange(0, 6).Draw(t, "weekly"), Monthly: rapid.IntRange(0, 14).Draw(t, "monthly")}
		at := rapid.Custom(func(t *rapid.T) time.Time {
			return time.Unix(rapid.Int64Range(0, 100*365).Draw(t, "day")*86400+rapid.Int64Range(0, 86399).Draw(t, "second"), 0)
		})
		made := rapid.SliceOfN(at, 0, 80).Draw(t, "made")
		now := at.Draw(t, "now")
		left := stay(k, made, now)
		if most := 2 * (max(k.Newest, 1) + k.Weekly + k.Monthly); len(left) > most {
			t.Fatalf("%d stay of %d, at the most %d", len(left), len(made), most)
		}
		var past, past2 []time.Time
		for _, m := range made {
			if !m.After(now) {
				past = append(past, m)
			}
		}
		for _, m := range left {
			if !m.After(now) {
				past2 = append(past2, m)
			}
		}
		newest := func(list []time.Time) time.Time { return slices.MaxFunc(list, time.Time.Compare) }
		if len(made) > 0 && (len(left) == 0 || !newest(left).Equal(newest(made))) {
			t.Fatalf("the newest of all is gone: %v of %v", left, made)
		}
		if len(past) > 0 && (len(past2) == 0 || !newest(past2).Equal(newest(past))) {
			t.Fatalf("the newest that is not of the future is gone: %v of %v", left, made)
		}
		if len(past2) < min(len(past), max(k.Newest, 1)) {
			t.Fatalf("only %d of %d stay", len(past2), len(past))
		}
		if again := stay(k, left, now); len(again) != len(left) {
			t.Fatalf("doing it again leaves %v of %v", again, left)
		}
	})
}

// Day by day, with days without one: what stays reaches as far back as it should, however
// often it was thinned out on the way.
func TestWhatStaysReachesBackWeeksAndMonths(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		k := upkeep.Keep{Newest: 7, Weekly: 4, Monthly: 12}
		var all, left []time.Time
		now := day("2024-01-01")
		for range rapid.IntRange(30, 300).Draw(t, "days") {
			now = now.Add(24 * time.Hour)
			if rapid.IntRange(0, 9).Draw(t, "chance") == 0 {
				continue
			}
			all = append(all, now)
			left = stay(k, append(left, now), now)
		}
		if want := stay(k, all, now); !slices.EqualFunc(left, want, time.Time.Equal) {
			t.Fatalf("day by day there stay\n%v, at once\n%v", left, want)
		}
	})
}

func TestOnlyBackupsOfThisDatabaseAreEverRemoved(t *testing.T) {
	d, dir := open(t)
	foreign := []string{"notes.txt", "semel-2020.db", "other-20000101T000000Z.db", "semel-20000101T000000Z.db.gz", "semel-20000101T000000Z.age", "semel-20000101T000000Z.db.age.age", "semel-20001301T000000Z.db"}
	for _, name := range foreign {
		write(t, filepath.Join(dir, name), "theirs")
	}
	if err := os.MkdirAll(filepath.Join(dir, "semel-20000102T000000Z.db"), 0o700); err != nil { // a folder
		t.Fatal(err)
	}
	for _, ours := range []string{"semel-20000101T000000Z.db", "semel-20000101T000001Z.db.age", "semel-20000101T000002Z.db"} {
		write(t, filepath.Join(dir, ours), "ours")
	}
	k := upkeep.New(upkeep.WithSpace(upkeep.Options{DB: d, Keep: upkeep.Keep{Newest: 2}, Directory: dir}, plenty))
	defer k.Stop()
	done, err := k.Begin()
	if err != nil {
		t.Fatal(err)
	}
	b := <-done
	if b.Err != nil {
		t.Fatal(b.Err)
	}
	want := append(slices.Clone(foreign), "semel-20000102T000000Z.db", "semel-20000101T000002Z.db", filepath.Base(b.Backup.Path))
	slices.Sort(want)
	if got := names(t, dir); !slices.Equal(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
}
