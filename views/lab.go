package views

import (
	"net/url"
	"slices"
	"strconv"

	"github.com/a-h/templ"

	"semel/chat"
)

// A LabScenario is something that is done to two applications. Its words are keys of
// the catalogue.
type LabScenario struct {
	Number             int
	Name, Title, About string
	Steps              []string       // what announces each
	Want               map[string]int // figures at the end, in an application that is right
}

// A LabSentence is a message of the catalogue with pairs of names and values for it.
type LabSentence struct {
	Key  string
	Args []string
}

func (l *Locale) sentence(s LabSentence) string { return l.T(s.Key, s.Args...) }

// A LabBoard is what an application has to show for itself.
type LabBoard struct {
	Clicks, Arrivals, Calls, Answers, Charges int
	Tokens, Micros                            int64
	Executions, Results, Lost                 int
}

// Plus adds two boards.
func (b LabBoard) Plus(c LabBoard) LabBoard {
	return LabBoard{
		b.Clicks + c.Clicks, b.Arrivals + c.Arrivals, b.Calls + c.Calls, b.Answers + c.Answers, b.Charges + c.Charges,
		b.Tokens + c.Tokens, b.Micros + c.Micros, b.Executions + c.Executions, b.Results + c.Results, b.Lost + c.Lost,
	}
}

// The lanes, as they stand beside each other.
const (
	LabNaive = iota
	LabSemel
	LabLanes
)

// A LabEvent is something that happened in a run. Exactly one of its pointers is set.
type LabEvent struct {
	Step int
	Lane int
	Say  LabSentence
	// Board is the lane's after the step; nil where the step only begins, in both lanes.
	Board *LabBoard
}

// A LabResult is how a scenario with one seed ended.
type LabResult struct {
	Seed   uint64
	Boards [LabLanes]LabBoard
	Damage []string // figures in which the naive application is wrong
	Broken []string // what does not hold in Semel, in English
	Facts  string   // SHA-256 of what Semel's file says
}

// A LabReport is what can be kept of a run.
type LabReport struct {
	Semel, SQLite, Go string // versions
	Digest            string // SHA-256 of all but this line
	JSON              []byte
}

// LabStep is a step as far as it has come.
type LabStep struct {
	Done   [LabLanes]bool
	Said   [LabLanes]LabSentence
	Boards [LabLanes]LabBoard
}

// States of a run.
const (
	LabStarting = "starting" // the applications are being started
	LabPlaying  = "playing"
	LabPaused   = "paused" // between two steps, until somebody goes on
	LabEnded    = "ended"
	LabStopped  = "stopped" // by somebody, or because nobody looked
	LabFailed   = "failed"  // it could not be run, which says nothing about either application
)

// A LabRun is a run as it stands.
type LabRun struct {
	ID       string
	Scenario string
	Seed     uint64 // of the first; the next ones count up
	Runs     int
	Step     bool // it was begun step by step
	State    string
	Version  int // counts its changes
	At       int // the step that is done or being done, -1 before the first
	Steps    []LabStep
	Results  []LabResult // of the runs that have ended
	Report   LabReport   // of one that has ended
}

// Live reports whether more is to come.
func (r LabRun) Live() bool {
	return r.State == LabStarting || r.State == LabPlaying || r.State == LabPaused
}

// damaged and broken count the runs in which something is not as it should be.
func (r LabRun) damaged() (n int) {
	for _, one := range r.Results {
		n += min(1, len(one.Damage))
	}
	return n
}

func (r LabRun) broken() (n int) {
	for _, one := range r.Results {
		n += min(1, len(one.Broken))
	}
	return n
}

// findings count what is not as it should be, in all runs, left and right.
func (r LabRun) findings() (left, right int) {
	for _, one := range r.Results {
		left, right = left+len(one.Damage), right+len(one.Broken)
	}
	return left, right
}

// A LabListPage lists the scenarios.
type LabListPage struct {
	Frame
	Scenarios []LabScenario
	Current   *LabRun // the one that is under way
}

// A LabPage is one scenario, with a run of it where there is one.
type LabPage struct {
	Frame
	Script    string // the address of its script
	Currency  string
	Scenario  LabScenario
	Of        int // how many scenarios there are
	Seed      uint64
	Runs      int
	Step      bool
	Projector bool
	Fresh     string // the id that the next run will have, so that a second click is the same run
	Run       *LabRun
	Problem   *chat.Problem
	Busy      *LabRun // the run that is in the way
}

