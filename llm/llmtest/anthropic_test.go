package llmtest_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"semel/chat"
	"semel/llm/llmtest"
)

// A messageEvent is what a test looks at of a Messages stream.
type messageEvent struct {
	Type    string
	Index   int
	Message *message
	Delta   struct {
		Type, Text, Thinking, Signature string
		JSON                            string  `json:"partial_json"`
		Stop                            *string `json:"stop_reason"`
	}
	Block struct{ Type, ID, Name string } `json:"content_block"`
	Usage *messageUsage
}

type message struct {
	Content []struct {
		Type, Text, Thinking, ID, Name string
		Input                          json.RawMessage
	}
	Stop  *string `json:"stop_reason"`
	Usage *messageUsage
}

type messageUsage struct {
	Input  int64 `json:"input_tokens"`
	Write  int64 `json:"cache_creation_input_tokens"`
	Read   int64 `json:"cache_read_input_tokens"`
	Output int64 `json:"output_tokens"`
}

func messageEvents(t *testing.T, body string) (list []messageEvent) {
	t.Helper()
	for _, e := range events(body) {
		var ev messageEvent
		if err := json.Unmarshal([]byte(e), &ev); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(body, "event: "+ev.Type+"\ndata: "+e) {
			t.Errorf("event %s has another name", ev.Type)
		}
		list = append(list, ev)
	}
	return list
}

func TestAMessageStreamSaysEverything(t *testing.T) {
	script := everything
	script.CacheWrites = 15
	list := messageEvents(t, ask(t, llmtest.Anthropic, script, true).body)
	var order, blocks []string
	var text, thinking, signature, arguments string
	for _, e := range list {
		if len(order) == 0 || order[len(order)-1] != e.Type {
			order = append(order, e.Type)
		}
		if e.Type == "content_block_start" {
			if e.Index != len(blocks) {
				t.Errorf("got block %d, want %d", e.Index, len(blocks))
			}
			blocks = append(blocks, e.Block.Type)
		}
		text += e.Delta.Text
		thinking += e.Delta.Thinking
		signature += e.Delta.Signature
		arguments += e.Delta.JSON
	}
	if text != "Once <&> \u2028 一次." || thinking != "Let me think." || signature == "" || arguments != everything.Tools[0].Arguments+"{}" {
		t.Errorf("got %q, %q, %q, %q", text, thinking, signature, arguments)
	}
	if want := []string{"thinking", "text", "tool_use", "tool_use"}; !slices.Equal(blocks, want) {
		t.Errorf("got blocks %v, want %v", blocks, want)
	}
	block := []string{"content_block_start", "content_block_delta", "content_block_stop"}
	want := slices.Concat([]string{"message_start", "content_block_start", "ping"}, block[1:], block, block, block, []string{"message_delta", "message_stop"})
	if !slices.Equal(order, want) {
		t.Errorf("got  %v\nwant %v", order, want)
	}
	if u, want := *list[0].Message.Usage, (messageUsage{Input: 25, Write: 15, Read: 60, Output: 1}); u != want {
		t.Errorf("got usage %+v, want %+v", u, want)
	}
	end := list[len(list)-2]
	if *end.Delta.Stop != "tool_use" || end.Usage.Output != 7 {
		t.Errorf("got %+v", end)
	}
}

func TestAMessageSaysEverything(t *testing.T) {
	var got message
	if err := json.Unmarshal([]byte(ask(t, llmtest.Anthropic, everything, false).body), &got); err != nil {
		t.Fatal(err)
	}
	if c := got.Content; len(c) != 4 || c[0].Thinking != "Let me think." || c[1].Text != "Once <&> \u2028 一次." || c[2].Name != "sign" ||
		string(c[2].Input) != everything.Tools[0].Arguments || c[3].ID != "x" {
		t.Errorf("got %+v", c)
	}
	if *got.Stop != "tool_use" || *got.Usage != (messageUsage{Input: 40, Read: 60, Output: 7}) {
		t.Errorf("got %q, %+v", *got.Stop, *got.Usage)
	}
}

func TestEndsOfAMessageStream(t *testing.T) {
	for name, tt := range map[string]struct {
		script                llmtest.Script
		stop                  string
		deltas, stops, usages int
	}{
		"plain":     {llmtest.Script{}, "end_turn", 1, 1, 2},
		"too long":  {llmtest.Script{Finish: chat.FinishLength}, "max_tokens", 1, 1, 2},
		"filtered":  {llmtest.Script{Finish: chat.FinishFiltered}, "refusal", 1, 1, 2},
		"twice":     {llmtest.Script{DoubleEnd: true}, "end_turn", 2, 2, 3},
		"no end":    {llmtest.Script{NoDone: true}, "end_turn", 1, 0, 2},
		"no finish": {llmtest.Script{NoFinish: true}, "", 1, 1, 2},
		"no usage":  {llmtest.Script{NoUsage: true}, "end_turn", 1, 1, 0},
	} {
		var stop string
		var deltas, stops, usages int
		for _, e := range messageEvents(t, ask(t, llmtest.Anthropic, tt.script, true).body) {
			if e.Usage != nil || e.Message != nil && e.Message.Usage != nil {
				usages++
			}
			switch e.Type {
			case "message_delta":
				deltas++
				if e.Delta.Stop != nil {
					stop = *e.Delta.Stop
				}
			case "message_stop":
				stops++
			}
		}
		if stop != tt.stop || deltas != tt.deltas || stops != tt.stops || usages != tt.usages {
			t.Errorf("%s: got %q, %d, %d, %d, want %+v", name, stop, deltas, stops, usages, tt)
		}
	}
}

func TestAMessageErrorIsAnEvent(t *testing.T) {
	got := ask(t, llmtest.Anthropic, llmtest.Script{ErrorFrame: &llmtest.Failure{Status: 529}}, true).body
	if !strings.Contains(got, "\nevent: error\ndata: {") || !strings.Contains(got, `"type":"overloaded_error"`) {
		t.Errorf("got %s", got)
	}
}

func TestMessagesNeedTheirVersion(t *testing.T) {
	s := llmtest.NewServer(t, llmtest.Anthropic)
	r := prompt(t.Context(), t, s, llmtest.Anthropic, true)
	r.Header.Del("Anthropic-Version")
	if got := send(t, r); got.StatusCode != 400 || !strings.Contains(got.body, "anthropic-version") {
		t.Errorf("got %d %s", got.StatusCode, got.body)
	}
}
