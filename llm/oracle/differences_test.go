package oracle

import "fmt"

// A difference is a field in which our client is to hear something else than the
// provider's library.
type difference struct {
	field, ours, sdk string
	why              string
}

// differences are by name of the transcript.
var differences = map[string][]difference{
	"anthropic/documented/max-tokens-in-tool.sse": {cutTool("toolu_cut get_weather({})")},
	"anthropic/recorded/length-in-tool.sse":       {cutTool("call_1 sign({})")},
	"anthropic/recorded/length-in-tool.json":      {cutTool(`call_1 sign("{\"who\":\"Wa")`)},
	"chat/recorded/length-in-tool.sse":            {cutTool(`call_1 sign({"who":"Wa)`)},
	"chat/recorded/length-in-tool.json":           {cutTool(`call_1 sign({"who":"Wa)`)},
	"responses/recorded/length-in-tool.sse":       {cutTool(`call_1 sign({"who":"Wa)`)},
	"responses/recorded/length-in-tool.json":      {cutTool(`call_1 sign({"who":"Wa)`)},

	"anthropic/documented/refusal-at-once.sse": {refusedAtOnce},
	"anthropic/recorded/filtered-at-once.sse":  {refusedAtOnce},
	"anthropic/recorded/filtered-at-once.json": {refusedAtOnce},
	"chat/recorded/filtered-at-once.sse":       {refusedAtOnce},
	"chat/recorded/filtered-at-once.json":      {refusedAtOnce},
	"responses/recorded/filtered-at-once.sse":  {refusedAtOnce},
	"responses/recorded/filtered-at-once.json": {refusedAtOnce},

	"chat/recorded/no-finish.sse": {{field: "failed", ours: "true", sdk: "false",
		why: "a stream without its end mark may have been cut; the library leaves it to its user to look"}},
	"chat/recorded/no-finish.json": {unsaidFinish},
	"anthropic/recorded/no-finish.sse": {{field: "finish", ours: "stop", sdk: "",
		why: "message_stop is an end as well"}},
	"anthropic/recorded/no-finish.json": {noAnswer},
	"responses/recorded/no-finish.json": {noAnswer},
	"responses/recorded/no-finish.sse": {{field: "finish", ours: "stop", sdk: "",
		why: "the type of the event says what its response leaves out"}},

	"chat/recorded/reasoning-in-text.sse":  thoughtsInText,
	"chat/recorded/reasoning-in-text.json": thoughtsInText,

	"chat/recorded/ollama-tools.sse":  {stopForTools},
	"chat/recorded/ollama-tools.json": {stopForTools},

	"chat/documented/kimi.sse": {{field: "usage", ours: tokens(19, 8, 13), sdk: tokens(0, 0, 0),
		why: "the library does not know of a count inside a choice"}},
}

func cutTool(sdk string) difference {
	return difference{field: "tools", ours: "", sdk: sdk, why: "an answer that was cut causes no actions (contract, section 4)"}
}

var refusedAtOnce = difference{field: "failed", ours: "true", sdk: "false",
	why: "of an answer that was refused before its first word nothing is left (contract, section 4: content refused)"}

var unsaidFinish = difference{field: "finish", ours: "stop", sdk: "",
	why: "a whole document has an end, whether it says so or not"}

var noAnswer = difference{field: "failed", ours: "true", sdk: "false",
	why: "the format demands that the end is said; what does not say it may be anything"}

var thoughtsInText = []difference{
	{field: "text", ours: "\n\nOnce is enough.\n\n一次就够。 🌱 naïve",
		sdk: "<think>The user asks twice；答一次。</think>\n\nOnce is enough.\n\n一次就够。 🌱 naïve", why: "the library does not look into the text"},
	{field: "reasoning", ours: "The user asks twice；答一次。", sdk: "", why: "the library does not look into the text"},
}

var stopForTools = difference{field: "finish", ours: "tool", sdk: "stop",
	why: "some say stop although they ask for actions; what the answer asks for decides"}

func tokens(in, cached, out int64) string {
	return fmt.Sprintf("%d in, %d cached, %d out", in, cached, out)
}