func (p LabPage) head() templ.Component { return labHead(p) }

// reload is when and where a page without scripts looks again: where it waits for a
// person, it only says that somebody is there.
func (p LabPage) reload() string {
	if p.Run.State == LabPaused {
		return "20; url=" + string(p.runAction())
	}
	return "2; url=" + string(p.runAction())
}

func (p LabPage) body() templ.Attributes {
	a := templ.Attributes{}
	if p.Projector {
		a["data-projector"] = true
	}
	return a
}

// Link is the address under which the same run can be had again.
func (p LabPage) Link() string { return labLink(p.Scenario.Name, p.Seed, p.Runs, p.Step) }

func labLink(scenario string, seed uint64, runs int, step bool) string {
	q := url.Values{"seed": {strconv.FormatUint(seed, 10)}}
	if runs > 1 {
		q.Set("runs", strconv.Itoa(runs))
	}
	if step {
		q.Set("step", "1")
	}
	return "/lab/" + scenario + "?" + q.Encode()
}

// projectorLink leads to this page for a wall, or back.
func (p LabPage) projectorLink() templ.SafeURL {
	link := p.Link()
	if p.Run != nil {
		link = string(p.runPath("?"))
	}
	if !p.Projector {
		link += map[bool]string{true: "projector=1", false: "&projector=1"}[p.Run != nil]
	}
	return templ.SafeURL(link)
}

func (p LabPage) runPath(rest string) templ.SafeURL {
	return templ.SafeURL("/lab/runs/" + url.PathEscape(p.Run.ID) + rest)
}

// runAction is where the buttons of a run post to.
func (p LabPage) runAction() templ.SafeURL {
	if p.Projector {
		return p.runPath("?projector=1")
	}
	return p.runPath("")
}

func (p LabPage) startAction() templ.SafeURL {
	if p.Projector {
		return "/lab/runs?projector=1"
	}
	return "/lab/runs"
}

// state is what the style and the script go by.
func (p LabPage) state() string {
	if p.Run == nil {
		return "empty"
	}
	return p.Run.State
}

func (p LabPage) many() bool { return p.Runs > 1 }

func (p LabPage) version() string {
	if p.Run == nil {
		return ""
	}
	return strconv.Itoa(p.Run.Version)
}

// at is the number of the step that is shown, from 1 on; 0 before the first.
func (p LabPage) at() int {
	if p.Run == nil {
		return 0
	}
	return p.Run.At + 1
}

// now is what a lane has to say.
func (p LabPage) now(lane int) string {
	l := p.Locale
	switch {
	case p.Run == nil && lane == LabNaive:
		return l.T("stage.naive.about")
	case p.Run == nil:
		return l.T("stage.semel.about")
	case p.Run.State == LabStarting:
		return l.T("stage.starting")
	case p.Run.At < 0 && !p.many():
		return l.T("stage.doing")
	case p.many():
		left, right := p.Run.findings()
		if lane == LabNaive {
			return l.findings(left)
		}
		return l.findings(right)
	}
	s := p.Run.Steps[p.Run.At]
	if !s.Done[lane] {
		return l.T("stage.doing")
	}
	return l.sentence(s.Said[lane])
}

// announcement is what is done to both.
func (p LabPage) announcement() string {
	l := p.Locale
	switch {
	case p.many() && p.Run == nil:
		return l.T("stage.ready.many", "n", l.Number(int64(p.Runs)))
	case p.many():
		return l.T("stage.progress", "n", l.Number(int64(len(p.Run.Results))), "of", l.Number(int64(p.Runs)))
	case p.Run == nil:
		return l.T("stage.ready")
	case p.Run.At < 0:
		return l.T("stage.starting.both")
	}
	return l.T(p.Scenario.Steps[p.Run.At])
}

// Said is what somebody hears who does not see the page.
func (p LabPage) Said() string {
	l := p.Locale
	switch {
	case p.Run == nil || p.Run.State == LabStarting:
		return ""
	case !p.Run.Live():
		return p.verdict()
	case p.many():
		return "" // each of a hundred would be too much
	}
	s := p.Run.Steps[p.Run.At]
	if !s.Done[LabNaive] || !s.Done[LabSemel] {
		return ""
	}
	return l.T("stage.said", "step", p.announcement(), "naive", p.now(LabNaive), "semel", p.now(LabSemel))
}

