package lab

// What people ask here. The model proposes the action that the last one asks for.
const (
	askBoat  = "What is a good name for a sailing boat?"
	askTea   = "How long should green tea stand?"
	askLight = "Why is the sky blue in the morning?"
	askSign  = "Please draft the contract for the pilot with Example Ltd and have it signed."
)

// Scenarios are all there are, in the order in which they are told.
var Scenarios = []Scenario{
	{
		Number: 1, Name: "network-retry", Title: "lab.network_retry.title", About: "lab.network_retry.about",
		Steps: []Step{
			{Do: "click", Click: "a", Words: askBoat, Fault: "lost", Say: "lab.step.click_lost"},
			{Do: "click", Click: "a", Say: "lab.step.resend"},
		},
		Want:   map[string]int{"clicks": 1, "arrivals": 2, "calls": 1, "answers": 1, "charges": 1, "lost": 0},
		Damage: []string{"calls", "answers", "charges"},
	},
	{
		Number: 2, Name: "double-submit", Title: "lab.double_submit.title", About: "lab.double_submit.about",
		Steps: []Step{
			{Do: "together", Click: "a", Words: askBoat, Times: 2, Say: "lab.step.double"},
			{Do: "settle", Say: "lab.step.look"},
		},
		Want:   map[string]int{"clicks": 1, "arrivals": 2, "calls": 1, "answers": 1, "charges": 1, "lost": 0},
		Damage: []string{"calls", "answers", "charges"},
	},
	{
		Number: 3, Name: "queue-redelivery", Title: "lab.queue_redelivery.title", About: "lab.queue_redelivery.about",
		Steps: []Step{
			{Do: "deliver", Click: "a", Words: askBoat, Fault: "lost", Say: "lab.step.deliver_lost"},
			{Do: "redeliver", Say: "lab.step.redeliver_now"},
			{Do: "deliver", Click: "b", Words: askTea, Fault: "lost", Say: "lab.step.deliver_lost"},
			{Do: "deliver", Click: "c", Words: askLight, Say: "lab.step.deliver"},
			{Do: "deliver", Click: "d", Words: askBoat, Fault: "lost", Say: "lab.step.deliver_lost"},
			{Do: "redeliver", Say: "lab.step.redeliver_later"},
			{Do: "deliver", Click: "e", Words: askTea, Fault: "lost", Say: "lab.step.deliver_lost"},
			{Do: "kill", Say: "lab.step.kill"},
			{Do: "start", Say: "lab.step.start"},
			{Do: "redeliver", Say: "lab.step.redeliver_restart"},
		},
		Want:   map[string]int{"clicks": 5, "arrivals": 9, "calls": 5, "answers": 5, "charges": 5, "lost": 0},
		Damage: []string{"calls", "answers", "charges"},
	},
	{
		Number: 4, Name: "restart-mid-answer", Title: "lab.restart.title", About: "lab.restart.about",
		Steps: []Step{
			{Do: "begin", Click: "a", Words: askBoat, Fault: "mid-answer", Say: "lab.step.begin"},
			{Do: "kill", Say: "lab.step.kill"},
			{Do: "start", Say: "lab.step.start"},
			{Do: "settle", Say: "lab.step.open"},
		},
		Want:   map[string]int{"clicks": 1, "arrivals": 1, "calls": 2, "answers": 1, "charges": 1, "lost": 0},
		Damage: []string{"answers", "charges", "lost"},
	},
	{
		Number: 5, Name: "two-tabs", Title: "lab.two_tabs.title", About: "lab.two_tabs.about",
		Steps: []Step{
			{Do: "click", Click: "a", Words: askBoat, Fault: "model", Say: "lab.step.click_fail"},
			{Do: "tabs", Click: "a", Times: 2, Say: "lab.step.tabs"},
			{Do: "settle", Say: "lab.step.look"},
		},
		Want:   map[string]int{"clicks": 1, "arrivals": 3, "calls": 2, "answers": 1, "charges": 1, "lost": 0},
		Damage: []string{"calls", "answers", "charges"},
	},
	{
		Number: 6, Name: "other-words", Title: "lab.other_words.title", About: "lab.other_words.about",
		Steps: []Step{
			{Do: "click", Click: "a", Words: askBoat, Say: "lab.step.click"},
			{Do: "other", Click: "a", Words: askTea, Say: "lab.step.other"},
			{Do: "settle", Say: "lab.step.look"},
		},
		Want:   map[string]int{"clicks": 1, "arrivals": 2, "calls": 1, "answers": 1, "charges": 1, "lost": 0},
		Damage: []string{"calls", "answers", "charges"},
	},
	{
		Number: 7, Name: "same-words", Title: "lab.same_words.title", About: "lab.same_words.about",
		Steps: []Step{
			{Do: "click", Click: "a", Words: askBoat, Say: "lab.step.click"},
			{Do: "click", Click: "b", In: "a", Words: askBoat, Fault: "lost", Say: "lab.step.same_lost"},
			{Do: "click", Click: "b", Say: "lab.step.resend"},
		},
		Want:   map[string]int{"clicks": 2, "arrivals": 3, "calls": 2, "answers": 2, "charges": 2, "lost": 0},
		Damage: []string{"calls", "answers", "charges"},
	},
	{
		Number: 8, Name: "stalled-worker", Title: "lab.stalled_worker.title", About: "lab.stalled_worker.about",
		Steps: []Step{
			{Do: "begin", Click: "a", Words: askBoat, Fault: "silent", Say: "lab.step.begin_silent"},
			{Do: "giveup", Click: "a", Say: "lab.step.giveup"},
			{Do: "wake", Say: "lab.step.wake"},
			{Do: "settle", Say: "lab.step.look"},
		},
		Want:   map[string]int{"clicks": 1, "calls": 2, "answers": 1, "charges": 1, "lost": 0},
		Damage: []string{"answers", "charges"},
	},
	{
		Number: 9, Name: "works-then-500", Title: "lab.works_500.title", About: "lab.works_500.about",
		Steps: []Step{
			{Do: "click", Click: "a", Words: askSign, Fault: "works 500", Say: "lab.step.click_sign_500"},
			{Do: "settle", Say: "lab.step.look"},
		},
		Want:   map[string]int{"clicks": 1, "calls": 1, "answers": 1, "charges": 1, "executions": 1, "results": 1, "lost": 0},
		Damage: []string{"executions", "results"},
	},
	{
		Number: 10, Name: "kill-each-phase", Title: "lab.kill_phases.title", About: "lab.kill_phases.about",
		Steps: []Step{
			{Do: "begin", Click: "a", Words: askSign, Fault: "mid-answer", Say: "lab.step.begin_sign"},
			{Do: "kill", Say: "lab.step.kill"},
			{Do: "start", Say: "lab.step.start"},
			{Do: "click", Click: "a", Say: "lab.step.resend"},
			{Do: "settle", Say: "lab.step.look"},
			{Do: "begin", Click: "b", Words: askSign, Fault: "before work", Say: "lab.step.begin_before"},
			{Do: "kill", Say: "lab.step.kill"},
			{Do: "start", Say: "lab.step.start"},
			{Do: "click", Click: "b", Say: "lab.step.resend"},
			{Do: "settle", Say: "lab.step.look"},
			{Do: "begin", Click: "c", Words: askSign, Fault: "after work", Say: "lab.step.begin_after"},
			{Do: "kill", Say: "lab.step.kill"},
			{Do: "start", Say: "lab.step.start"},
			{Do: "click", Click: "c", Say: "lab.step.resend"},
			{Do: "settle", Say: "lab.step.look"},
			{Do: "begin", Click: "d", Words: askSign, Fault: "before callback", Say: "lab.step.begin_callback"},
			{Do: "kill", Say: "lab.step.kill"},
			{Do: "start", Say: "lab.step.start"},
			{Do: "settle", Say: "lab.step.look"},
		},
		Want:   map[string]int{"clicks": 4, "arrivals": 7, "calls": 5, "answers": 4, "charges": 4, "executions": 4, "results": 4, "lost": 0},
		Damage: []string{"calls", "answers", "charges", "executions"},
	},
	{
		Number: 11, Name: "callbacks", Title: "lab.callbacks.title", About: "lab.callbacks.about",
		Steps: []Step{
			{Do: "click", Click: "a", Words: askSign, Fault: "callback twice", Say: "lab.step.callback_twice"},
			{Do: "settle", Say: "lab.step.look"},
			{Do: "click", Click: "b", Words: askSign, Fault: "callback early", Say: "lab.step.callback_early"},
			{Do: "settle", Say: "lab.step.look"},
			{Do: "click", Click: "c", Words: askSign, Fault: "callback contradicts", Say: "lab.step.callback_contradicts"},
			{Do: "settle", Say: "lab.step.look"},
		},
		Want:   map[string]int{"clicks": 3, "arrivals": 3, "calls": 3, "answers": 3, "charges": 3, "executions": 3, "results": 3, "lost": 0},
		Damage: []string{"executions", "results"},
	},
	{
		Number: 12, Name: "compensation", Title: "lab.compensation.title", About: "lab.compensation.about",
		Steps: []Step{
			{Do: "click", Click: "a", Words: askSign, Fault: "not signed", Say: "lab.step.not_signed"},
			{Do: "settle", Say: "lab.step.look"},
		},
		Want:   map[string]int{"clicks": 1, "arrivals": 1, "calls": 1, "answers": 1, "charges": 1, "executions": 2, "results": 1, "lost": 0},
		Damage: []string{"executions"},
	},
	{
		Number: 13, Name: "storm", Title: "lab.storm.title", About: "lab.storm.about",
		Steps: []Step{
			{Do: "together", Click: "a", Words: askBoat, Times: 1000, Say: "lab.step.storm"},
			{Do: "settle", Say: "lab.step.look"},
		},
		Want:   map[string]int{"clicks": 1, "arrivals": 1000, "calls": 1, "answers": 1, "charges": 1, "lost": 0},
		Damage: []string{"calls", "answers", "charges"},
	},
	{
		Number: 14, Name: "wrong-clock", Title: "lab.wrong_clock.title", About: "lab.wrong_clock.about",
		Steps: []Step{
			{Do: "click", Click: "a", Words: askBoat, Fault: "ahead lost", Say: "lab.step.ahead"},
			{Do: "click", Click: "a", Say: "lab.step.resend"},
			{Do: "click", Click: "b", Words: askTea, Fault: "behind lost", Say: "lab.step.behind"},
			{Do: "click", Click: "b", Say: "lab.step.resend"},
		},
		Want:   map[string]int{"clicks": 2, "calls": 2, "answers": 2, "charges": 2, "lost": 0},
		Damage: []string{"calls", "answers", "charges"},
	},
	{
		Number: 15, Name: "old-id", Title: "lab.old_id.title", About: "lab.old_id.about",
		Steps: []Step{
			{Do: "click", Click: "a", Words: askBoat, Say: "lab.step.click"},
			{Do: "delete", Click: "a", Say: "lab.step.delete"},
			{Do: "months", Say: "lab.step.months"},
			{Do: "click", Click: "a", Say: "lab.step.old"},
			{Do: "settle", Say: "lab.step.look"},
		},
		Want:   map[string]int{"clicks": 1, "arrivals": 2, "calls": 1, "answers": 0, "charges": 1},
		Damage: []string{"calls", "answers", "charges"},
	},
}
