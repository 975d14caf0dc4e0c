package handlers

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"time"
	"unicode/utf8"

	"semel/chat"
	"semel/db"
)

// The limits of an import. Their names are in the messages that refer to them.
const (
	importBytes             = 256 << 20 // of a file
	importConversationBytes = 128 << 20 // of one conversation in it, with its files
	importConversations     = 10_000    // of a file
	importMessages          = 10_000    // of a conversation
	importDepth             = 8         // of the JSON of a conversation
	importSkew              = 10 * time.Minute
)

// A conversationFile is an archiveJSON as it is read: every part is looked at apart.
type conversationFile struct {
	Format       string            `json:"format"`
	Version      int               `json:"version"`
	Conversation json.RawMessage   `json:"conversation"`
	Messages     []json.RawMessage `json:"messages"`
	Files        []json.RawMessage `json:"files"`
}

type messageFile struct {
	ID        string          `json:"id"`
	ParentID  string          `json:"parentId"`
	Role      string          `json:"role"`
	Kind      chat.Kind       `json:"kind"`
	RequestID string          `json:"requestId"`
	Model     string          `json:"model"`
	Content   string          `json:"content"`
	Reasoning string          `json:"reasoning"`
	Finish    chat.Finish     `json:"finish"`
	Error     json.RawMessage `json:"error"`
	Usage     json.RawMessage `json:"usage"`
	ThoughtMS int64           `json:"thoughtMs"`
	CreatedAt chat.Stamp      `json:"createdAt"`

	Attachments []json.RawMessage `json:"attachments"`
}