// verdict is what has come of it, in one sentence.
func (p LabPage) verdict() string {
	l := p.Locale
	if p.Run == nil {
		return ""
	}
	switch p.Run.State {
	case LabStopped:
		return l.T("stage.verdict.stopped")
	case LabFailed:
		return l.T("stage.verdict.failed")
	case LabEnded:
	default:
		return ""
	}
	damaged, broken := p.Run.damaged(), p.Run.broken()
	n := l.Number(int64(len(p.Run.Results)))
	if p.many() {
		if broken > 0 {
			return l.T("stage.verdict.many.broken", "n", n, "broken", l.Number(int64(broken)), "damaged", l.Number(int64(damaged)))
		}
		return l.T("stage.verdict.many.holds", "n", n, "damaged", l.Number(int64(damaged)))
	}
	one := p.Run.Results[0]
	switch {
	case broken > 0:
		return l.T("stage.verdict.broken")
	case damaged > 0:
		return l.T("stage.verdict.holds", "figures", l.figures(one.Damage))
	}
	return l.T("stage.verdict.same")
}

// good reports how the verdict is coloured: "good", "bad" or "open".
func (p LabPage) good() string {
	switch {
	case p.Run == nil || p.Run.State != LabEnded:
		return "open"
	case p.Run.broken() > 0:
		return "bad"
	}
	return "good"
}

// standing is good's word for one lane.
func (p LabPage) standing(lane int) string {
	if !p.judged() {
		return "open"
	}
	left, right := p.Run.findings()
	if lane == LabNaive && left > 0 || lane == LabSemel && right > 0 {
		return "bad"
	}
	return "good"
}

// figures are names of figures, one after the other.
func (l *Locale) figures(names []string) string {
	out := ""
	for i, name := range names {
		if i > 0 {
			out += l.T("stage.and")
		}
		out += l.figureName(name)
	}
	return out
}

func (l *Locale) figureName(name string) string {
	switch name {
	case "clicks":
		return l.T("stage.figure.clicks")
	case "arrivals":
		return l.T("stage.figure.arrivals")
	case "calls":
		return l.T("stage.figure.calls")
	case "answers":
		return l.T("stage.figure.answers")
	case "charges":
		return l.T("stage.figure.charges")
	case "tokens":
		return l.T("stage.figure.tokens")
	case "money":
		return l.T("stage.figure.money")
	case "executions":
		return l.T("stage.figure.executions")
	case "results":
		return l.T("stage.figure.results")
	case "lost":
		return l.T("stage.figure.lost")
	}
	return name
}

// Marks of a figure: what stands beside it in icon, word and colour.
const (
	labNoMark  = ""
	labDiffers = "differs" // from the other lane, which nobody has judged
	labWrong   = "wrong"
	labRight   = "right"
)

// A labRow is one line of the scoreboard.
type labRow struct {
	name    string
	key     string
	values  [LabLanes]string
	marks   [LabLanes]string
	changed [LabLanes]bool // with this step
}

// boards are what the lanes have to show: of the step that is shown and of the one
// before it, or of all runs.
func (p LabPage) boards() (now, before [LabLanes]LabBoard) {
	if p.Run == nil {
		return now, before
	}
	if p.many() || p.Run.State == LabEnded {
		for _, one := range p.Run.Results {
			for lane := range now {
				now[lane] = now[lane].Plus(one.Boards[lane])
			}
		}
		return now, now
	}
	for lane := range now {
		for _, s := range p.Run.Steps {
			if s.Done[lane] {
				before[lane], now[lane] = now[lane], s.Boards[lane]
			}
		}
		if at := p.Run.At; at < 0 || !p.Run.Steps[at].Done[lane] {
			before[lane] = now[lane]
		}
	}
	return now, before
}

// judged reports whether the figures are compared with what the scenario wants.
func (p LabPage) judged() bool {
	return p.Run != nil && len(p.Run.Results) > 0 && (p.many() || p.Run.State == LabEnded)
}

