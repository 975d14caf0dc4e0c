package llm

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// This file is how the built-in model reads a question and what it knows how to say. It claims no knowledge
// of the world; it says so, offers ways to think about the question, and explains
// what can be watched happening around the answer. Everything it says about
// delivery must be true by the contract.
//
// Placeholders: {topic} words of the question · {earlier} how many questions came
// before · {last} words of the one before · {tool} the action asked for.

// The question

// readAtMost bounds how much of a question is looked at for its subject.
const readAtMost = 4 << 10

// A question is what the model makes of the last user turn.
type question struct {
	text      string // without directives
	topic     string // its subject in its own words, "" when there is none
	words     map[string]bool
	chinese   bool
	earlier   int    // user turns before it
	lastTopic string // of the one before
	action    string // the action the answer asks for
	goOn      bool   // more of an answer, not a new one
	so        string // the text to continue, "" when there is none
	within    bool   // so breaks off within a sentence
}

func readQuestion(c Call, s script, asked int) question {
	q := question{text: clip(s.rest, readAtMost), goOn: c.Continue}
	q.chinese = hasHan(q.text)
	previous := -1
	for i := 0; i < asked; i++ {
		if c.Turns[i].Role == "user" {
			q.earlier++
			previous = i
		}
	}
	before := ""
	if previous >= 0 {
		before = clip(parseScript(contentAt(c.Turns, previous), 0).rest, readAtMost)
	}
	// A question of directives only keeps to the language of the one before.
	if !strings.ContainsFunc(q.text, unicode.IsLetter) {
		q.chinese = hasHan(before)
	}
	q.topic = topicOf(q.text, q.chinese)
	q.lastTopic = topicOf(before, hasHan(before))
	q.words = map[string]bool{}
	for _, w := range cleanWords(q.text) {
		q.words[strings.ToLower(w)] = true
	}
	q.so = strings.TrimSpace(continued(c))
	q.within = q.so != "" && !finished(q.so)
	return q
}

// about reports whether q has one of the words in set.
func (q question) about(set map[string]bool) bool {
	for w := range set {
		if q.words[w] || hasHan(w) && strings.Contains(q.text, w) {
			return true
		}
	}
	return false
}

// finished reports whether text ends where a sentence, a list item or the
// closing line does.
func finished(text string) bool {
	last := text[strings.LastIndexByte(text, '\n')+1:]
	if strings.Contains(last, "model call no.") || strings.HasPrefix(last, "- ") || strings.HasPrefix(last, "|") {
		return true
	}
	r, _ := utf8.DecodeLastRuneInString(text)
	return strings.ContainsRune(".!?:…。！？：)）”\"'`*", r)
}

// topicOf returns the longest stretch of words that could be the subject of s.
// It consists of letters, digits and a few harmless marks: it goes into
// Markdown as it is.
func topicOf(s string, chinese bool) string {
	if chinese {
		return chineseTopic(s)
	}
	best, bestWords := "", 0
	var run []string // words, and joints between them
	content := 0
	flush := func() {
		for len(run) > 0 && isJoint(run[len(run)-1]) {
			run = run[:len(run)-1]
		}
		if t := strings.Join(run, " "); content > bestWords || content == bestWords && len(t) > len(best) {
			best, bestWords = t, content
		}
		run, content = nil, 0
	}
	for _, w := range cleanWords(s) {
		switch {
		case w == "|":
			flush()
		case isJoint(w) && content > 0:
			run = append(run, w)
		case isJoint(w), stopWords[strings.ToLower(w)] && w != "Go": // the language
			flush()
		case content == 4:
			flush()
			fallthrough
		default:
			run = append(run, w)
			content++
		}
	}
	flush()
	return shorten(best, 60)
}

func isJoint(w string) bool { return w == "of" || w == "and" || w == "or" || w == "with" }

func chineseTopic(s string) string {
	best := ""
	for piece := range strings.SplitSeq(chineseSplit.Replace(strings.Join(cleanWords(s), " ")), "|") {
		piece = strings.Trim(piece, " 与和")
		if countTokens(piece) > countTokens(best) {
			best = piece
		}
	}
	if end := prefixTokens(best, 14); end < len(best) {
		best = best[:end] + "…"
	}
	return best
}

var chineseSplit = func() *strings.Replacer {
	var pairs []string
	for _, w := range chineseStops {
		pairs = append(pairs, w, "|")
	}
	return strings.NewReplacer(pairs...)
}()

// cleanWords splits s into words of letters, digits and a few marks, with "|"
// wherever something else stood.
func cleanWords(s string) []string {
	var b strings.Builder
	for _, r := range s {
		switch {
		case unicode.IsLetter(r), unicode.IsNumber(r), unicode.IsMark(r), unicode.IsSpace(r), strings.ContainsRune("-'+#.", r):
			b.WriteRune(r)
		case r == '’':
			b.WriteByte('\'')
		default:
			b.WriteString(" | ")
		}
	}
	var words []string
	for f := range strings.FieldsSeq(b.String()) {
		w := strings.TrimRight(strings.TrimLeft(f, "-'+#."), "-'.")
		if w != "" {
			words = append(words, w)
		}
		if w == "" || strings.HasSuffix(f, ".") {
			words = append(words, "|")
		}
	}
	return words
}

