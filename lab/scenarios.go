package lab

// Scenarios are all there are, in the order in which they are told.
var Scenarios = []Scenario{
	{
		Number: 1, Name: "network-retry", Title: "lab.network_retry.title", About: "lab.network_retry.about",
		Steps: []Step{
			{Do: "click", Click: "a", Fault: "lost", Words: "What is a good name for a sailing boat?", Say: "lab.step.click_lost"},
			{Do: "resend", Click: "a", Say: "lab.step.resend"},
		},
		Want:   map[string]int{"clicks": 1, "arrivals": 2, "calls": 1, "answers": 1, "charges": 1, "lost": 0},
		Damage: []string{"calls", "answers", "charges"},
	},
}