func (p LabPage) rows() (list []labRow) {
	now, before := p.boards()
	l := p.Locale
	number := func(n int64) string { return l.Number(n) }
	money := func(n int64) string { return l.Money(p.Currency, n) }
	for _, f := range []struct {
		key  string
		of   func(LabBoard) int64
		text func(int64) string
	}{
		{"clicks", func(b LabBoard) int64 { return int64(b.Clicks) }, number},
		{"arrivals", func(b LabBoard) int64 { return int64(b.Arrivals) }, number},
		{"calls", func(b LabBoard) int64 { return int64(b.Calls) }, number},
		{"answers", func(b LabBoard) int64 { return int64(b.Answers) }, number},
		{"charges", func(b LabBoard) int64 { return int64(b.Charges) }, number},
		{"tokens", func(b LabBoard) int64 { return b.Tokens }, number},
		{"money", func(b LabBoard) int64 { return b.Micros }, money},
		{"executions", func(b LabBoard) int64 { return int64(b.Executions) }, number},
		{"results", func(b LabBoard) int64 { return int64(b.Results) }, number},
		{"lost", func(b LabBoard) int64 { return int64(b.Lost) }, number},
	} {
		want, wanted := p.Scenario.Want[f.key]
		if f.key == "results" && !wanted {
			continue // most scenarios have no effects
		}
		row := labRow{key: f.key, name: l.figureName(f.key)}
		for lane := range now {
			n := f.of(now[lane])
			row.values[lane] = f.text(n)
			row.changed[lane] = n != f.of(before[lane])
			switch {
			case wanted && p.judged() && n != int64(want)*int64(len(p.Run.Results)):
				row.marks[lane] = labWrong
			case wanted && p.judged():
				row.marks[lane] = labRight
			case lane == LabNaive && n != f.of(now[LabSemel]):
				row.marks[lane] = labDiffers
			}
		}
		list = append(list, row)
	}
	return list
}

func (l *Locale) labMark(mark string) string {
	switch mark {
	case labDiffers:
		return l.T("stage.mark.differs")
	case labWrong:
		return l.T("stage.mark.wrong")
	case labRight:
		return l.T("stage.mark.right")
	}
	return ""
}

func labIcon(mark string) string {
	return map[string]string{labDiffers: "differs", labWrong: "failed", labRight: "received"}[mark]
}

func (l *Locale) lane(lane int) string {
	if lane == LabNaive {
		return l.T("stage.naive")
	}
	return l.T("stage.semel")
}

// laneNames are the lanes as styles know them.
var laneNames = [LabLanes]string{"naive", "semel"}

// outcome is how one of many runs ended.
func (r LabResult) outcome() string {
	switch {
	case len(r.Broken) > 0:
		return "bad"
	case len(r.Damage) > 0:
		return "good"
	}
	return "open"
}

func (l *Locale) findings(n int) string {
	if n == 0 {
		return l.T("stage.findings.none")
	}
	return l.N("stage.findings", int64(n))
}

// aboutRun says it in words.
func (l *Locale) aboutRun(r LabResult) string {
	return l.T("stage.run", "seed", strconv.FormatUint(r.Seed, 10), "left", l.findings(len(r.Damage)), "right", l.findings(len(r.Broken)))
}

// failing are the runs in which something does not hold in Semel.
func (r LabRun) failing() (list []LabResult) {
	return slices.DeleteFunc(slices.Clone(r.Results), func(one LabResult) bool { return len(one.Broken) == 0 })
}

// short of a digest, for a table.
func shortDigest(d string) string { return d[:min(len(d), 12)] }

func seedText(n uint64) string { return strconv.FormatUint(n, 10) }

func (p LabPage) runID() string {
	if p.Run == nil {
		return ""
	}
	return p.Run.ID
}

func (p LabPage) playWord() string {
	if p.Run != nil {
		return p.Locale.T("stage.again")
	}
	return p.Locale.T("stage.play")
}

// manyRuns is how many runs the button for many of them asks for.
func (p LabPage) manyRuns() int {
	if p.many() {
		return p.Runs
	}
	return 100
}

// seeds are those of all runs.
func (p LabPage) seeds() string {
	if !p.many() {
		return seedText(p.Seed)
	}
	return seedText(p.Seed) + " – " + seedText(p.Seed+uint64(p.Runs)-1)
}

// command does the same in a terminal.
func (p LabPage) command() string {
	return "semel lab " + p.Scenario.Name + " --runs " + strconv.Itoa(p.Runs) + " --seed " + seedText(p.Seed)
}

// wrong counts what is not as it should be in a lane.
func (r LabResult) wrong(lane int) int {
	if lane == LabNaive {
		return len(r.Damage)
	}
	return len(r.Broken)
}
