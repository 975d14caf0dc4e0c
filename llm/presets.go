package llm

// Quirks are the ways in which a provider differs from others of its wire format.
// The zero value is OpenAI's chat completions as most imitate them.
type Quirks struct {
	// MaxCompletionTokens: the limit is named max_completion_tokens; others know
	// max_tokens only.
	MaxCompletionTokens bool
	// NoStream: answers come in one piece, because streams do not work.
	NoStream bool
	// Continue is how to ask for more of an answer.
	Continue Continuation
}

// A Continuation is a way to ask for more of the last assistant turn.
type Continuation string

const (
	// ContinueAsk adds a user turn that asks for it. Every model understands that,
	// but some repeat a few words or begin with a remark.
	ContinueAsk Continuation = ""
	// ContinuePrefill leaves the assistant turn last, as it is.
	ContinuePrefill Continuation = "prefill"
	// ContinuePartial marks the last assistant turn with "partial": true.
	ContinuePartial Continuation = "partial"
	// ContinueFinal says continue_final_message in the call.
	ContinueFinal Continuation = "continue_final_message"
)

// A Preset is what is known of a provider.
type Preset struct {
	Name     string // as in the configuration
	Title    string // as it calls itself
	Provider string // the wire format: "openai", "openai-responses" or "anthropic"
	URL      string // of an [Endpoint]
	Quirks   Quirks
}

// Presets are the providers that are known by name. Servers that people run
// themselves are looked for at their usual port on this machine.
var Presets = []Preset{
	// max_tokens is deprecated and refused by o-series and GPT-5 models:
	// https://platform.openai.com/docs/api-reference/chat/create
	{Name: "openai", Title: "OpenAI", Provider: "openai", URL: "https://api.openai.com/v1",
		Quirks: Quirks{MaxCompletionTokens: true}},
	// https://platform.openai.com/docs/api-reference/responses
	{Name: "openai-responses", Title: "OpenAI Responses", Provider: "openai-responses", URL: "https://api.openai.com/v1"},
	// https://docs.anthropic.com/en/api/messages
	{Name: "anthropic", Title: "Anthropic", Provider: "anthropic", URL: "https://api.anthropic.com/v1"},
	// https://api-docs.deepseek.com; its chat prefix completion needs another base
	// address (https://api-docs.deepseek.com/guides/chat_prefix_completion), so more
	// is asked for in words.
	{Name: "deepseek", Title: "DeepSeek", Provider: "openai", URL: "https://api.deepseek.com"},
	// Keys belong to a region. Partial mode is for non-thinking models only
	// (https://www.alibabacloud.com/help/en/model-studio/partial-mode), which no
	// name tells:
	// https://www.alibabacloud.com/help/en/model-studio/compatibility-of-openai-with-dashscope
	{Name: "qwen", Title: "Qwen (Alibaba Cloud, Singapore)", Provider: "openai", URL: "https://dashscope-intl.aliyuncs.com/compatible-mode/v1"},
	{Name: "qwen-cn", Title: "Qwen (阿里云百炼)", Provider: "openai", URL: "https://dashscope.aliyuncs.com/compatible-mode/v1"},
	// https://docs.z.ai/api-reference/llm/chat-completion,
	// https://docs.bigmodel.cn/cn/api/introduction
	{Name: "glm", Title: "GLM (Z.ai)", Provider: "openai", URL: "https://api.z.ai/api/paas/v4"},
	{Name: "glm-cn", Title: "GLM (智谱)", Provider: "openai", URL: "https://open.bigmodel.cn/api/paas/v4"},
	// https://platform.kimi.ai/docs/api/chat deprecates max_tokens;
	// https://platform.kimi.ai/docs/api/partial is for answers that were cut. The address
	// in China is that of https://platform.kimi.com/docs/api/overview.
	{Name: "kimi", Title: "Kimi (Moonshot AI)", Provider: "openai", URL: "https://api.moonshot.ai/v1",
		Quirks: Quirks{MaxCompletionTokens: true, Continue: ContinuePartial}},
	{Name: "kimi-cn", Title: "Kimi (月之暗面)", Provider: "openai", URL: "https://api.moonshot.cn/v1",
		Quirks: Quirks{MaxCompletionTokens: true, Continue: ContinuePartial}},
	// https://openrouter.ai/docs/api-reference/overview
	{Name: "openrouter", Title: "OpenRouter", Provider: "openai", URL: "https://openrouter.ai/api/v1"},
	// https://docs.ollama.com/api/openai-compatibility
	{Name: "ollama", Title: "Ollama", Provider: "openai", URL: "http://localhost:11434/v1"},
	// Its prefill is refused for models that think, which most do:
	// https://github.com/ggml-org/llama.cpp/issues/20861. The port is that of
	// https://github.com/ggml-org/llama.cpp/blob/master/tools/server/README.md
	{Name: "llama.cpp", Title: "llama.cpp", Provider: "openai", URL: "http://localhost:8080/v1"},
	// https://docs.vllm.ai/en/latest/serving/openai_compatible_server.html
	{Name: "vllm", Title: "vLLM", Provider: "openai", URL: "http://localhost:8000/v1",
		Quirks: Quirks{Continue: ContinueFinal}},
	// https://lmstudio.ai/docs/developer/openai-compat
	{Name: "lmstudio", Title: "LM Studio", Provider: "openai", URL: "http://localhost:1234/v1"},
}

// PresetByName returns the preset of that name, and whether there is one.
func PresetByName(name string) (Preset, bool) {
	for _, p := range Presets {
		if p.Name == name {
			return p, true
		}
	}
	return Preset{}, false
}
