package views

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"semel/chat"
)

// told is a branch in short: a question as "? number", an answer as "! number", one
// without a message as "… request state"; versions as n/m, and "go on" where more
// may be asked for.
func told(turns []Turn) string {
	var list []string
	for _, t := range turns {
		if t.RequestID != "" {
			list = append(list, fmt.Sprintf("? %d%s", t.Seq, versionsText(t.Versions)))
		}
		for _, a := range t.Answers {
			s := fmt.Sprintf("! %d", a.Seq)
			if a.Seq == 0 {
				s = fmt.Sprintf("… %s %s", a.RequestID, a.State)
			}
			s += versionsText(a.Versions)
			if a.continuable() {
				s += " go on"
			}
			list = append(list, s)
		}
	}
	return strings.Join(list, ", ")
}

func versionsText(v Versions) string {
	if v.Of == 0 {
		return ""
	}
	return fmt.Sprintf(" %d<%d/%d>%d", v.Before, v.N, v.Of, v.After)
}

func TestOtherAnswersHaveTheirPlace(t *testing.T) {
	q := func(seq int64, siblings ...int64) chat.Message {
		return chat.Message{Seq: seq, Role: "user", RequestID: fmt.Sprint("R", seq), ParentSeq: seq - 1, Siblings: siblings}
	}
	a := func(seq, parent int64, siblings ...int64) chat.Message {
		return chat.Message{Seq: seq, Role: "assistant", RequestID: fmt.Sprint("R", seq-1), ParentSeq: parent, Siblings: siblings, Finish: chat.FinishStop}
	}
	cut := a(2, 1, 2)
	cut.Finish = chat.FinishLength
	req := func(id string, kind chat.Kind, state chat.State, seq, parent int64) chat.Record {
		return chat.Record{RequestID: id, Kind: kind, State: state, Seq: seq, ParentSeq: parent}
	}
	failed := func(id string, kind chat.Kind, seq, parent int64) chat.Record {
		r := req(id, kind, chat.StateFailed, seq, parent)
		r.Error = &chat.Problem{Code: "provider_refused"}
		return r
	}
	running := a(2, 1, 2)
	running.Coming = []int64{9}
	for _, test := range []struct {
		name string
		in   Branch
		want string
	}{
		{"versions", Branch{Messages: []chat.Message{q(1, 1, 5), a(2, 1, 2, 7, 8)}}, "? 1 0<1/2>5, ! 2 0<1/3>7"},
		{"one that comes is in the place of the first", Branch{
			Messages: []chat.Message{q(1, 1)}, Beside: []int64{2, 7}, Coming: "X",
			Unanswered: []chat.Record{req("X", chat.KindRegenerate, chat.StateGenerating, 9, 1)},
		}, "? 1, … X generating 7<3/3>0"},
		{"the first, while another comes", Branch{
			Messages:   []chat.Message{q(1, 1), running},
			Unanswered: []chat.Record{req("X", chat.KindRegenerate, chat.StateGenerating, 9, 1)},
		}, "? 1, ! 2 0<1/2>9"},
		{"one that failed is below the first and above what followed", Branch{
			Messages:   []chat.Message{q(1, 1), a(2, 1, 2), q(3, 3), a(4, 3, 4)},
			Unanswered: []chat.Record{failed("X", chat.KindRegenerate, 9, 1)},
		}, "? 1, ! 2, … X failed, ? 3, ! 4"},
		{"one that failed before another succeeded is over", Branch{
			Messages:   []chat.Message{q(1, 1), a(12, 1, 2, 12)},
			Unanswered: []chat.Record{failed("X", chat.KindRegenerate, 9, 1)},
		}, "? 1, ! 12 2<2/2>0"},
		{"a cut answer can be gone on with", Branch{Messages: []chat.Message{q(1, 1), cut}}, "? 1, ! 2 go on"},
		{"but not twice", Branch{Messages: []chat.Message{q(1, 1), cut, a(5, 2, 5)}}, "? 1, ! 2, ! 5"},
		{"nor while more comes", Branch{
			Messages: []chat.Message{q(1, 1), cut}, Coming: "X",
			Unanswered: []chat.Record{req("X", chat.KindContinue, chat.StatePending, 9, 2)},
		}, "? 1, ! 2, … X pending"},
		{"a failed continuation is below, and may be tried anew", Branch{
			Messages:   []chat.Message{q(1, 1), cut, q(3, 3)},
			Unanswered: []chat.Record{failed("X", chat.KindContinue, 9, 2)},
		}, "? 1, ! 2 go on, … X failed, ? 3"},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := told(Turns(test.in)); got != test.want {
				t.Errorf("got %s\nwant %s", got, test.want)
			}
		})
	}
}

func TestALongBranchIsShownFromItsEnd(t *testing.T) {
	var turns []Turn
	for n := range int64(10) {
		turns = append(turns, Turn{RequestID: fmt.Sprint("R", n), Seq: 2*n + 1, Answers: []Answer{{Seq: 2*n + 2}}})
	}
	for _, test := range []struct {
		at, before, most    int64
		first, last, hidden int64
	}{
		{0, 0, 100, 1, 19, 0},
		{0, 0, 4, 13, 19, 13},
		{0, 13, 4, 5, 11, 5},
		{0, 5, 4, 1, 3, 0},
		{6, 0, 4, 1, 19, 0},  // the answer of the third turn: two before it are there, too
		{11, 0, 4, 7, 19, 7}, // the sixth question
		{19, 0, 4, 13, 19, 13},
	} {
		shown, hidden := Page(turns, test.at, test.before, int(test.most))
		if shown[0].Seq != test.first || shown[len(shown)-1].Seq != test.last || hidden != test.hidden {
			t.Errorf("%+v: got %d to %d, hidden before %d", test, shown[0].Seq, shown[len(shown)-1].Seq, hidden)
		}
	}
	if shown, hidden := Page(turns, 0, 1, 4); len(shown) != 0 || hidden != 0 {
		t.Errorf("before the first there are %d turns and %d", len(shown), hidden)
	}
}