func wordSet(s string) map[string]bool {
	set := map[string]bool{}
	for w := range strings.FieldsSeq(s) {
		set[w] = true
	}
	return set
}

func hasHan(s string) bool {
	return strings.ContainsFunc(s, func(r rune) bool { return unicode.Is(unicode.Han, r) })
}

// clip returns at most n bytes of s: whole words where it has any, else whole
// runes.
func clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	if space := strings.LastIndexByte(s[:n], ' '); space > 0 {
		n = space
	}
	return s[:n]
}

// shorten returns s with at most n runes, the last of them an ellipsis where
// something is missing.
func shorten(s string, n int) string {
	if utf8.RuneCountInString(s) <= n {
		return s
	}
	return strings.TrimSpace(string([]rune(s)[:n-1])) + "…"
}

// Writing

// A writer composes one text in one language.
type writer struct {
	*phrases
	q     question
	rng   *rand.Rand
	fill  *strings.Replacer
	decks map[*string][]int // what is left to draw of each slot
	b     strings.Builder
	n     int // tokens in b
}

// newWriter returns a writer whose first sentence is chosen by call where it is
// not seeded: two calls in a row never open alike.
func newWriter(q question, rng *rand.Rand, call uint64, seeded bool) *writer {
	w := &writer{phrases: &english, q: q, rng: rng, decks: map[*string][]int{}}
	if q.chinese {
		w.phrases = &chinese
	}
	quoted := func(topic, otherwise string) string {
		if topic == "" {
			return otherwise
		}
		return "“" + topic + "”"
	}
	earlier := w.one
	if q.earlier != 1 {
		earlier = fmt.Sprintf(w.many, q.earlier)
	}
	w.fill = strings.NewReplacer("{topic}", quoted(q.topic, w.ask), "{earlier}", earlier,
		"{last}", quoted(q.lastTopic, w.noTopic), "{tool}", q.action)
	if !seeded {
		first := w.first()
		w.decks[&first[0]] = []int{int(call % uint64(len(first)))}
	}
	return w
}

// first returns the slot of the first sentence.
func (w *writer) first() []string {
	switch {
	case w.q.within:
		return w.goOnMid
	case w.q.goOn:
		return w.goOn
	case w.q.topic == "":
		return w.openingPlain
	}
	return w.opening
}

// draw takes the next sentence of a slot; none comes twice before all came once.
func (w *writer) draw(slot []string) string {
	left := w.decks[&slot[0]]
	if len(left) == 0 {
		left = w.rng.Perm(len(slot))
	}
	w.decks[&slot[0]] = left[1:]
	return w.fill.Replace(slot[left[0]])
}

// add appends a block, separated from what is there.
func (w *writer) add(block string) {
	if w.b.Len() > 0 {
		block = "\n\n" + block
	}
	w.b.WriteString(block)
	w.n += countTokens(block)
}

// lead writes the first paragraph.
func (w *writer) lead() {
	sentences := []string{w.draw(w.first())}
	switch {
	case w.q.goOn:
		sentences = append(sentences, w.draw(w.once))
	case w.q.earlier > 0:
		sentences = append(sentences, w.draw(w.honest), w.draw(w.memory))
	default:
		sentences = append(sentences, w.draw(w.honest))
	}
	if w.q.action != "" {
		sentences = append(sentences, w.draw(w.act))
	}
	text := strings.Join(sentences, w.gap)
	switch {
	case w.q.so == "":
	case w.q.within:
		text = w.gap + w.ellipsis + w.gap + text
	default:
		text = "\n\n" + text
	}
	w.add(text)
}

// brief writes an answer for reading.
func (w *writer) brief() {
	const closingTokens = 12
	room := func() int { return maxBriefTokens - closingTokens - w.n }
	w.lead()
	if w.q.action == "" {
		w.add(w.block())
	}
	sentences := []string{w.draw(w.once)}
	used := countTokens(sentences[0])
	more := 1 + w.rng.IntN(2)
	for i := 0; i < more || w.n+used < minBriefTokens; i++ {
		slot := w.connect
		if i > 0 || w.q.action != "" {
			slot = w.once
		}
		s := w.draw(slot)
		if used+countTokens(s) > room() {
			break
		}
		used += countTokens(s)
		sentences = append(sentences, s)
	}
	w.add(strings.Join(sentences, w.gap))
}

// exactly writes n tokens. Lists, tables and code stand whole or not at all;
// only a paragraph is cut.
func (w *writer) exactly(n int64) {
	w.lead()
	for i := 0; int64(w.n) < n; i++ {
		if i%3 == 0 {
			block := w.list(w.adviceIntro, "- ")
			switch {
			case i == 0:
				block = w.block()
			case i%2 == 1:
				block = w.table()
			}
			if int64(w.n+countTokens("\n\n"+block)) <= n {
				w.add(block)
			}
			continue
		}
		var sentences []string
		for range 2 + w.rng.IntN(2) {
			sentences = append(sentences, w.draw(w.once))
		}
		if i == 1 {
			sentences = append(sentences, w.draw(w.connect))
		}
		w.add(strings.Join(sentences, w.gap))
	}
	if int64(w.n) == n {
		return
	}
	text := w.breakOff(w.b.String(), n)
	w.b.Reset()
	w.b.WriteString(text)
	w.n = int(n)
}

