package sink

import (
	_ "embed"
	"html/template"
	"net/http"
	"slices"
	"strings"
)

//go:embed page.html
var pageText string

//go:embed sink.css
var css []byte

var pageTemplate = template.Must(template.New("page").Parse(pageText))

// shownEffects bounds the page; /executions has all.
const shownEffects = 200

// words of the page by language; a test compares their keys.
var words = map[string]map[string]string{
	"en": {
		"title": "Signing service", "lead": "It executes each webhook-id once. Choose how it behaves, and see what becomes of a delivery.",
		"behaviour": "Behaviour", "answer": "Answers", "callback": "Calls back", "times": "First deliveries of an id (0: all)",
		"delay": "Delay of slow and late", "retryAfter": "Retry-After of busy", "save": "Set", "refresh": "Refresh",
		"deliveries": "Deliveries", "executions": "Executions", "inEffect": "In effect", "twice": "Executed twice",
		"id": "webhook-id", "action": "Action", "callbacks": "Callbacks", "status": "Last answer", "none": "Nothing has arrived yet.",
		"yes": "yes", "no": "no", "dropped": "hung up", "more": "Older ones are in /executions.", "tries": "tries", "undoes": "undoes",
		"answer.ok": "well", "answer.slow": "slowly", "answer.fail": "500 after it worked", "answer.drop": "hangs up after it worked",
		"answer.refuse": "422, does nothing", "answer.gone": "410, does nothing", "answer.busy": "429, does nothing",
		"callback.ok": "ok", "callback.not-ok": "not ok", "callback.twice": "ok, twice", "callback.contradict": "ok, then not ok",
		"callback.early": "ok, before it answers", "callback.late": "ok, late", "callback.never": "never",
	},
	"zh-CN": {
		"title": "签署服务", "lead": "每个 webhook-id 只执行一次。选择它的行为，看看一次投递会怎样。",
		"behaviour": "行为", "answer": "应答", "callback": "回调", "times": "每个 id 的前几次投递（0 为全部）",
		"delay": "缓慢与迟到的时长", "retryAfter": "繁忙时的 Retry-After", "save": "设定", "refresh": "刷新",
		"deliveries": "投递", "executions": "执行", "inEffect": "有效", "twice": "重复执行",
		"id": "webhook-id", "action": "操作", "callbacks": "回调", "status": "上次应答", "none": "还没有收到任何投递。",
		"yes": "是", "no": "否", "dropped": "断开", "more": "更早的在 /executions 中。", "tries": "次尝试", "undoes": "撤销",
		"answer.ok": "正常", "answer.slow": "缓慢", "answer.fail": "完成后返回 500", "answer.drop": "完成后断开连接",
		"answer.refuse": "422，不执行", "answer.gone": "410，不执行", "answer.busy": "429，不执行",
		"callback.ok": "成功", "callback.not-ok": "失败", "callback.twice": "成功，两次", "callback.contradict": "先成功，后失败",
		"callback.early": "成功，在应答之前", "callback.late": "成功，迟到", "callback.never": "从不",
	},
}

func (s *Sink) page(w http.ResponseWriter, r *http.Request) {
	lang := language(r)
	sum := s.summary()
	slices.Reverse(sum.Effects) // the newest first
	more := len(sum.Effects) > shownEffects
	sum.Effects = sum.Effects[:min(len(sum.Effects), shownEffects)]
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Security-Policy", "default-src 'none'; style-src 'self'; img-src data:; form-action 'self'; base-uri 'none'; frame-ancestors 'none'")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
	h.Set("Vary", "Accept-Language")
	_ = pageTemplate.Execute(w, map[string]any{ // whoever has gone does not read it
		"Lang": lang, "W": words[lang], "Sum": sum, "More": more, "Answers": Answers, "Callbacks": Callbacks,
	})
}

// language is what was chosen, else what the browser asks for first of the two.
func language(r *http.Request) string {
	if lang := r.URL.Query().Get("lang"); words[lang] != nil {
		return lang
	}
	for part := range strings.SplitSeq(r.Header.Get("Accept-Language"), ",") {
		switch tag := strings.ToLower(strings.TrimSpace(part)); {
		case strings.HasPrefix(tag, "zh"):
			return "zh-CN"
		case strings.HasPrefix(tag, "en"):
			return "en"
		}
	}
	return "en"
}

func style(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/css; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	_, _ = w.Write(css) // whoever has gone does not read it
}
