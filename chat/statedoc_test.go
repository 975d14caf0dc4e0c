package chat_test

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"semel/chat"
)

var update = flag.Bool("update", false, "write docs/state-machine.md and testdata anew")

// when says in words when each edge is taken.
var when = map[chat.Edge]string{
	{From: chat.StateNew, To: chat.StatePending}:             "the intent is accepted: question, first transition and first arrival are durable before anybody is told",
	{From: chat.StatePending, To: chat.StateGenerating}:      "the claim: attempt + 1, the context is frozen, the attempt's row is durable before the first byte leaves",
	{From: chat.StatePending, To: chat.StateFailed}:          "stopped while it waited, or its model is gone",
	{From: chat.StateGenerating, To: chat.StatePending}:      "the attempt was refused, or its outcome is unknown and the policy is `rerun`: the engine tries again",
	{From: chat.StateGenerating, To: chat.StateFailed}:       "the attempt failed for good, or its outcome is unknown and the policy is `ask`",
	{From: chat.StateGenerating, To: chat.StateAcknowledged}: "the answer is final: snapshot, message, charge and dedupe mark in this transaction",
	{From: chat.StateAcknowledged, To: chat.StateCommitted}:  "every effect is settled; with none, in the same transaction",
	{From: chat.StateFailed, To: chat.StatePending}:          "a person asks again, or a repeat arrives where the failure says `retry: auto`",
}