// breakOff returns the first n tokens of text, with an ellipsis in the last one
// where they end within a sentence.
func (w *writer) breakOff(text string, n int64) string {
	whole := text[:prefixTokens(text, n)]
	last, _ := utf8.DecodeLastRuneInString(whole)
	switch {
	case n == 0 || strings.ContainsRune(".!?…。！？", last):
		return whole
	case !unicode.Is(unicode.Han, last) && !w.q.chinese:
		return strings.TrimRight(whole, ",;:") + w.ellipsis
	}
	// A Han character is a token alone, so that the ellipsis takes its place.
	short := text[:prefixTokens(text, n-1)]
	if last, _ = utf8.DecodeLastRuneInString(short); unicode.Is(unicode.Han, last) {
		return short + w.ellipsis
	}
	return whole
}

// block returns the list, table or code that fits the question.
func (w *writer) block() string {
	switch {
	case w.q.about(codeWords):
		return w.code()
	case w.q.about(tableWords):
		return w.table()
	case w.q.about(stepWords):
		return w.list(w.steps, "1. ")
	}
	return w.list(w.adviceIntro, "- ")
}

func (w *writer) list(intro []string, mark string) string {
	var b strings.Builder
	b.WriteString(w.draw(intro) + "\n")
	for i, k := range w.rng.Perm(len(w.advice))[:3] {
		if mark != "- " {
			mark = strconv.Itoa(i+1) + ". "
		}
		b.WriteString("\n" + mark + w.advice[k])
	}
	return b.String()
}

func (w *writer) table() string {
	var b strings.Builder
	head := w.tableHead[w.rng.IntN(len(w.tableHead))]
	fmt.Fprintf(&b, "%s\n\n| %s | %s |\n|---|---|", w.draw(w.tableIntro), head[0], head[1])
	for _, k := range w.rng.Perm(len(w.criteria))[:3] {
		fmt.Fprintf(&b, "\n| %s | %s |", w.criteria[k][0], w.criteria[k][1])
	}
	return b.String()
}

func (w *writer) code() string {
	var fit []snippet
	for _, s := range snippets {
		for _, word := range s.words {
			if w.q.words[word] || hasHan(word) && strings.Contains(w.q.text, word) {
				fit = append(fit, s)
				break
			}
		}
	}
	if len(fit) == 0 {
		fit = snippets
	}
	s := fit[w.rng.IntN(len(fit))]
	return w.draw(w.codeIntro) + "\n\n```" + s.tag + "\n" + s.code + "\n```"
}

// What it says

// phrases are the words of one language. Each slot is a pool to draw from, large
// enough that two answers rarely share a sentence.
type phrases struct {
	gap      string // between two sentences
	ask      string // stands for a topic nobody can make out
	one      string // {earlier}, when it is one
	many     string // {earlier}, with %d
	closing  string // the last line, with %[1]d
	ellipsis string
	noTopic  string // {last}, when nothing can be made out

	opening      []string // needs a {topic}
	openingPlain []string // for questions without one
	honest       []string
	memory       []string
	advice       []string // items of a list about any topic
	adviceIntro  []string
	steps        []string // introduces the same items as a numbered list
	criteria     [][2]string
	tableIntro   []string
	tableHead    [][2]string
	codeIntro    []string
	once         []string // what is promised, and what is not
	connect      []string
	goOn         []string // continues after a finished paragraph
	goOnMid      []string // continues within a sentence
	act          []string
}

