package browsertest

import (
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/emulation"
)

// startLab starts the program, whose lab starts it again twice for each run.
func startLab(t *testing.T) *process {
	t.Helper()
	t.Parallel()
	p := newProcess(t)
	p.configure("server.drain = \"200ms\"\n")
	p.start()
	return p
}

// board is the scoreboard as it reads.
func (tb *tab) board() []string {
	tb.t.Helper()
	return js[[]string](tb, `[...document.querySelectorAll('.board tbody tr')].map((r) => [r.cells[1], r.cells[0], r.cells[2]].map((c) => c.innerText.replace(/\s+/g, ' ').trim()).join(' | '))`)
}

// stage waits for a state of the run and for a step that both lanes have done.
func (tb *tab) stage(state string, step int) {
	tb.t.Helper()
	tb.wait(`document.querySelector('#stage').dataset.state === '%s' && document.querySelectorAll('.history li:nth-child(%d) dl > div').length === 2`, state, step)
}

// The first scenario with the real program on both lanes, by keys alone; its link brings
// the same scoreboard back; and the file of the server does not change by any of it.
func TestTheLabIsPlayedStepByStepAndItsLinkBringsItBack(t *testing.T) {
	p := startLab(t)
	c, err := sql.Open("sqlite", "file:"+p.file+"?mode=ro")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.SetMaxOpenConns(1) // its count of changes is of one connection
	changes := func() (n int) {
		t.Helper()
		if err := c.QueryRowContext(t.Context(), "PRAGMA data_version").Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	profile := newProfile(t)
	tb := profile.open(p.url + "/lab")
	tb.wait(`document.querySelectorAll('.scenarios li').length >= 14`)
	before := changes()
	tb.click(".scenarios li:first-child a", 1)
	tb.wait(`document.querySelector('#stage')?.dataset.state === 'empty'`)
	js[any](tb, `document.querySelector('[name=seed]').value = '5'`)
	tb.key(" ", 32, " ")
	tb.stage("paused", 1)
	if got := js[string](tb, `location.pathname + location.search`); got != "/lab/network-retry?seed=5&step=1" {
		t.Errorf("the address is %s", got)
	}
	if got, want := tb.board()[1:4], []string{"arrivals | 1 | 1", "model calls | 1 | 1", "answers stored | 1 | 1"}; !slices.Equal(got, want) {
		t.Errorf("after the first step: %q, want %q", got, want)
	}
	tb.wait(`document.querySelector('#stage-said').textContent.includes('Semel:')`)
	tb.reload() // who comes back sees the run as it stands
	tb.stage("paused", 1)
	tb.key("ArrowRight", 39, "")
	tb.stage("ended", 2)
	first := tb.board()
	want := []string{"clicks | 1 right | 1 right", "arrivals | 2 right | 2 right", "model calls | 2 wrong | 1 right", "answers stored | 2 wrong | 1 right", "charges | 2 wrong | 1 right"}
	if len(first) != 9 || !slices.Equal(first[:5], want) || !strings.Contains(first[5], " differs | ") || !strings.HasSuffix(first[8], "| 0 right | 0 right") {
		t.Errorf("the scoreboard reads %q", first)
	}
	tb.wait(`document.querySelector('.ruling[data-good=good]').textContent.includes('wrong about: model calls, answers stored, charges.')`)
	tb.wait(`document.querySelector('#stage-said').textContent === document.querySelector('.ruling p').textContent`)
	digest := js[string](tb, `document.querySelector('.report .wide code').textContent`)

	again := profile.open(p.url + js[string](tb, `document.querySelector('#stage').dataset.link`))
	again.wait(`document.querySelector('#stage').dataset.state === 'empty'`)
	again.click("[data-do=step]", 1)
	again.stage("paused", 1)
	again.wait(`document.activeElement?.dataset.do === 'next'`) // under the same finger
	again.click("[data-do=next]", 1)
	again.stage("ended", 2)
	if got := again.board(); !slices.Equal(got, first) {
		t.Errorf("the link brings back %q, want %q", got, first)
	}
	if got := js[string](again, `document.querySelector('.report .wide code').textContent`); got != digest {
		t.Errorf("the report's digest is %s, want %s", got, digest)
	}
	if after := changes(); after != before {
		t.Errorf("the server's file has changed: its count of changes is %d, was %d", after, before)
	}
}

// Play, pause and stop; and many runs, each of which is a link.
func TestTheLabIsPlayedPausedAndRunManyTimes(t *testing.T) {
	p := startLab(t)
	tb := newProfile(t).open(p.url + "/lab/network-retry?seed=2&runs=3")
	tb.wait(`document.querySelector('.primary').dataset.do === 'many'`)
	tb.click("[data-do=many]", 1)
	tb.wait(`document.querySelectorAll('.grid li').length === 3 && document.querySelector('#stage').dataset.state === 'ended'`)
	if got := tb.board()[2]; got != "model calls | 6 wrong | 3 right" {
		t.Errorf("three runs: %q", got)
	}
	tb.wait(`document.querySelector('.ruling').textContent.includes('Semel was right in all 3 runs. The naive application was wrong in 3.')`)
	tb.click(".grid li:nth-child(2) a", 1)
	tb.wait(`location.search === '?seed=3' && document.querySelector('#stage')?.dataset.state === 'empty'`)
	// The next step begins by itself after a while: who presses too late tries again.
	for state := ""; state != "paused"; state = js[string](tb, `document.querySelector('#stage').dataset.state`) {
		tb.visit(p.url + "/lab/network-retry?seed=3")
		js[any](tb, `new MutationObserver((_, observer) => {
			if (document.querySelector('#stage').dataset.state !== 'playing') return;
			observer.disconnect();
			document.querySelector('[data-do=pause]').click();
		}).observe(document.querySelector('#stage'), {subtree: true, childList: true, attributes: true})`)
		tb.click("[data-do=play]", 1)
		tb.wait(`['paused', 'ended'].includes(document.querySelector('#stage').dataset.state)`)
	}
	tb.stage("paused", 1)
	tb.click("[data-do=play]", 1)
	tb.stage("ended", 2)

	// On the wall, from there and back.
	tb.click("#stage-tools a", 1)
	tb.wait(`document.body.hasAttribute('data-projector') && document.querySelector('.ruling') && !document.querySelector('#side').checkVisibility()`)
	for _, height := range []int64{720, 1080} {
		call(tb, emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{Width: height * 16 / 9, Height: height, DeviceScaleFactor: 1})
		shown := js[struct{ Bottom, Letters, Height float64 }](tb, `({Bottom: document.querySelector('.ruling').getBoundingClientRect().bottom, Height: innerHeight,
			Letters: parseFloat(getComputedStyle(document.querySelector('.board .value')).fontSize)})`)
		if shown.Bottom > shown.Height {
			t.Errorf("at a height of %d the verdict ends at %.0f", height, shown.Bottom)
		}
		if shown.Letters < shown.Height/40 {
			t.Errorf("at a height of %d the figures are %.0f px high", height, shown.Letters)
		}
		tb.shoot(fmt.Sprintf("lab-wall-%d", height))
	}
	tb.click("#stage-tools a", 1)
	tb.wait(`!document.body.hasAttribute('data-projector') && document.querySelector('.ruling')`)

	// Without scripts the same link gets to the same end, and its report.
	plain := newProfile(t).withoutScripts(p.url + "/lab/network-retry?seed=2&runs=2")
	plain.click("[data-do=many]", 1)
	plain.wait(`location.pathname.startsWith('/lab/runs/') && document.querySelectorAll('.report tbody tr').length === 2`)
}

// The pages of the lab in both languages, by day and by night, on a desk and on a phone,
// without a barrier.
func TestTheLabFitsEveryScreen(t *testing.T) {
	p := startLab(t)
	tb := newProfile(t).open(p.url + "/lab/network-retry?seed=1&step=1")
	tb.wait(`document.querySelector('#stage')`)
	for _, lang := range []string{"en", "zh-CN"} {
		look := func(name string) {
			t.Helper()
			for _, width := range []int{1200, 390, 320} {
				size(tb, width, width < 600)
				for _, scheme := range []string{"light", "dark"} {
					if width == 320 && scheme == "dark" {
						continue // as wide as by day
					}
					call(tb, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{
						{Name: "prefers-color-scheme", Value: scheme}, {Name: "prefers-reduced-motion", Value: "reduce"}}})
					called := fmt.Sprintf("lab-%s-%s-%s-%d", name, lang, scheme, width)
					tb.fits(called, width)
					tb.shoot(called)
					rules := everyRule
					if scheme == "dark" {
						rules = colours // the others found the same by day
					}
					if width == 320 || scheme == "dark" && width == 390 {
						continue // the same, but narrower
					}
					for _, b := range tb.barriers(rules) {
						t.Errorf("%s: %s", called, b)
					}
				}
			}
			size(tb, 1200, false)
		}
		size(tb, 1200, false)
		tb.visit(p.url + "/lab")
		if js[string](tb, `document.documentElement.lang`) != lang {
			tb.click(`.language button[value="`+lang+`"]`, 1)
		}
		tb.wait(`document.documentElement.lang === '%s' && document.querySelector('.scenarios')`, lang)
		look("list")
		tb.visit(p.url + "/lab/network-retry?seed=1&step=1")
		tb.wait(`document.querySelector('#stage')?.dataset.state === 'empty'`)
		look("empty")
		tb.click("[data-do=step]", 1)
		tb.stage("paused", 1)
		look("paused")
		tb.click("[data-do=next]", 1)
		tb.stage("ended", 2)
		look("ended")
		tb.visit(p.url + "/lab/network-retry?seed=1&runs=3")
		tb.click("[data-do=many]", 1)
		tb.wait(`document.querySelectorAll('.grid li').length === 3 && document.querySelector('#stage').dataset.state === 'ended'`)
		look("many")
		tb.click("#stage-tools a", 1)
		tb.wait(`document.body.hasAttribute('data-projector')`)
		look("wall")
	}
}