func TestTheStateMachineOfTheDocumentationIsTheOneOfTheCode(t *testing.T) {
	const path = "../docs/state-machine.md"
	want := stateDoc()
	if *update {
		if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want {
		t.Errorf("%s is not what the code says: run go test ./chat -run StateMachine -update", path)
	}
	if len(when) != len(chat.Edges) {
		t.Errorf("%d edges are described, there are %d", len(when), len(chat.Edges))
	}
}

func stateDoc() string {
	var b strings.Builder
	b.WriteString("# The life of a request\n\nGenerated from `chat.Edges`; `schema.sql` refuses any other edge.\n\n```mermaid\nstateDiagram-v2\n")
	for _, e := range chat.Edges {
		from := string(e.From)
		if e.From == chat.StateNew {
			from = "[*]"
		}
		fmt.Fprintf(&b, "    %s --> %s\n", from, e.To)
	}
	b.WriteString("    committed --> [*]\n```\n\n| from | to | when |\n|---|---|---|\n")
	for _, e := range chat.Edges {
		fmt.Fprintf(&b, "| %s | %s | %s |\n", e.From, e.To, when[e])
	}
	b.WriteString("\n| state | clients see | answer final | waits for its answer |\n|---|---|---|---|\n")
	for _, s := range chat.States {
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", s, s.Status(), yes(s.Answered()), yes(s.Live()))
	}
	effectDoc(&b)
	return b.String()
}

// effectWhen says in words when each edge of an effect is taken.
var effectWhen = map[[2]chat.EffectState]string{
	{chat.EffectPending, chat.EffectDelivering}:       "its turn: attempt + 1, the delivery's row is durable before the first byte leaves",
	{chat.EffectPending, chat.EffectDead}:             "its destination is gone or wants no more, or its receiver no longer knows the id",
	{chat.EffectPending, chat.EffectDelivered}:        "its receiver called back with yes, before its next delivery",
	{chat.EffectPending, chat.EffectRefused}:          "its receiver called back with no, and nothing undoes it",
	{chat.EffectPending, chat.EffectCompensating}:     "its receiver called back with no, or a person undoes what may have been executed",
	{chat.EffectPending, chat.EffectAbandoned}:        "a person gives it up",
	{chat.EffectDelivering, chat.EffectPending}:       "the delivery failed: again later, under the same id",
	{chat.EffectDelivering, chat.EffectAwaiting}:      "the receiver took it and is to call back",
	{chat.EffectDelivering, chat.EffectDelivered}:     "the receiver took it and need not call back, or it called back with yes",
	{chat.EffectDelivering, chat.EffectDead}:          "the tries are used up, or trying again is not safe",
	{chat.EffectDelivering, chat.EffectRefused}:       "its receiver called back with no, before the delivery was marked",
	{chat.EffectDelivering, chat.EffectCompensating}:  "likewise, and something undoes it",
	{chat.EffectAwaiting, chat.EffectDelivered}:       "its receiver called back with yes",
	{chat.EffectAwaiting, chat.EffectRefused}:         "its receiver called back with no, and nothing undoes it",
	{chat.EffectAwaiting, chat.EffectTimedOut}:        "nobody called back in time",
	{chat.EffectAwaiting, chat.EffectCompensating}:    "its receiver called back with no, or a person undoes it",
	{chat.EffectAwaiting, chat.EffectAbandoned}:       "a person gives it up",
	{chat.EffectDead, chat.EffectPending}:             "a person sends it again, under the same id",
	{chat.EffectDead, chat.EffectDelivered}:           "its receiver called back with yes after all",
	{chat.EffectDead, chat.EffectRefused}:             "its receiver called back with no, and nothing undoes it",
	{chat.EffectDead, chat.EffectCompensating}:        "its receiver called back with no, or a person undoes what may have been executed",
	{chat.EffectDead, chat.EffectAbandoned}:           "a person gives it up",
	{chat.EffectTimedOut, chat.EffectPending}:         "a person sends it again, under the same id",
	{chat.EffectTimedOut, chat.EffectDelivered}:       "its receiver called back with yes after all",
	{chat.EffectTimedOut, chat.EffectRefused}:         "its receiver called back with no, and nothing undoes it",
	{chat.EffectTimedOut, chat.EffectCompensating}:    "its receiver called back with no, or a person undoes it",
	{chat.EffectTimedOut, chat.EffectAbandoned}:       "a person gives it up",
	{chat.EffectRefused, chat.EffectAbandoned}:        "a person takes note",
	{chat.EffectCompensating, chat.EffectCompensated}: "what undoes it was delivered",
	{chat.EffectCompensating, chat.EffectAbandoned}:   "a person gave up what undoes it",
}

var effectStates = []chat.EffectState{
	chat.EffectPending, chat.EffectDelivering, chat.EffectAwaiting, chat.EffectDead, chat.EffectTimedOut, chat.EffectRefused,
	chat.EffectCompensating, chat.EffectDelivered, chat.EffectAbandoned, chat.EffectCompensated,
}

func effectDoc(b *strings.Builder) {
	b.WriteString("\n# The life of an effect\n\nOf a row of the outbox. Generated from `chat.EffectEdges`; `schema.sql` refuses any other edge.\n\n```mermaid\nstateDiagram-v2\n    [*] --> pending\n")
	for _, from := range effectStates {
		for _, to := range chat.EffectEdges[from] {
			fmt.Fprintf(b, "    %s --> %s\n", from, to)
		}
	}
	b.WriteString("```\n\n| from | to | when |\n|---|---|---|\n")
	for _, from := range effectStates {
		for _, to := range chat.EffectEdges[from] {
			fmt.Fprintf(b, "| %s | %s | %s |\n", from, to, effectWhen[[2]chat.EffectState{from, to}])
		}
	}
	b.WriteString("\n| state | settled | waits for a person |\n|---|---|---|\n")
	for _, s := range append([]chat.EffectState{chat.EffectUndecided, chat.EffectRejected}, effectStates...) {
		fmt.Fprintf(b, "| %s | %s | %s |\n", s, yes(s.Settled()), yes(s.Troubled() || s == chat.EffectUndecided))
	}
}

func TestEveryEdgeOfAnEffectIsDescribed(t *testing.T) {
	n := 0
	for from, all := range chat.EffectEdges {
		for _, to := range all {
			n++
			if effectWhen[[2]chat.EffectState{from, to}] == "" {
				t.Errorf("%s to %s is not described", from, to)
			}
			if from.Settled() || !from.CanBecome(to) {
				t.Errorf("%s to %s: nothing follows what is settled", from, to)
			}
		}
	}
	if n != len(effectWhen) {
		t.Errorf("%d edges are described, there are %d", len(effectWhen), n)
	}
}

func yes(b bool) string {
	if b {
		return "yes"
	}
	return ""
}