var english = phrases{
	gap:      " ",
	ask:      "your question",
	one:      "one earlier question",
	many:     "%d earlier questions",
	closing:  "model call no. %[1]d",
	ellipsis: "…",
	noTopic:  "something short",

	opening: []string{
		"So it is {topic} you would like to hear about.",
		"{topic} makes a fine subject, and I will do what I honestly can with it.",
		"You bring up {topic}; let us see how far a modest model can take it.",
		"Let me pick up {topic}, in words I have not used before.",
		"I read your message twice, and {topic} seems to be the heart of it.",
		"Thank you for asking about {topic}.",
		"A question on {topic} deserves a calm answer, so here is mine.",
		"Happy to think aloud about {topic} with you.",
		"When I look at what you wrote, {topic} stands out.",
		"About {topic}, then: first what I can offer, afterwards what I cannot.",
		"You mention {topic}, which gives both of us something to hold on to.",
		"Good, {topic} it is.",
		"Here is a fresh attempt at {topic}, written for this call alone.",
		"There is more than one way to approach {topic}; this is today's.",
		"I will take {topic} as the subject and keep it short.",
		"What you say about {topic} has arrived complete, and it counts exactly once.",
	},
	openingPlain: []string{
		"Hello, and thank you for writing.",
		"Your message arrived safely, and it counts once.",
		"It is good to hear from you.",
		"I am listening.",
		"That is short and clear, which I like.",
		"Welcome; everything here works, and this answer is the proof.",
		"Let us begin, then.",
		"Your words are stored already, so nothing can get lost from here on.",
		"Here I am, awake and streaming.",
		"A pleasure; ask me anything, as long as you do not expect wisdom.",
		"Good to have you here.",
		"I got that, and so did the database.",
		"Thanks for trying me out.",
		"Message received, and an answer is on its way as you read.",
	},
	honest: []string{
		"I am the built-in model: I know nothing of the world, but I stream, count and remember like a real one.",
		"Please do not quote me, for I am a demonstration model without any knowledge of my own.",
		"To be frank, I am the built-in model and make up my sentences from a small box of phrases.",
		"I should say that I am only the built-in model: no key, no network, no cost, and no expertise.",
		"Being the built-in demonstration model, I can show you how an answer travels, not what is true.",
		"The built-in model needs no key and knows no facts, so take this as a rehearsal.",
		"Facts are not my strength: I am the demonstration model that ships with Semel.",
		"Behind this answer is no large network, only the built-in model doing its best.",
		"I am a stand-in, built into the program so that you can try it before any real model is connected.",
		"What follows is honest but uninformed, since I am the built-in model and have read nothing.",
		"My part is small: the built-in model fills the place that a real one will take.",
		"No library stands behind me; I am the built-in model, and I say so gladly.",
		"Think of me as a test card that talks: the built-in model, polite and without knowledge.",
		"The built-in model is speaking, which means that the form is real and the content is not.",
	},
	memory: []string{
		"I also remember {earlier} in this conversation, most recently about {last}.",
		"Before this came {earlier}; the last one concerned {last}.",
		"Our thread already holds {earlier}, and {last} came just before.",
		"I have been sent {earlier} along with this one, the latest on {last}.",
		"Counting back, I find {earlier}, with {last} as the nearest.",
		"You have been here a while: I can see {earlier}, the newest touching on {last}.",
		"For context I was given {earlier}; I still have {last} in mind.",
		"We have {earlier} behind us, and {last} is still fresh.",
		"Nothing is forgotten: there was {last} a moment ago, and in all I count {earlier}.",
		"The history I received contains {earlier}, ending with {last}.",
		"After {earlier}, the last of them about {last}, we know each other a little.",
		"I kept track: {earlier} so far, and {last} was the previous subject.",
	},
	adviceIntro: []string{
		"Whoever answers in the end, these help with {topic}:",
		"A few things I would do with {topic}, knowing as little as I do:",
		"What usually moves {topic} forward:",
		"Three honest ways into {topic}:",
		"If {topic} were mine to solve, I would note this:",
		"Some starting points for {topic}:",
		"Here is a short list to take along:",
		"A little order never hurts:",
		"This much can be said about {topic} without knowing anything:",
		"Worth keeping at hand for {topic}:",
		"Before you ask a real model about {topic}:",
		"Small moves that tend to pay off:",
		"My notes on {topic}, such as they are:",
	},
	steps: []string{
		"In this order, I would say:",
		"Step by step, {topic} could go like this:",
		"One way to proceed with {topic}:",
		"A plan for {topic}, to be improved by somebody who knows:",
		"Try it in this sequence:",
		"Three steps towards {topic}:",
		"Here is a route, not the only one:",
		"I would take {topic} one thing at a time:",
		"The path I suggest:",
		"Let us break {topic} down:",
		"First things first:",
		"A sensible order for {topic}:",
	},
	advice: []string{
		"**Say what you already know**, in two lines.",
		"**Name the decision** that depends on the answer.",
		"**Find the oldest source** and read it first.",
		"**Ask who disagrees**, and what they have seen.",
		"**Try the smallest example** that could fail.",
		"**Write down one number** you would like to have.",
		"**Draw it** on paper; gaps show at once.",
		"**Explain it to a friend** and note where you stumble.",
		"**Separate facts from wishes**, one column each.",
		"**Look for the exception** that bends the rule.",
		"**Set a date** after which good enough is enough.",
		"**Begin at the end**: what would finished look like?",
		"**Change one thing at a time**, or you learn nothing.",
		"**Keep what you tried**, even when it failed.",
		"**Ask the same question twice**, in other words.",
		"**Sleep on it**; most answers improve overnight.",
		"**Count the cost of waiting**, not only that of acting.",
		"**Check the units**; they are wrong more often than the sums.",
	},
	tableIntro: []string{
		"To weigh {topic}, a small table goes further than a long speech:",
		"For a fair comparison, put these questions to every side:",
		"I cannot pick a winner, but I can lay out the table:",
		"Side by side, {topic} might be judged like this:",
		"These rows usually settle it:",
		"Comparing is mostly asking the same thing of everyone:",
		"A frame for {topic}, to be filled in by somebody who knows:",
		"Here is what I would put on the scales:",
		"Before choosing, I would want this on one page:",
		"The differences tend to hide in these places:",
		"Let a table do the arguing:",
		"When {topic} is the choice, I would ask:",
	},
	tableHead: [][2]string{
		{"Ask", "Because"},
		{"Question", "Why it matters"},
		{"Look at", "Reason"},
		{"Point", "What it tells you"},
	},
	criteria: [][2]string{
		{"Cost over a year", "price tags show a day"},
		{"First failure", "how it breaks is how it is built"},
		{"Way back", "choices you can undo are cheap"},
		{"Who uses it daily", "they know the rough edges"},
		{"Time to learn", "skill costs more than tools"},
		{"What it leaves out", "limits are rarely advertised"},
		{"Behaviour under load", "calm days prove little"},
		{"Age", "old things have survived something"},
		{"Noise", "you live with it longer than you think"},
		{"Repair", "somebody will have to do it"},
		{"Taste", "you will look at it every day"},
		{"Dependence", "whom do you need tomorrow?"},
		{"Evidence", "a test beats an opinion"},
		{"Second best", "the gap may be small"},
	},
	codeIntro: []string{
		"Code I can do, as long as it is about asking once:",
		"Here is a pattern that I know by heart:",
		"This fragment holds the whole idea:",
		"A few lines say it better than I do:",
		"You asked for code, so here is the one trick I was built around:",
		"The core fits on a napkin:",
		"Treat this as a sketch, though one that has been thought about:",
		"Something to copy, with the order of lines on purpose:",
		"What keeps a double click harmless looks like this:",
		"In code, remembering before doing reads like this:",
		"My favourite four lines:",
		"Take this as a starting point:",
	},
	once: []string{
		"Press Send twice and watch my call number: the second arrival carries the same id, so it joins this answer instead of waking me again.",
		"This text is stored once; ask for it again with the same id and you get these very words, not new ones.",
		"Were I called twice, I would say something different each time, which is how you can tell that a repeat was not answered by me.",
		"One click is one intent: it has one question, one answer and one charge, however often the network repeats it.",
		"The same words sent again on purpose are a new intent, and then I gladly answer anew.",
		"If the line breaks while you read, reconnect; the answer goes on where you left off, since I write to the server and not to your tab.",
		"Close this tab if you like: nobody cancels my work when a browser goes away.",
		"Your question was durable on disk before I heard a word of it.",
		"Every attempt is on record, including those that came to nothing, and the receipt below the answer shows them all.",
		"Nobody can promise that a model is called only once in a world with power cuts; what can be promised is one answer and one charge.",
		"When a line dies halfway, the honest word is unknown, and that is what the receipt will say.",
		"A retry that finds the finished answer costs nothing, which is the cheapest call there is.",
		"An id names your intent, never your words, so equal questions stay separate and repeated clicks do not.",
		"Two workers may try to finish the same question, but only one of them holds the current attempt, and the other is turned away.",
		"Money is counted in whole millionths and charged once for each answered question.",
		"An action that I propose gets one decision and is handed over under an id that never changes.",
		"Even after a restart this answer will read the same, letter by letter.",
		"Queues deliver things again; here the second delivery finds the first one's answer.",
		"The number in my last line grows only when I am really called, so it makes a good witness.",
		"Should the program be killed now, it will know after its restart that this question was being answered.",
		"Repeating is safe here, and that changes how you build everything around it.",
		"What counts is remembered before it is done: first the record, then the call.",
		"Stopping me is fine as well: with some text on the page, that text becomes the answer.",
		"A duplicate is not an error; it is the network being careful, and it deserves the same answer.",
	},
	connect: []string{
		"For real knowledge, connect a real model in the settings.",
		"Connect a real model and ask again; the guarantees stay the same.",
		"An address and a key in the settings are all it takes to replace me.",
		"Any OpenAI-compatible server can take my place, local ones included.",
		"When you are ready, connect a real one; I will not be offended.",
		"A real model is one form away: preset, address, key, test.",
		"If a model runs on your own machine, point the settings there and I retire.",
		"With a real model connected, the same question gets a real answer.",
		"My successor lives in the settings, under models.",
		"Once you have seen enough of me, connect a model that has read books.",
		"Give the place to a real model whenever you like; conversations stay as they are.",
		"Until a real model is connected, I am at your service.",
	},
	goOn: []string{
		"To carry on from there:",
		"Going on where I stopped:",
		"There is a little more to say.",
		"Picking up the thread again:",
		"And further:",
		"Next in line:",
		"Let me add what was still missing.",
		"Where were we? Right here.",
		"The rest of the thought goes like this.",
		"Since you want more, here it is.",
		"One more turn of the same idea:",
		"I had not finished, so thank you for asking.",
	},
	goOnMid: []string{
		"and that, in short, is where the sentence was heading.",
		"which is as far as the thought had come.",
		"and so on, until the point is made.",
		"as I was about to say before the pause.",
		"or something close to it, to finish the sentence.",
		"and there the line would have ended anyway.",
		"to close what I had left open.",
		"and with that the sentence is whole again.",
		"which brings me to the rest.",
		"and no word of it was lost in between.",
		"picking up exactly where the text broke off.",
		"to put the missing full stop where it belongs.",
	},
	act: []string{
		"I would like to use `{tool}` for this; the details are in the card below.",
		"This calls for an action, so I am asking for `{tool}`.",
		"I have prepared `{tool}` and leave the decision where it belongs.",
		"Here is my proposal: `{tool}`, with the arguments you see.",
		"Words alone will not do it, hence my request for `{tool}`.",
		"For this I need `{tool}`; it is handed over under one id that never changes.",
		"I am asking for `{tool}` and will not do anything beyond it.",
		"The next step would be `{tool}`, if you agree.",
		"Let me propose `{tool}`; it is carried out once, however often this answer is read.",
		"You asked for something to be done, and `{tool}` is how.",
		"I suggest `{tool}`, please check what it will do.",
		"What you want is the business of `{tool}`, so I pass it on.",
	},
}

