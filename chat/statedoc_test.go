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
	return b.String()
}

func yes(b bool) string {
	if b {
		return "yes"
	}
	return ""
}
