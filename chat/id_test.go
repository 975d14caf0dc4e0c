package chat_test

import (
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/oklog/ulid/v2"

	"semel/chat"
)

func TestAnIDIsTakenInItsCanonicalForm(t *testing.T) {
	const u, v = "01ARZ3NDEKTSV4RRFFQ69G5FAV", "f47ac10b-58cc-4372-a567-0e02b2c3d479"
	for name, c := range map[string]struct{ in, want string }{
		"a ULID stays":                             {u, u},
		"a ULID in lower case goes to upper":       {strings.ToLower(u), u},
		"a ULID in mixed case goes to upper":       {"01arZ3NDEKTSV4RRFFQ69G5FaV", u},
		"the largest ULID":                         {"7ZZZZZZZZZZZZZZZZZZZZZZZZZ", "7ZZZZZZZZZZZZZZZZZZZZZZZZZ"},
		"26 digits are a ULID":                     {"01234567890123456789012345", "01234567890123456789012345"},
		"a UUID stays":                             {v, v},
		"a UUID in upper case goes to lower":       {strings.ToUpper(v), v},
		"26 letters with a U are no ULID":          {"01arz3ndektsv4rrffq69g5fau", "01arz3ndektsv4rrffq69g5fau"},
		"26 letters with an I are no ULID":         {"91ARZ3NDEKTSV4RRFFQ69G5Fai", "91ARZ3NDEKTSV4RRFFQ69G5Fai"},
		"an l and an O are no ULID":                {"8lARZ3NDEKTSV4RRFFQ69G5FOv", "8lARZ3NDEKTSV4RRFFQ69G5FOv"},
		"the shortest":                             {"Aa0._:-z", "Aa0._:-z"},
		"the longest":                              {strings.Repeat("x", 64), strings.Repeat("x", 64)},
		"a business id keeps its case":             {"Order:2026-A_7.b", "Order:2026-A_7.b"},
		"a prefix with a UUID keeps its case":      {"order-" + strings.ToUpper(v), "order-" + strings.ToUpper(v)},
		"a UUID without hyphens is an ordinary id": {"F47AC10B58CC4372A5670E02B2C3D479", "F47AC10B58CC4372A5670E02B2C3D479"},
		"a UUID with a wrong digit is ordinary":    {"G47AC10B-58CC-4372-A567-0E02B2C3D479", "G47AC10B-58CC-4372-A567-0E02B2C3D479"},
		"hyphens in other places are ordinary":     {"F47AC10-B58CC-4372-A567-0E02B2C3D479", "F47AC10-B58CC-4372-A567-0E02B2C3D479"},
	} {
		got, err := chat.ParseID(c.in)
		if err != nil || got != c.want {
			t.Errorf("%s: ParseID(%q) = %q, %v, want %q", name, c.in, got, err, c.want)
		}
	}
}

func TestWhatIsNoIDIsRefusedWithAReason(t *testing.T) {
	for name, c := range map[string]struct{ in, says string }{
		"nothing":                 {"", "8 to 64"},
		"too short":               {"1234567", "has 7"},
		"too long":                {strings.Repeat("x", 65), "has 65"},
		"a ULID too large":        {"80000000000000000000000000", "0 to 7"},
		"a ULID far too large":    {"zzzzzzzzzzzzzzzzzzzzzzzzzz", "0 to 7"},
		"a space":                 {"abcd efgh", "character 5"},
		"a line feed at the end":  {"abcdefgh\n", "character 9"},
		"a NUL":                   {"abcd\x00efgh", "character 5"},
		"a slash":                 {"../../etc", "character 3"},
		"a letter beyond ASCII":   {"abcdefgé", "letters, digits"},
		"full-width digits":       {"０１２３４５６７", "letters, digits"},
		"bytes that are no UTF-8": {"\xff\xfe\xfd\xfc\xfb\xfa\xf9\xf8", "letters, digits"},
		"a percent sign":          {"abcd%20efgh", "character 5"},
		"quotes":                  {`"abcdefgh"`, "character 1"},
	} {
		got, err := chat.ParseID(c.in)
		if err == nil {
			t.Errorf("%s: ParseID(%q) = %q, want an error", name, c.in, got)
		} else if !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: ParseID(%q) says %q, want it to say %q", name, c.in, err, c.says)
		}
	}
}

func TestOnlyAULIDHasATime(t *testing.T) {
	at := time.Date(2026, 3, 4, 5, 6, 7, 89e6, time.UTC)
	var u ulid.ULID
	if err := u.SetTime(ulid.Timestamp(at)); err != nil {
		t.Fatal(err)
	}
	if got, ok := chat.IDTime(u.String()); !ok || !got.Equal(at) {
		t.Errorf("IDTime = %v, %t, want %v", got, ok, at)
	}
	for _, id := range []string{"", "order-1234", "f47ac10b-58cc-4372-a567-0e02b2c3d479", "01ARZ3NDEKTSV4RRFFQ69G5FAU", "8ZZZZZZZZZZZZZZZZZZZZZZZZZ"} {
		if got, ok := chat.IDTime(id); ok {
			t.Errorf("IDTime(%q) = %v, want none", id, got)
		}
	}
}