var chinese = phrases{
	gap:      "",
	ask:      "您的问题",
	one:      " 1 个问题",
	many:     " %d 个问题",
	closing:  "第 %[1]d 次模型调用（model call no. %[1]d）",
	ellipsis: "……",
	noTopic:  "一句短话",

	opening: []string{
		"您想聊聊{topic}。",
		"关于{topic}，我尽力而为。",
		"{topic}是个好话题。",
		"收到，我们来看看{topic}。",
		"您提到了{topic}，我就从这里说起。",
		"谢谢您问起{topic}。",
		"说到{topic}，我换一种说法试试。",
		"您的问题我读了两遍，重点是{topic}。",
		"好的，就谈{topic}。",
		"{topic}值得慢慢说。",
		"我很乐意陪您想想{topic}。",
		"这一次，我这样回答{topic}。",
		"围绕{topic}，先说我能做到的。",
		"您关心的是{topic}，我记下了。",
	},
	openingPlain: []string{
		"您好，很高兴收到您的消息。",
		"消息已收到，而且只算一次。",
		"欢迎，请随意提问。",
		"我在听。",
		"简短明了，我喜欢。",
		"您的话已经存好了，不会丢。",
		"那我们就开始吧。",
		"谢谢您来试用。",
		"我在这里，随时可以回答。",
		"您好，一切运转正常。",
		"收到了，数据库也收到了。",
		"很高兴认识您。",
	},
	honest: []string{
		"我是内置模型，没有真正的知识，只负责演示。",
		"坦白说，我是内置的演示模型，句子都来自一个小词库。",
		"我是随程序附带的内置模型，不联网，也不收费。",
		"请别引用我：内置模型不懂世事，只懂流程。",
		"作为内置模型，我能演示回答怎样送达，却不知道对错。",
		"我只是内置模型，替真正的模型先占个位置。",
		"内置模型没有读过书，这一点我不隐瞒。",
		"这里说话的是内置模型：形式是真的，内容仅供演示。",
		"我是内置模型，会计数、会记忆，就是没有学问。",
		"说明一下，我是演示用的内置模型，不懂专业知识。",
		"我的身份很简单：内置模型，供您先试后用。",
		"事实非我所长，因为我是内置的演示模型。",
	},
	memory: []string{
		"此前您问过{earlier}，最近一次是{last}。",
		"我还记得前面的{earlier}，上一个是{last}。",
		"这段对话里已有{earlier}，刚才说的是{last}。",
		"随这次一起送来的还有{earlier}，最后谈到{last}。",
		"往前数有{earlier}，离得最近的是{last}。",
		"前文我都收到了，共{earlier}，末尾是{last}。",
		"我们已经聊过{earlier}，{last}还在我的记忆里。",
		"上一次您说的是{last}，到现在共有{earlier}在前。",
		"我没有忘：之前有{earlier}，包括{last}。",
		"历史记录显示{earlier}在前，{last}刚刚谈过。",
		"在此之前是{last}，加起来有{earlier}。",
		"已有{earlier}垫底，上一个关于{last}。",
	},
	adviceIntro: []string{
		"不妨先做这几件事：",
		"几条通用的思路：",
		"无论谁来回答，这些都有用：",
		"我的笔记如下：",
		"可以从这里入手：",
		"值得随手记下：",
		"不懂也能说的几点：",
		"小小的清单：",
		"问真正的模型之前：",
		"换作是我，会这样想：",
		"几个诚实的起点：",
		"先理一理头绪：",
	},
	steps: []string{
		"按这个顺序试试：",
		"一步一步来：",
		"我建议这样走：",
		"可以分三步：",
		"先后次序如下：",
		"一条可行的路：",
		"慢慢拆开来看：",
		"先做要紧的：",
		"大致的步骤：",
		"不妨照此进行：",
		"请内行再改的计划：",
		"一件一件来：",
	},
	advice: []string{
		"**写下已知**，两行就够",
		"**说清目的**：答案用来决定什么",
		"**先找原始资料**",
		"**听听反对意见**",
		"**试最小的例子**",
		"**找一个关键数字**",
		"**画在纸上**，漏洞自现",
		"**讲给朋友听**",
		"**分开事实与愿望**",
		"**留意例外**",
		"**定个期限**",
		"**从结果倒推**",
		"**一次只改一处**",
		"**保留失败记录**",
		"**换个问法再问**",
		"**睡一觉再看**",
	},
	tableIntro: []string{
		"要比较，先列表：",
		"同样的问题问每一方：",
		"我选不出赢家，但可以列出要点：",
		"差别常藏在这里：",
		"放在一起看：",
		"让表格来说话：",
		"选择之前先看这些：",
		"天平上该放的是：",
		"一个框架，待内行填写：",
		"我会这样对照：",
		"比较无非是一视同仁：",
		"一页纸看清：",
	},
	tableHead: [][2]string{
		{"看什么", "为什么"},
		{"问题", "理由"},
		{"要点", "意义"},
		{"方面", "原因"},
	},
	criteria: [][2]string{
		{"全年成本", "标价只是一天"},
		{"怎样出错", "见真功夫"},
		{"能否反悔", "可逆才便宜"},
		{"谁天天用", "他们最清楚"},
		{"学习时间", "比工具更贵"},
		{"缺了什么", "广告不会说"},
		{"高峰表现", "平日不算数"},
		{"年头", "经得起时间"},
		{"维修", "总得有人做"},
		{"依赖谁", "明天还在吗"},
		{"证据", "胜过意见"},
		{"次优方案", "差距也许很小"},
	},
	codeIntro: []string{
		"代码我会一点，只关于「只问一次」：",
		"这几行就是核心：",
		"我背得最熟的一段：",
		"顺序是有意的，请看：",
		"先记录，后执行：",
		"双击无害的秘密：",
		"一个草图，但想过：",
		"拿去当起点：",
		"道理都在代码里：",
		"我最喜欢的几行：",
		"您要代码，这是看家本领：",
		"写成代码是这样：",
	},
	once: []string{
		"连按两次发送，我的调用次数只加一：第二次会并入这个回答。",
		"这段文字只存一份，用同一个编号再问，得到的一字不差。",
		"若真的叫我两次，我每次说法都不同，重复与否一看便知。",
		"一次点击就是一个意图：一个问题、一个回答、一笔费用。",
		"特意再发同样的话，就是新的意图，我会重新回答。",
		"断线也不要紧，重连后从断处继续。",
		"关掉页面也行，回答照样写完。",
		"我听到问题之前，它已经安全落盘。",
		"每次尝试都有记录，收据里一目了然。",
		"没人能保证模型只被调用一次，但回答和费用只有一份。",
		"线路中断时，诚实的说法是「结果未知」，收据会照实写。",
		"重试若遇上现成的回答，一分钱也不花。",
		"编号代表意图，不代表文字，所以同样的问题互不混淆。",
		"即使重启，这个回答也一字不变。",
		"队列会重复投递，第二次只会拿到第一次的回答。",
		"末行的数字只在真正调用我时增加，是个好证人。",
		"程序此刻若被中止，重启后仍知道这个问题还没答完。",
		"重复在这里是安全的，周围的设计因此简单许多。",
		"先记录，再调用：要紧的事总是先写下来。",
		"重复请求不是错误，它只是网络太谨慎。",
		"我提议的操作各有固定编号，需要时由人决定。",
		"中途停止也可以，已有的文字就是回答。",
	},
	connect: []string{
		"想要真知识，请在设置里连接真正的模型。",
		"连接真正的模型后再问，保障不变。",
		"填上地址和密钥，就能换掉我。",
		"本机运行的模型也能接替我。",
		"准备好了就连接真正的模型，我不介意。",
		"换模型只需一张表单。",
		"真正的模型接上之前，由我代劳。",
		"我的接班人在设置的模型页里。",
		"看够了我，就接一个读过书的模型吧。",
		"随时可以换成真正的模型，对话照旧。",
		"兼容 OpenAI 接口的服务都能接替我。",
		"真正的答案，请交给真正的模型。",
	},
	goOn: []string{
		"接着往下说。",
		"从刚才停下的地方继续。",
		"还有一点要补充。",
		"继续这个话头。",
		"再往前走一步。",
		"下面是余下的部分。",
		"您想多听一些，这就来。",
		"话还没说完，谢谢您再问。",
		"刚才说到哪儿了？就是这里。",
		"同一个意思，再展开一点。",
		"补上缺的那一段。",
		"好，我们继续。",
	},
	goOnMid: []string{
		"这句话到此才算完整。",
		"意思大致如此。",
		"刚才正要说到这里。",
		"把没说完的补上。",
		"中间一个字也没丢。",
		"然后自然收尾。",
		"正是从断处接上的。",
		"就这样把句号补齐。",
		"接下来再说其余的。",
		"这正是原本的去向。",
		"停顿之后接着讲。",
		"话头就这样续上了。",
	},
	act: []string{
		"为此我请求执行 `{tool}`，详情见下方卡片。",
		"这需要一个操作：`{tool}`。",
		"我已备好 `{tool}`，由您决定。",
		"我的提议是 `{tool}`，参数如下方所示。",
		"光说不够，所以请求 `{tool}`。",
		"我需要 `{tool}`，它始终只用一个编号。",
		"除了 `{tool}`，我不会做别的。",
		"下一步是 `{tool}`，如果您同意。",
		"请核对 `{tool}` 的内容再决定。",
		"您要办的事，由 `{tool}` 来完成。",
		"我建议使用 `{tool}`，请过目。",
		"这是 `{tool}` 的职责，我转交给它。",
	},
}

