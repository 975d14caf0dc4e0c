package chat_test

import (
	"slices"
	"testing"

	"semel/chat"
)

var fields = chat.Fields{
	Kind: chat.KindEdit, Content: "Äpfel, 苹果?", ParentID: "s.3", Model: "demo", Params: `{"temperature":1}`,
	Attachments: []string{"aa", "bb"},
}

func TestTheSameFieldsHaveTheSameFingerprint(t *testing.T) {
	again := fields
	again.Attachments = slices.Clone(fields.Attachments)
	a, b := fields.Fingerprint(), again.Fingerprint()
	if !a.Equal(b) || a.Differ(b) != nil {
		t.Errorf("the same fields differ in %v", a.Differ(b))
	}
	if len(a) != 80 {
		t.Errorf("a fingerprint has %d bytes, the schema wants 80", len(a))
	}
}

func TestTheUnicodeFormOfTextMakesNoDifference(t *testing.T) {
	composed, decomposed := fields, fields
	composed.Content, composed.Model, composed.Params = "caf\u00e9 \u1e69", "\u00e9", `{"stop":"\u00e9"}`
	decomposed.Content, decomposed.Model, decomposed.Params = "cafe\u0301 s\u0307\u0323", "e\u0301", `{"stop":"e`+"\u0301"+`"}`
	composed.Params = `{"stop":"` + "\u00e9" + `"}`
	if a, b := composed.Fingerprint(), decomposed.Fingerprint(); !a.Equal(b) {
		t.Errorf("NFC and NFD differ in %v", a.Differ(b))
	}
	// Compatibility is another thing: these are other words.
	ligature, letters := fields, fields
	ligature.Content, letters.Content = "\ufb01t", "fit"
	if ligature.Fingerprint().Equal(letters.Fingerprint()) {
		t.Error("a ligature and its letters have one fingerprint")
	}
}

func TestAConflictNamesExactlyTheFieldsThatDiffer(t *testing.T) {
	change := map[string]func(*chat.Fields){
		"kind":        func(f *chat.Fields) { f.Kind = chat.KindMessage },
		"content":     func(f *chat.Fields) { f.Content += " " },
		"parentId":    func(f *chat.Fields) { f.ParentID = "s.4" },
		"model":       func(f *chat.Fields) { f.Model = "" },
		"params":      func(f *chat.Fields) { f.Params = `{"temperature":2}` },
		"attachments": func(f *chat.Fields) { f.Attachments = f.Attachments[:1] },
	}
	if len(change) != len(chat.FingerprintFields) {
		t.Fatalf("%d fields are changed here, a fingerprint has %v", len(change), chat.FingerprintFields)
	}
	var all chat.Fields
	for _, name := range chat.FingerprintFields {
		f := fields
		change[name](&f)
		a, b := fields.Fingerprint(), f.Fingerprint()
		if got := a.Differ(b); a.Equal(b) || !slices.Equal(got, []string{name}) {
			t.Errorf("changing %s: equal %t, differs in %v", name, a.Equal(b), got)
		}
	}
	if got := fields.Fingerprint().Differ(all.Fingerprint()); !slices.Equal(got, chat.FingerprintFields) {
		t.Errorf("everything differs, named are %v", got)
	}
}

func TestTextCannotSlipFromOneFieldIntoAnother(t *testing.T) {
	for name, pair := range map[string][2]chat.Fields{
		"content and parent":     {{Content: "ab", ParentID: "c"}, {Content: "a", ParentID: "bc"}},
		"two attachments":        {{Attachments: []string{"ab", "c"}}, {Attachments: []string{"a", "bc"}}},
		"one or two":             {{Attachments: []string{"abc"}}, {Attachments: []string{"ab", "c"}}},
		"none or an empty one":   {{}, {Attachments: []string{""}}},
		"order of attachments":   {{Attachments: []string{"a", "b"}}, {Attachments: []string{"b", "a"}}},
		"no model or empty JSON": {{Model: "{}"}, {Params: "{}"}},
	} {
		if pair[0].Fingerprint().Equal(pair[1].Fingerprint()) {
			t.Errorf("%s: %+v and %+v have one fingerprint", name, pair[0], pair[1])
		}
	}
}

func TestADamagedFingerprintDiffersInEverything(t *testing.T) {
	good := fields.Fingerprint()
	for _, bad := range []chat.Fingerprint{"", good[:32], good[:79]} {
		if bad.Equal(good) || len(good.Differ(bad)) == 0 || len(bad.Differ(good)) == 0 {
			t.Errorf("a fingerprint of %d bytes: equal %t, differs in %v", len(bad), bad.Equal(good), good.Differ(bad))
		}
	}
}

// The stored fingerprint of an accepted request must mean the same after an
// upgrade, or every repeat of an old id would be a conflict.
func TestAFingerprintIsTheSameInEveryVersion(t *testing.T) {
	const want = "ab700a1b91cffec337b3889f9699ab8414a57970c650e735d59be5b5d3e1ebbb" +
		"ab530a13e4591498" + "2cf24dba5fb0a30e" + "e3b0c44298fc1c14" + "e3b0c44298fc1c14" + "e3b0c44298fc1c14" + "e3b0c44298fc1c14"
	if got := hexOf(chat.Fields{Kind: chat.KindMessage, Content: "hello"}.Fingerprint()); got != want {
		t.Errorf("the fingerprint of a plain question became %s, it was %s", got, want)
	}
}

func FuzzFingerprint(f *testing.F) {
	f.Add("message", "hello", "", "", "", "message", "hello", "", "", "")
	f.Add("edit", "cafe\u0301", "s.1", "demo", "{}", "edit", "caf\u00e9", "s.1", "demo", "{}")
	f.Fuzz(func(t *testing.T, k1, c1, p1, m1, j1, k2, c2, p2, m2, j2 string) {
		a := chat.Fields{Kind: chat.Kind(k1), Content: c1, ParentID: p1, Model: m1, Params: j1}.Fingerprint()
		b := chat.Fields{Kind: chat.Kind(k2), Content: c2, ParentID: p2, Model: m2, Params: j2}.Fingerprint()
		if a.Equal(b) != (len(a.Differ(b)) == 0) {
			t.Errorf("equal is %t, and they differ in %v", a.Equal(b), a.Differ(b))
		}
	})
}