func TestMintedIDsAreCanonicalTimedAndDifferent(t *testing.T) {
	seen := map[string]bool{}
	before := time.Now().Add(-time.Millisecond)
	for range 1000 {
		id := chat.NewID()
		if got, err := chat.ParseID(id); err != nil || got != id {
			t.Fatalf("NewID() = %q, which ParseID makes %q, %v", id, got, err)
		}
		if at, ok := chat.IDTime(id); !ok || at.Before(before) || at.After(time.Now()) {
			t.Fatalf("NewID() = %q has time %v, %t", id, at, ok)
		}
		if seen[id] {
			t.Fatalf("NewID() = %q twice", id)
		}
		seen[id] = true
	}
}

func FuzzParseID(f *testing.F) {
	for _, s := range []string{
		"", "01ARZ3NDEKTSV4RRFFQ69G5FAV", "01arz3ndektsv4rrffq69g5fav", "8ZZZZZZZZZZZZZZZZZZZZZZZZZ", "F47AC10B-58CC-4372-A567-0E02B2C3D479",
		"order:42_7.x-Y", "1234567", "12345678", "01ARZ3NDEKTSV4RRFFQ69G5FAU", "abcd efgh", "\xff\xfe\xfd\xfc\xfb\xfa\xf9\xf8", strings.Repeat("a", 65),
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		id, err := chat.ParseID(s)
		if err != nil {
			return
		}
		if again, err := chat.ParseID(id); err != nil || again != id {
			t.Errorf("ParseID(%q) = %q is not canonical: it becomes %q, %v", s, id, again, err)
		}
		if !strings.EqualFold(id, s) {
			t.Errorf("ParseID(%q) = %q is another id", s, id)
		}
		if len(id) < 8 || len(id) > 64 || strings.ContainsFunc(id, func(r rune) bool {
			return r > unicode.MaxASCII || !unicode.IsLetter(r) && !unicode.IsDigit(r) && !strings.ContainsRune("._:-", r)
		}) {
			t.Errorf("ParseID(%q) = %q does not keep to the grammar", s, id)
		}
		// What reads as a ULID or a UUID has one form whatever its case.
		for _, other := range []string{strings.ToUpper(s), strings.ToLower(s)} {
			_, timed := chat.IDTime(id)
			if got, err := chat.ParseID(other); timed && (err != nil || got != id) {
				t.Errorf("the ULID %q is %q and, written %q, %q, %v", s, id, other, got, err)
			}
		}
	})
}

func TestAMessageIDNamesANumberOfItsConversation(t *testing.T) {
	if got := chat.MessageID("session-1", 0); got != "" {
		t.Errorf("MessageID of no message = %q, want none", got)
	}
	if got, want := chat.MessageID("session-1", 12), "session-1.12"; got != want {
		t.Errorf("MessageID = %q, want %q", got, want)
	}
	for _, bad := range []string{"", "session-1", "session-1.", "session-1.0", "session-1.-3", "session-1.+3", "session-1.03", "session-1.3 ",
		"session-1.9223372036854775808", "session-2.3", "session-1.3.4", "session-1.x"} {
		if seq, ok := chat.ParseMessageID("session-1", bad); ok {
			t.Errorf("ParseMessageID(%q) = %d, want none", bad, seq)
		}
	}
	// A conversation whose id has dots, and one whose id begins another's.
	if seq, ok := chat.ParseMessageID("a.b.c.d.1", "a.b.c.d.1.2"); !ok || seq != 2 {
		t.Errorf("got %d, %t, want 2", seq, ok)
	}
	if _, ok := chat.ParseMessageID("a.b.c.d", "a.b.c.d.1.2"); ok {
		t.Error("a message of another conversation, whose id begins alike, is taken for one of this")
	}
}

func FuzzMessageID(f *testing.F) {
	f.Add("01ARZ3NDEKTSV4RRFFQ69G5FAV", int64(1), "x.1")
	f.Add("a.b.c.d.1", int64(1<<62), "a.b.c.d.1.1")
	f.Fuzz(func(t *testing.T, session string, seq int64, id string) {
		if seq > 0 {
			if got, ok := chat.ParseMessageID(session, chat.MessageID(session, seq)); !ok || got != seq {
				t.Errorf("message %d of %q came back as %d, %t", seq, session, got, ok)
			}
		}
		if n, ok := chat.ParseMessageID(session, id); ok && chat.MessageID(session, n) != id {
			t.Errorf("%q is read as %d, whose id is %q", id, n, chat.MessageID(session, n))
		}
	})
}