// A snippet is code about asking once, in a programming language the question
// may name.
type snippet struct {
	words []string // in lower case; as they stand in a question
	tag   string   // after the fence
	code  string
}

var snippets = []snippet{
	{[]string{"go", "golang"}, "go", `if !store.Insert(id, question) {
	return store.Wait(id) // somebody was here first
}
return store.Finish(id, model.Ask(question))`},
	{[]string{"python", "py"}, "python", `def ask(id, question):
    if not store.insert(id, question):
        return store.wait(id)
    return store.finish(id, model(question))`},
	{[]string{"javascript", "js", "typescript", "node", "browser"}, "js", `const id = newId();
outbox.put(id, body); // before the network
await send(id, body); // again and again, same id
outbox.delete(id);`},
	{[]string{"sql", "sqlite", "postgres", "database", "数据库"}, "sql", `INSERT INTO requests (id, question)
VALUES (:id, :question)
ON CONFLICT (id) DO NOTHING
RETURNING id; -- no row: somebody was here first`},
	{[]string{"sql", "sqlite", "postgres", "update"}, "sql", `UPDATE requests
SET state = 'answered', answer = :answer
WHERE id = :id AND attempt = :attempt
  AND state = 'generating'; -- no row: fenced`},
	{[]string{"bash", "shell", "curl", "http", "api", "sh"}, "sh", `curl -H 'Idempotency-Key: order-2026-0001' \
  -H 'Content-Type: application/json' \
  -d '{"sessionId":"my-session","content":"Hello"}' \
  "$SEMEL/api/chat"`},
	{[]string{"rust"}, "rust", `match store.insert(&id, &question)? {
    Inserted => store.finish(&id, model.ask(&question)?),
    Known => store.wait(&id),
}`},
	{[]string{"java", "kotlin", "spring"}, "java", `if (!store.insert(id, question)) {
    return store.await(id);
}
return store.finish(id, model.ask(question));`},
}

