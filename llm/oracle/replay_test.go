package oracle

import (
	"testing"
)

func TestOurClientsHearWhatTheProvidersLibrariesHear(t *testing.T) {
	list := transcripts(t)
	url := replay(t, list)
	there := map[string]bool{}
	for _, s := range list {
		there[s.name] = true
		t.Run(s.name, func(t *testing.T) {
			sdk := theirs(t.Context(), s, s.at(url, inOne))
			for _, how := range []way{inOne, byBytes, gzipped} {
				we, err := ours(t.Context(), s, s.at(url, how))
				if err != nil {
					t.Fatalf("%s: %v", how, err)
				}
				compare(t, s.name, how, we, sdk)
			}
		})
	}
	for name := range differences {
		if !there[name] {
			t.Errorf("differences names %s, which is no transcript", name)
		}
	}
}

// compare fails the test where one hears something else than the other, unless
// differences says so.
func compare(t *testing.T, name string, how way, we, sdk heard) {
	t.Helper()
	known := map[string]difference{}
	for _, d := range differences[name] {
		known[d.field] = d
	}
	for _, field := range fields {
		got, want := we.field(field), sdk.field(field)
		d, listed := known[field]
		delete(known, field)
		switch {
		case listed && got == want:
			t.Errorf("%s: %s: both hear %q; it is no difference any more", how, field, got)
		case listed && (got != d.ours || want != d.sdk):
			t.Errorf("%s: %s: we hear %q, the library %q; known are %q and %q", how, field, got, want, d.ours, d.sdk)
		case !listed && got != want:
			t.Errorf("%s: %s: we hear %q, the library %q (errors: %v, %v)", how, field, got, want, we.err, sdk.err)
		}
		if we.failed || sdk.failed {
			break
		}
	}
	for field := range known {
		t.Errorf("%s: %s is listed as a difference and was not compared", how, field)
	}
}
