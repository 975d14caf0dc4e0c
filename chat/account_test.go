package chat

import (
	"strings"
	"testing"
)

func TestARoleHasAllThatThoseBeforeItHave(t *testing.T) {
	for i, r := range Roles {
		for j, needed := range Roles {
			if got := r.Has(needed); got != (i >= j) {
				t.Errorf("%s has what %s has: %t", r, needed, got)
			}
		}
		if r.Has("") || r.Has("root") || Role("").Has(r) || Role("root").Has(r) {
			t.Errorf("%s and a role that there is not", r)
		}
	}
}

func TestNamesThatLookAlikeAreOne(t *testing.T) {
	for given, want := range map[string]string{
		"Ada": "ada", " ada ": "ada", "ＡＤＡ": "ada", "王小明": "王小明", "a.b-c_d@example.org": "a.b-c_d@example.org", "É": "é", "e\u0301": "é", "7": "7",
	} {
		if got, ok := ParseName(given); !ok || got != want {
			t.Errorf("%q: %q, %t, want %q", given, got, ok, want)
		}
	}
	for _, given := range []string{"", " ", "a b", "a/b", "a\x00b", "a\u202eb", "<b>", "\xff", strings.Repeat("a", 65), "a\nb", "user:1", "\U0001F600"} {
		if got, ok := ParseName(given); ok {
			t.Errorf("%q is the name %q", given, got)
		}
	}
}

func TestAPasswordIsLongAndNotTheFirstThatAnybodyTries(t *testing.T) {
	for _, good := range []string{"correct horse", "一二三四五六七八九十", "          x", strings.Repeat("ab", 512)} {
		if !GoodPassword(good, "ada") {
			t.Errorf("%q is refused", good)
		}
	}
	for _, bad := range []string{"", "short", "123456789", "Password123", "aaaaaaaaaaaa", "bernadette", "\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", strings.Repeat("ab", 513)} {
		if GoodPassword(bad, "Bernadette") {
			t.Errorf("%q is let pass", bad)
		}
	}
}