// Words that make a question one about code, a comparison or a procedure.
// Chinese ones are looked for anywhere, English ones as whole words.
var (
	codeWords = wordSet(`code program function script snippet golang python javascript typescript sql
		sqlite postgres bash curl api rust java kotlin 代码 程序 函数 脚本 编程`)
	tableWords = wordSet(`compare comparison difference differences versus vs table better best choose
		choice pros cons 比较 对比 区别 差别 表格 哪个 哪种 还是 优缺点`)
	stepWords = wordSet(`how steps step plan procedure guide recipe 怎么 怎样 如何 步骤 计划 流程 方法`)
)

// stopWords carry no subject: they end a topic or are not in one.
var stopWords = wordSet(`a about above after again all also am an and any are as ask at be because been
	before being below between both but by can cannot compare could create describe did difference
	differences do does doing don't down draft each else every example explain few find first for from
	full get give go going good got had has have having he hello her here hey hi him his how i i'd i'm
	if in into is isn't it it's its just know last let let's like list little long look lot made make many
	may me mean might more most much must my need new no nor not now of off ok okay on one only
	other our out over please possible quick read really right said same say see shall she short
	should show simple so some something such table take tell test than thank thanks that that's the
	their them then there these they thing things think this those through time to today too true try
	two under until up us use using versus very vs want was way we well were what what's when where
	whether which while who whom whose why will without word words work would write yes yet you
	you'd your yours better best code step steps three four five anything`)

