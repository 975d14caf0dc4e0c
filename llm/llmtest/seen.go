package llmtest

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"semel/llm"
)

// Seen reads the body of a prompt as a provider of this format does: what every turn
// says, texts joined by empty lines, and its images in their order, without names. An
// error is why a provider would refuse it.
func Seen(f Format, body []byte) ([]llm.Turn, error) {
	var in struct {
		Messages []seenTurn      `json:"messages"`
		Input    json.RawMessage `json:"input"`
	}
	if err := json.Unmarshal(body, &in); err != nil {
		return nil, fmt.Errorf("the body cannot be read: %w", err)
	}
	list := in.Messages
	if f == Responses {
		if len(in.Input) > 0 && in.Input[0] == '"' {
			list = []seenTurn{{Role: "user", Content: in.Input}}
		} else if err := json.Unmarshal(in.Input, &list); err != nil {
			return nil, fmt.Errorf("input: %w", err)
		}
	}
	var turns []llm.Turn
	for i, t := range list {
		seen, err := t.read(f)
		if err != nil {
			return nil, fmt.Errorf("messages.%d: %w", i, err)
		}
		turns = append(turns, seen)
	}
	return turns, nil
}

type seenTurn struct {
	Role    string          `json:"role"`
	Content json.RawMessage `json:"content"`
}

type seenPart struct {
	Type     string          `json:"type"`
	Text     string          `json:"text"`
	ImageURL json.RawMessage `json:"image_url"`
	Source   struct {
		Type      string `json:"type"`
		MediaType string `json:"media_type"`
		Data      string `json:"data"`
	} `json:"source"`
}

// partTypes are the names of texts and of images in each format; Responses calls the
// text of an answer otherwise.
var partTypes = map[Format]struct {
	text  []string
	image string
}{
	Chat:      {[]string{"text"}, "image_url"},
	Responses: {[]string{"input_text", "output_text"}, "input_image"},
	Anthropic: {[]string{"text"}, "image"},
}

func (t seenTurn) read(f Format) (llm.Turn, error) {
	turn := llm.Turn{Role: t.Role}
	if len(t.Content) == 0 || t.Content[0] != '[' {
		if string(t.Content) == "null" {
			return turn, nil
		}
		return turn, json.Unmarshal(t.Content, &turn.Content)
	}
	var parts []seenPart
	if err := json.Unmarshal(t.Content, &parts); err != nil {
		return turn, err
	}
	if len(parts) == 0 {
		return turn, errors.New("content is an empty list")
	}
	var texts []string
	for i, p := range parts {
		switch types := partTypes[f]; {
		case slices.Contains(types.text, p.Type):
			if strings.TrimSpace(p.Text) == "" {
				return turn, fmt.Errorf("content.%d: text content blocks must contain non-whitespace text", i)
			}
			texts = append(texts, p.Text)
		case p.Type == types.image && t.Role == "user":
			file, err := p.image(f)
			if err != nil {
				return turn, fmt.Errorf("content.%d: %w", i, err)
			}
			turn.Files = append(turn.Files, file)
		default:
			return turn, fmt.Errorf("content.%d: a part of type %q is not allowed here", i, p.Type)
		}
	}
	turn.Content = strings.Join(texts, "\n\n")
	return turn, nil
}

func (p seenPart) image(f Format) (file llm.File, err error) {
	media, data := p.Source.MediaType, p.Source.Data
	if f != Anthropic {
		var url string
		where := any(&url)
		if f == Chat {
			where = &struct {
				URL *string `json:"url"`
			}{&url}
		}
		if err := json.Unmarshal(p.ImageURL, where); err != nil {
			return file, fmt.Errorf("image_url: %w", err)
		}
		rest, ok := strings.CutPrefix(url, "data:")
		if media, data, ok = cutOK(rest, ";base64,", ok); !ok {
			return file, errors.New("image_url is no data URL")
		}
	} else if p.Source.Type != "base64" {
		return file, fmt.Errorf("source.type %q", p.Source.Type)
	}
	switch media {
	case "image/png", "image/jpeg", "image/gif", "image/webp":
	default:
		return file, fmt.Errorf("images of type %q are not supported", media)
	}
	file.MediaType = media
	if file.Data, err = base64.StdEncoding.DecodeString(data); err == nil && len(file.Data) == 0 {
		err = errors.New("the image is empty")
	}
	return file, err
}

func cutOK(s, sep string, ok bool) (before, after string, found bool) {
	before, after, found = strings.Cut(s, sep)
	return before, after, found && ok
}