// readConversations calls each with the JSON of every conversation in a file, which
// holds one or many. It keeps one of them in memory. An error is about the file, and
// says what is wrong with it; conversations before that place have been handed out.
func readConversations(file io.Reader, each func([]byte) error) error {
	m := &meter{r: file, left: importConversationBytes}
	d := json.NewDecoder(m)
	if first, err := d.Token(); err != nil {
		return unreadable(err)
	} else if first != json.Delim('{') {
		return badRequest("This is no export of Semel: it would begin with a JSON object.")
	}
	parts := map[string]json.RawMessage{}
	many := false
	for d.More() {
		t, err := d.Token()
		if err != nil {
			return unreadable(err)
		}
		name, _ := t.(string)
		if _, twice := parts[name]; twice {
			return badRequest(fmt.Sprintf("The field %q is there twice.", name))
		}
		parts[name] = nil
		switch name {
		case "format", "version", "conversation", "messages", "files":
			var part json.RawMessage
			if err := d.Decode(&part); err != nil {
				return unreadable(err)
			}
			parts[name] = part
		case "conversations":
			many = true
			if err := eachOf(d, m, each); err != nil {
				return err
			}
		default:
			return badRequest(fmt.Sprintf("unknown field %q.", name))
		}
	}
	if _, err := d.Token(); err != nil {
		return unreadable(err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return badRequest("There is something after the JSON object.")
	}
	if !many {
		whole, err := json.Marshal(parts)
		if err != nil {
			return unreadable(err)
		}
		return each(whole)
	}
	if len(parts) != 3 {
		return badRequest("A file of many conversations has format, version and conversations, and nothing else.")
	}
	return checkFormat(string(parts["format"]), string(parts["version"]), formatMany)
}

// eachOf reads the list of conversations.
func eachOf(d *json.Decoder, m *meter, each func([]byte) error) error {
	if t, err := d.Token(); err != nil {
		return unreadable(err)
	} else if t != json.Delim('[') {
		return badRequest("conversations must be a list.")
	}
	for d.More() {
		m.left = importConversationBytes
		var one json.RawMessage
		if err := d.Decode(&one); err != nil {
			return unreadable(err)
		}
		if len(one) > importConversationBytes { // the decoder reads ahead: the meter is not exact
			return unreadable(errConversationBytes)
		}
		if err := each(one); err != nil {
			return err
		}
	}
	m.left = importConversationBytes
	if _, err := d.Token(); err != nil {
		return unreadable(err)
	}
	return nil
}

// A meter ends a file whose next conversation is too large.
type meter struct {
	r    io.Reader
	left int64
}

var errConversationBytes = errors.New("too large")

func (m *meter) Read(p []byte) (int, error) {
	if m.left <= 0 {
		return 0, errConversationBytes
	}
	n, err := m.r.Read(p[:min(int64(len(p)), m.left)])
	m.left -= int64(n)
	return n, err
}

// unreadable says why a file cannot be read on.
func unreadable(err error) error {
	var tooLarge *http.MaxBytesError
	switch {
	case errors.Is(err, errConversationBytes):
		return refuse(http.StatusRequestEntityTooLarge, "too_large", chat.RetryNewID,
			fmt.Sprintf("A conversation has more than %d bytes, which is the limit. What follows it was not read.", importConversationBytes))
	case errors.As(err, &tooLarge):
		return refuse(http.StatusRequestEntityTooLarge, "too_large", chat.RetryNewID,
			fmt.Sprintf("The file has more than %d bytes, which is the limit. The rest was not read.", tooLarge.Limit))
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return badRequest("The file ends too early.")
	}
	var syntax *json.SyntaxError
	if errors.As(err, &syntax) {
		return badRequest(fmt.Sprintf("The JSON breaks at byte %d: %s.", syntax.Offset, strings.TrimPrefix(err.Error(), "json: ")))
	}
	return badRequest("The file did not arrive whole.")
}

func checkFormat(format, version, want string) error {
	if format != `"`+want+`"` {
		return badRequest("This is no export of Semel: its format is not " + want + ".")
	}
	if version != fmt.Sprint(formatVersion) {
		return badRequest(fmt.Sprintf("This program reads version %d of the format; the file may be of a newer one.", formatVersion))
	}
	return nil
}

// A conversationParser reads one conversation.
type conversationParser struct {
	maxText int       // bytes of a question, and of a system prompt
	now     time.Time // nothing in it is later
	limits  chat.AttachmentLimits
	files   map[string]chat.File // of the conversation, by SHA-256
}

// parse checks the JSON of one conversation and returns what it says. Whatever it
// returns can be stored. It returns as much as is known of the id and the title with
// an error, so that the person can tell which conversation it is.
func (p conversationParser) parse(raw []byte) (a db.Archive, err error) {
	if !utf8.Valid(raw) {
		return a, badRequest("It is not valid UTF-8.")
	}
	if depthOf(raw) > importDepth {
		return a, badRequest(fmt.Sprintf("Its JSON is nested deeper than %d, which is the limit.", importDepth))
	}
	var f conversationFile
	if err := decode(raw, &f); err != nil {
		return a, err
	}
	if err := checkFormat(fmt.Sprintf("%q", f.Format), fmt.Sprint(f.Version), formatOne); err != nil {
		return a, err
	}
	var c archivedConversation
	if err := decode(f.Conversation, &c); err != nil {
		return a, in("conversation", err)
	}
	a.Conversation = chat.Conversation{SessionID: c.ID, Title: c.Title}
	if a.Conversation, err = p.conversation(c); err != nil {
		a.Conversation = chat.Conversation{SessionID: c.ID, Title: c.Title}
		return a, in("conversation", err)
	}
	switch n := len(f.Messages); {
	case n == 0:
		return a, badRequest("It has no messages.")
	case n > importMessages:
		return a, badRequest(fmt.Sprintf("It has %d messages; the limit is %d.", n, importMessages))
	}
	if p.files, err = p.readFiles(f.Files); err != nil {
		return a, err
	}
	if a.Turns, err = p.turns(c.ID, f.Messages); err != nil {
		return a, err
	}
	if a.Files, err = used(p.files, a.Turns); err != nil {
		return a, err
	}
	head, ok := chat.ParseMessageID(c.ID, c.Head)
	if !ok || !present(a.Turns)[head] {
		return a, badRequest("conversation.head names no message of it.")
	}
	a.Conversation.HeadSeq = head
	if !c.Named && c.Title != db.TitleOf(a.Turns[0].Question, a.Turns[0].Attachments) {
		a.Conversation.Named = true // somebody gave it that title
	}
	return a, nil
}

func (p conversationParser) conversation(c archivedConversation) (chat.Conversation, error) {
	none := chat.Conversation{}
	if err := canonical("id", c.ID); err != nil {
		return none, err
	}
	title := strings.Join(strings.Fields(c.Title), " ")
	switch {
	case len(title) > 256, c.Named && title == "":
		return none, badRequest("title has 1 to 256 bytes.")
	case strings.ContainsRune(title, 0):
		return none, badRequest("title has a NUL.")
	case len(c.Model) > maxModelName:
		return none, badRequest(fmt.Sprintf("model has %d bytes at most.", maxModelName))
	case len(c.SystemPrompt) > p.maxText:
		return none, badRequest(fmt.Sprintf("systemPrompt has %d bytes; limits.message_bytes allows %d.", len(c.SystemPrompt), p.maxText))
	case c.Pinned && c.Archived:
		return none, badRequest("What is archived is not pinned.")
	}
	params, err := parseParams(c.Params)
	if err != nil {
		return none, err
	}
	if params == "" {
		params = "{}"
	}
	for name, at := range map[string]chat.Stamp{"createdAt": c.CreatedAt, "updatedAt": c.UpdatedAt} {
		if err := p.time(name, at); err != nil {
			return none, err
		}
	}
	v := chat.Conversation{
		SessionID: c.ID, Title: title, Named: c.Named, Pinned: c.Pinned, Model: c.Model, SystemPrompt: c.SystemPrompt, Params: params,
		CreatedAt: millis(c.CreatedAt), UpdatedAt: millis(c.UpdatedAt),
	}
	if c.Archived {
		v.ArchivedAt = v.UpdatedAt
	}
	return v, nil
}

const maxModelName = 256

// turns puts messages together to requests. They come in the order of their numbers,
// which have no gaps, and each hangs under an earlier one: there is no way to write
// down a circle.
func (p conversationParser) turns(session string, raws []json.RawMessage) ([]db.ArchivedTurn, error) {
	list := make([]messageFile, len(raws))
	parents := make([]int64, len(raws))
	for i, raw := range raws {
		name := fmt.Sprintf("messages[%d]", i)
		m := &list[i]
		if err := decode(raw, m); err != nil {
			return nil, in(name, err)
		}
		seq := int64(i) + 1
		if m.ID != chat.MessageID(session, seq) {
			return nil, in(name, badRequest(fmt.Sprintf("id must be %s: the messages stand in order, without a gap.", chat.MessageID(session, seq))))
		}
		if m.ParentID != "" {
			parent, ok := chat.ParseMessageID(session, m.ParentID)
			if !ok || parent >= seq {
				return nil, in(name, badRequest("parentId names no earlier message of the conversation."))
			}
			parents[i] = parent
		}
	}
	var turns []db.ArchivedTurn
	there := make(map[int64]bool, len(list)) // messages that others can hang under
	known := make(map[string]bool, len(list))
	for i := 0; i < len(list); i++ {
		name := fmt.Sprintf("messages[%d]", i)
		m := list[i]
		t := db.ArchivedTurn{RequestID: m.RequestID, Kind: m.Kind, Seq: int64(i) + 1, ParentSeq: parents[i]}
		if err := canonical("requestId", m.RequestID); err != nil {
			return nil, in(name, err)
		}
		if known[m.RequestID] {
			return nil, in(name, badRequest("requestId is that of an earlier message."))
		}
		known[m.RequestID] = true
		if t.ParentSeq != 0 && !there[t.ParentSeq] {
			return nil, in(name, badRequest("parentId names an answer that was not given."))
		}
		switch m.Role {
		case "user":
			if err := p.question(m, &t); err != nil {
				return nil, in(name, err)
			}
			there[t.Seq] = true
			i++
			name = fmt.Sprintf("messages[%d]", i)
			if i == len(list) || list[i].Role != "assistant" || list[i].RequestID != m.RequestID || list[i].Kind != "" || parents[i] != t.Seq {
				return nil, in(name, badRequest("After a question stands its answer, with its requestId, and under it."))
			}
			m = list[i]
		case "assistant":
			switch {
			case m.Kind != chat.KindRegenerate && m.Kind != chat.KindContinue:
				return nil, in(name, badRequest("kind of an answer without a question of its own is regenerate or continue."))
			case t.ParentSeq == 0:
				return nil, in(name, badRequest("parentId is missing."))
			case m.Kind == chat.KindContinue && list[t.ParentSeq-1].Role != "assistant":
				return nil, in(name, badRequest("continue hangs under an answer."))
			}
		default:
			return nil, in(name, badRequest("role is user or assistant."))
		}
		if err := p.answer(m, &t); err != nil {
			return nil, in(name, err)
		}
		there[int64(i)+1] = t.Answered()
		turns = append(turns, t)
	}
	return turns, nil
}

// present are the numbers of the messages that turns have.
func present(turns []db.ArchivedTurn) map[int64]bool {
	there := map[int64]bool{}
	for _, t := range turns {
		answer := t.Seq
		if t.Kind.WritesQuestion() {
			there[t.Seq] = true
			answer++
		}
		if t.Answered() {
			there[answer] = true
		}
	}
	return there
}

func (p conversationParser) question(m messageFile, t *db.ArchivedTurn) error {
	switch {
	case m.Kind != chat.KindMessage && m.Kind != chat.KindEdit:
		return badRequest("kind of a question is message or edit.")
	case m.Model != "" || m.Reasoning != "" || m.Finish != "" || m.Error != nil || m.Usage != nil || m.ThoughtMS != 0:
		return badRequest("A question has no model, reasoning, finish, error, usage or thoughtMs: its answer has.")
	case strings.TrimSpace(m.Content) == "" && len(m.Attachments) == 0:
		return badRequest("content is empty.")
	case len(m.Content) > p.maxText:
		return badRequest(fmt.Sprintf("The question has %d bytes; limits.message_bytes allows %d.", len(m.Content), p.maxText))
	}
	if err := p.time("createdAt", m.CreatedAt); err != nil {
		return err
	}
	t.Question, t.AskedAt = m.Content, millis(m.CreatedAt)
	var err error
	t.Attachments, err = p.attachments(m.Attachments)
	return err
}

// readFiles reads what questions of the conversation carry. What a file is is read
// from its bytes, here as in an upload.
func (p conversationParser) readFiles(raws []json.RawMessage) (map[string]chat.File, error) {
	files := make(map[string]chat.File, len(raws))
	for i, raw := range raws {
		name := fmt.Sprintf("files[%d]", i)
		var f archivedFile
		if err := decode(raw, &f); err != nil {
			return nil, in(name, err)
		}
		content := f.Base64
		if f.Text != "" {
			if content != nil {
				return nil, in(name, badRequest("It has text or base64, not both."))
			}
			content = []byte(f.Text)
		}
		if int64(len(content)) > p.limits.Bytes {
			return nil, in(name, badRequest(fmt.Sprintf("It has %d bytes; limits.attachment_bytes allows %d.", len(content), p.limits.Bytes)))
		}
		read, err := chat.ReadFile("", content)
		switch {
		case err != nil:
			return nil, in(name, badRequest("It cannot be taken: "+err.Error()+"."))
		case read.SHA256 != f.SHA256:
			return nil, in(name, badRequest("sha256 is not that of its bytes."))
		case read.MediaType != f.MediaType:
			return nil, in(name, badRequest("mediaType must be "+read.MediaType+"."))
		case files[f.SHA256].Content != nil:
			return nil, in(name, badRequest("It is there twice."))
		}
		files[f.SHA256] = read
	}
	return files, nil
}

// attachments reads what one question carries.
func (p conversationParser) attachments(raws []json.RawMessage) (list []chat.Attachment, err error) {
	if len(raws) > p.limits.Count {
		return nil, badRequest(fmt.Sprintf("It carries %d attachments; limits.attachments allows %d.", len(raws), p.limits.Count))
	}
	total := int64(0)
	for i, raw := range raws {
		name := fmt.Sprintf("attachments[%d]", i)
		var a archivedAttachment
		if err := decode(raw, &a); err != nil {
			return nil, in(name, err)
		}
		f, ok := p.files[a.SHA256]
		if !ok {
			return nil, in(name, badRequest("sha256 names none of files."))
		}
		if total += f.Bytes; total > p.limits.Total {
			return nil, in(name, badRequest(fmt.Sprintf("The attachments have more than %d bytes together, which is what limits.attached_bytes allows.", p.limits.Total)))
		}
		carried := f.Attachment
		if carried.Name = a.Name; a.Name == "" || chat.FileName(a.Name) != a.Name {
			return nil, in(name, badRequest("name is no name of a file."))
		}
		list = append(list, carried)
	}
	return list, nil
}

// used returns files, each of which some question carries.
func used(files map[string]chat.File, turns []db.ArchivedTurn) (map[string]chat.File, error) {
	carried := map[string]bool{}
	for _, t := range turns {
		for _, a := range t.Attachments {
			carried[a.SHA256] = true
		}
	}
	for sha := range files {
		if !carried[sha] {
			return nil, badRequest("No question carries the file " + sha + ".")
		}
	}
	return files, nil
}

var failureCode = regexp.MustCompile(`^[a-z][a-z0-9_]{0,63}$`)

const (
	maxDetail  = 4096                // bytes
	maxTokens  = int64(1e12)         // of one answer
	maxThought = 30 * 24 * time.Hour // for one answer
)

func (p conversationParser) answer(m messageFile, t *db.ArchivedTurn) error {
	if m.Model == "" || len(m.Model) > maxModelName {
		return badRequest(fmt.Sprintf("model has 1 to %d bytes.", maxModelName))
	}
	if m.Attachments != nil {
		return badRequest("An answer carries no attachments.")
	}
	t.Model, t.Content, t.Reasoning = m.Model, m.Content, m.Reasoning
	if m.Error != nil {
		var e archivedError
		if err := decode(m.Error, &e); err != nil {
			return in("error", err)
		}
		switch {
		case m.Finish != "" || m.Usage != nil || m.ThoughtMS != 0 || !m.CreatedAt.IsZero():
			return badRequest("What has an error has no finish, usage, thoughtMs or createdAt: it is no answer.")
		case !failureCode.MatchString(e.Code):
			return badRequest("error.code consists of small letters, digits and _.")
		case e.Outcome != chat.OutcomeNone && e.Outcome != chat.OutcomeDefinite && e.Outcome != chat.OutcomeUnknown:
			return badRequest("error.outcome is none, definite or unknown.")
		case len(e.Detail) > maxDetail:
			return badRequest(fmt.Sprintf("error.detail has %d bytes at most.", maxDetail))
		}
		t.Failure = chat.Failure{Code: e.Code, Outcome: e.Outcome, Retry: chat.RetryExplicit, Detail: e.Detail}
		return nil
	}
	switch m.Finish {
	case chat.FinishStop, chat.FinishLength, chat.FinishStopped, chat.FinishFiltered, chat.FinishTool:
	default:
		return badRequest("finish is stop, length, stopped, filtered or tool.")
	}
	if m.Usage != nil {
		if err := decode(m.Usage, &t.Usage); err != nil {
			return in("usage", err)
		}
	}
	u := t.Usage
	if min(u.InputTokens, u.CachedTokens, u.OutputTokens) < 0 || max(u.InputTokens, u.OutputTokens) > maxTokens || u.CachedTokens > u.InputTokens {
		return badRequest("usage counts tokens, and cachedTokens is a part of inputTokens.")
	}
	if m.ThoughtMS < 0 || m.ThoughtMS > maxThought.Milliseconds() {
		return badRequest("thoughtMs is no time that a model thinks.")
	}
	if err := p.time("createdAt", m.CreatedAt); err != nil {
		return err
	}
	t.Finish, t.Thought, t.AnsweredAt = m.Finish, time.Duration(m.ThoughtMS)*time.Millisecond, millis(m.CreatedAt)
	return nil
}

func (p conversationParser) time(name string, at chat.Stamp) error {
	switch {
	case at.IsZero():
		return badRequest(name + " is missing.")
	case at.UnixMilli() <= 0:
		return badRequest(name + " lies before 1970.")
	case at.After(p.now.Add(importSkew)):
		return badRequest(name + " lies ahead of the clock of this server.")
	}
	return nil
}

func millis(s chat.Stamp) time.Time { return time.UnixMilli(s.UnixMilli()).UTC() }

func canonical(name, id string) error {
	got, err := chat.ParseID(id)
	if err != nil {
		return badRequest(name + ": " + err.Error() + ".")
	}
	if got != id {
		return badRequest(name + " must be written " + got + ".")
	}
	return nil
}

// in says where in a file something is wrong.
func in(where string, err error) error {
	var p *chat.Problem
	if !errors.As(err, &p) {
		return err
	}
	copy := *p
	copy.Detail = where + ": " + p.Detail
	return &copy
}

// depthOf is how deep the lists and objects of a valid JSON text are nested.
func depthOf(raw []byte) (deepest int) {
	depth, text := 0, false
	for i := 0; i < len(raw); i++ {
		switch c := raw[i]; {
		case text && c == '\\':
			i++
		case c == '"':
			text = !text
		case text:
		case c == '{' || c == '[':
			depth++
			deepest = max(deepest, depth)
		case c == '}' || c == ']':
			depth--
		}
	}
	return deepest
}