// chineseStops separate a Chinese question, which has no spaces, into pieces one
// of which is its subject. Longer ones first.
var chineseStops = []string{
	"介绍一下", "解释一下", "为什么", "是什么", "有什么", "什么是", "怎么样", "能不能", "可不可以", "是不是", "有没有",
	"并请", "请帮我", "帮我写", "告诉我", "说一下", "讲一下", "写一首", "写一篇", "写一个", "写一段", "写一份", "想了解", "什么叫",
	"谈谈", "聊聊", "说说", "讲讲", "签订", "请问", "请写", "帮我", "什么", "怎么", "怎样", "如何", "哪个", "哪些", "哪种", "多少", "一下", "一个", "一份",
	"一些", "可以", "能否", "应该", "需要", "知道", "介绍", "解释", "说明", "起草", "比较", "区别", "之间", "关于",
	"我们", "你们", "他们", "这个", "那个", "今天", "现在", "你好", "您好", "谢谢", "我想", "我要", "想要",
	"的", "是", "吗", "呢", "吧", "啊", "我", "你", "您", "请",
}

// actionWords are Chinese words for the English ones that names of actions are
// made of, so that a Chinese question finds an action described in English.
var actionWords = map[string][]string{
	"sign":     {"签"},
	"contract": {"合同", "合约", "协议"},
	"order":    {"订单", "下单", "订购"},
	"pay":      {"付款", "支付"},
	"payment":  {"付款", "支付"},
	"refund":   {"退款"},
	"invoice":  {"发票", "账单"},
	"send":     {"发送", "寄", "发一"},
	"email":    {"邮件"},
	"mail":     {"邮件"},
	"message":  {"消息", "短信"},
	"book":     {"预订", "预定", "订"},
	"cancel":   {"取消"},
	"delete":   {"删除"},
	"create":   {"创建", "新建", "起草"},
	"ticket":   {"工单", "票"},
	"meeting":  {"会议"},
	"ship":     {"发货"},
	"transfer": {"转账"},
	"report":   {"报告"},
	"notify":   {"通知"},
	"approve":  {"批准", "审批"},
}