func TestTheChipSaysWhatAnAnswerTook(t *testing.T) {
	a := Answer{Seq: 2, Model: "demo", Usage: chat.Usage{InputTokens: 1200, OutputTokens: 34}, Micros: 1_250_000, Attempts: 1}
	many := a
	many.Micros, many.Attempts, many.Absorbed = 0, 3, 2
	for _, test := range []struct {
		a        Answer
		lang     string
		currency string
		want     string
	}{
		{a, "en", "USD", "demo · 1,234 tokens · $1.25 · billed once"},
		{many, "en", "USD", "demo · 1,234 tokens · free · billed once · 3 attempts · duplicates absorbed: 2"},
		{a, "zh-CN", "CNY", "demo · 1,234 个 token · ¥1.25 · 只计费一次"},
		{Answer{Model: "demo"}, "en", "USD", "demo"},
	} {
		if got := test.a.chip(FindLocale(test.lang), test.currency); got != test.want {
			t.Errorf("got %q, want %q", got, test.want)
		}
	}
}

func TestMoneyAndTimesForPeople(t *testing.T) {
	en := FindLocale("en")
	for got, want := range map[string]string{
		en.Money("USD", 0):                       "$0.00",
		en.Money("USD", 31):                      "$0.000031",
		en.Money("EUR", 1_234_567_890_000):       "€1,234,567.89",
		en.Money("CHF", 2_500_000):               "2.50 CHF",
		en.Money("GBP", -1_500_000):              "−£1.50",
		en.Number(-1234):                         "-1,234",
		en.Number(999):                           "999",
		en.seconds(7 * time.Millisecond):         "7 ms",
		en.seconds(1250 * time.Millisecond):      "1.3 s",
		en.seconds(12_400 * time.Millisecond):    "12 s",
		en.seconds(125 * time.Second):            "2 min 5 s",
		FindLocale("zh-CN").seconds(time.Minute): "1 分 0 秒",
	} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestAReceiptTellsItInOrderAndInWords(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	r := Receipt{
		RequestID: "R1", State: chat.StateFailed, Problem: &chat.Problem{Code: "line_lost", Outcome: chat.OutcomeUnknown}, Currency: "USD",
		Arrivals: []Arrival{
			{At: at, Source: chat.SourceWeb, Decision: chat.DecisionFirst, Status: 202},
			{At: at.Add(time.Second), Source: chat.SourceAPI, Decision: chat.DecisionConflict, Status: 422},
			{At: at.Add(time.Second), Source: chat.SourceForm, Decision: chat.DecisionJoined},
		},
		Transitions: []Transition{
			{At: at, From: chat.StateNew, To: chat.StatePending, Reason: "accepted"},
			{At: at, From: chat.StatePending, To: chat.StateGenerating, Attempt: 1, Reason: "claimed"},
			{At: at.Add(3 * time.Second), From: chat.StateGenerating, To: chat.StateFailed, Attempt: 1, Reason: "line_lost"},
		},
		Attempts: []Attempt{{N: 1, Model: "demo", DispatchedAt: at, FirstToken: at.Add(2 * time.Second), EndedAt: at.Add(3 * time.Second), Outcome: chat.OutcomeUnknown}},
		Ledger:   []LedgerRow{{At: at.Add(3 * time.Second), Kind: "waste", Attempt: 1, Micros: 500, Estimated: true}},
	}
	en := FindLocale("en")
	want := "This request arrived 2 times and was accepted once; the model was called once (what came of one call nobody can know), and it ended without an answer: The line to the model was lost."
	if got := r.sentence(en); got != want {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	var order []string
	for _, e := range r.events(en) {
		order = append(order, e.lane+" "+e.offset(at))
		if strings.TrimSpace(e.text) == "" {
			t.Errorf("%s says nothing", e.lane)
		}
	}
	wantOrder := "arrival +0.000, state +0.000, state +0.000, attempt +0.000, arrival +1.000, arrival +1.000, attempt +2.000, attempt +3.000, ledger +3.000, state +3.000"
	if got := strings.Join(order, ", "); got != wantOrder {
		t.Errorf("got  %s\nwant %s", got, wantOrder)
	}
	for _, l := range Locales { // every word there is has its sentence in every language
		for _, d := range []chat.Decision{chat.DecisionFirst, chat.DecisionJoined, chat.DecisionReplayed, chat.DecisionConflict, chat.DecisionExpired, chat.DecisionRestarted} {
			if l.arrivalText(Arrival{Decision: d}) == "" {
				t.Errorf("%s: %s", l.Tag, d)
			}
		}
		doc := parsePage(t, ReceiptOf(ReceiptPage{Frame: examplePage(l.Tag).Frame, SessionID: "S1234567", Receipt: r}))
		for _, s := range []string{"section#receipt", "p data-mark=unknown", "ol", "li data-lane=ledger", "a href=/api/chat/receipt/R1?sessionId=S1234567"} {
			if find(doc, s) == nil {
				t.Errorf("%s: the page has no %s", l.Tag, s)
			}
		}
	}
}
