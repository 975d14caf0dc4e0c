package views

import (
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/a-h/templ"

	"semel/chat"
)

// accepted is what the browser's dialog offers first. What a file is is read from its
// bytes: a text may be called anything.
const accepted = "image/png,image/jpeg,image/gif,image/webp,text/*,.md,.csv,.json,.xml,.yaml,.yml,.toml,.log,.sql,.go,.js,.ts,.py,.sh,.css,.html"

// fileLimits tell scripts what a question may carry.
func (p ChatPage) fileLimits() templ.Attributes {
	return templ.Attributes{
		"data-files":       strconv.Itoa(p.Attachments.Count),
		"data-file-bytes":  strconv.FormatInt(p.Attachments.Bytes, 10),
		"data-files-bytes": strconv.FormatInt(p.Attachments.Total, 10),
	}
}

// fileRule says what a question may carry.
func (p ChatPage) fileRule() string {
	return p.Locale.N("files.rule", int64(p.Attachments.Count), "each", fileSize(p.Attachments.Bytes), "total", fileSize(p.Attachments.Total))
}

func (p ChatPage) attachTitle() string { return p.Locale.T("files.attach") + " · " + p.fileRule() }

func fileURL(a chat.Attachment) templ.SafeURL {
	if a.ID == "" {
		return ""
	}
	return templ.SafeURL("/api/attachments/" + a.ID)
}

// fileSize is a number of bytes as people say it; static/files.js says it likewise.
func fileSize(n int64) string {
	switch {
	case n < 1<<10:
		return fmt.Sprintf("%d B", n)
	case n < 1<<20:
		return fmt.Sprintf("%d KB", (n+1<<10-1)>>10)
	case n%(1<<20) == 0:
		return fmt.Sprintf("%d MB", n>>20)
	}
	return fmt.Sprintf("%.1f MB", float64(n)/(1<<20))
}

func fileData(a chat.Attachment) string {
	b, err := json.Marshal(a)
	if err != nil {
		panic(err) // our own type
	}
	return string(b)
}
