package chat

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"image"
	"image/gif"
	"image/jpeg"
	"image/png"
	"io"
	"strings"
	"unicode"
	"unicode/utf8"
)

// An Attachment is a file that a question carries: an image or a text.
type Attachment struct {
	ID        string `json:"id"` // of this user's upload of these bytes under this name
	SHA256    string `json:"sha256"`
	Name      string `json:"name"`
	MediaType string `json:"mediaType"` // text/plain, image/png, image/jpeg, image/gif or image/webp
	Bytes     int64  `json:"bytes"`
	Width     int64  `json:"width,omitempty"` // of an image
	Height    int64  `json:"height,omitempty"`
	Tokens    int64  `json:"-"` // estimated
}

// MediaText is the media type of whatever is not an image: what a file calls itself
// does not matter, HTML and SVG are texts here.
const MediaText = "text/plain"

// Image reports whether a is an image.
func (a Attachment) Image() bool { return strings.HasPrefix(a.MediaType, "image/") }

// A File is an attachment with what is in it.
type File struct {
	Attachment
	Content []byte
}

// AttachmentLimits bound what a question may carry.
type AttachmentLimits struct {
	Count int   // files of a question
	Bytes int64 // of a file
	Total int64 // of all files of a question
}

// Or returns l with what it does not say taken from the defaults.
func (l AttachmentLimits) Or(d AttachmentLimits) AttachmentLimits {
	if l.Count == 0 {
		l.Count = d.Count
	}
	if l.Bytes == 0 {
		l.Bytes = d.Bytes
	}
	if l.Total == 0 {
		l.Total = d.Total
	}
	return l
}

// DefaultAttachmentLimits hold where nothing is configured: no provider takes larger
// images than of five megabytes everywhere.
var DefaultAttachmentLimits = AttachmentLimits{Count: 10, Bytes: 5 << 20, Total: 20 << 20}

var (
	// ErrFileEmpty: there is nothing in it.
	ErrFileEmpty = errors.New("the file is empty")
	// ErrFileKind: it is neither an image of a kind that models read nor a text.
	ErrFileKind = errors.New("the file is no PNG, JPEG, GIF or WebP image and no text in UTF-8")
)

// ReadFile looks into a file and returns it with all that is known of it: what it is
// follows from its bytes and not from what anybody says. Only its ID is left to be
// given. Errors: ErrFileEmpty, ErrFileKind.
func ReadFile(name string, content []byte) (File, error) {
	if len(content) == 0 {
		return File{}, ErrFileEmpty
	}
	digest := sha256.Sum256(content)
	f := File{Content: content, Attachment: Attachment{SHA256: hex.EncodeToString(digest[:]), Bytes: int64(len(content))}}
	if media, read := imageKind(content); media != "" {
		c, err := read(bytes.NewReader(content))
		if err != nil || c.Width <= 0 || c.Height <= 0 {
			return File{}, ErrFileKind
		}
		f.MediaType, f.Width, f.Height = media, int64(c.Width), int64(c.Height)
		f.Tokens = imageTokens(f.Width, f.Height)
		f.Name = cmp.Or(FileName(name), "image."+strings.TrimPrefix(media, "image/"))
		return f, nil
	}
	if !utf8.Valid(content) || bytes.IndexByte(content, 0) >= 0 {
		return File{}, ErrFileKind
	}
	f.MediaType, f.Tokens = MediaText, EstimateTokens(string(content))
	f.Name = cmp.Or(FileName(name), "text.txt")
	return f, nil
}

// imageKind returns the media type of an image by how it begins, "" for anything
// else, and what reads its size.
func imageKind(b []byte) (media string, read func(io.Reader) (image.Config, error)) {
	begins := func(s string) bool { return len(b) >= len(s) && string(b[:len(s)]) == s }
	switch {
	case begins("\x89PNG\r\n\x1a\n"):
		return "image/png", png.DecodeConfig
	case begins("\xff\xd8\xff"):
		return "image/jpeg", jpeg.DecodeConfig
	case begins("GIF87a"), begins("GIF89a"):
		return "image/gif", gif.DecodeConfig
	case len(b) >= 12 && begins("RIFF") && string(b[8:12]) == "WEBP":
		return "image/webp", func(io.Reader) (image.Config, error) { return webpConfig(b) }
	}
	return "", nil
}

// webpConfig reads the size from the first chunk of a WebP image
// (https://developers.google.com/speed/webp/docs/riff_container).
func webpConfig(b []byte) (c image.Config, err error) {
	const head = 20 // RIFF, size, WEBP, the chunk's name and its size
	if len(b) < head+10 {
		return c, ErrFileKind
	}
	le, d := binary.LittleEndian, b[head:]
	switch string(b[12:16]) {
	case "VP8 ": // a key frame: three bytes, the start code, two sizes of 14 bits
		if d[0]&1 != 0 || d[3] != 0x9d || d[4] != 0x01 || d[5] != 0x2a {
			return c, ErrFileKind
		}
		c.Width, c.Height = int(le.Uint16(d[6:])&0x3fff), int(le.Uint16(d[8:])&0x3fff)
	case "VP8L": // a signature, then two sizes of 14 bits, less one
		if d[0] != 0x2f {
			return c, ErrFileKind
		}
		bits := le.Uint32(d[1:])
		c.Width, c.Height = int(bits&0x3fff)+1, int(bits>>14&0x3fff)+1
	case "VP8X": // flags, then two sizes of 24 bits, less one
		c.Width = int(uint32(d[4])|uint32(d[5])<<8|uint32(d[6])<<16) + 1
		c.Height = int(uint32(d[7])|uint32(d[8])<<8|uint32(d[9])<<16) + 1
	default:
		return c, ErrFileKind
	}
	return c, nil
}

// imageTokens guesses what an image costs: a token for 750 pixels, as
// https://docs.anthropic.com/en/docs/build-with-claude/vision has it, and never more
// than what is left of a large one once a provider has made it smaller.
func imageTokens(width, height int64) int64 {
	const fewest, most = 85, 1600
	if width > 1<<20 || height > 1<<20 {
		return most
	}
	return max(fewest, min(most, (width*height+749)/750))
}

const longestFileName = 200 // bytes

// FileName makes a name that is safe to show and to give back: the last part of a
// path, on one line, without what could turn its reading round. It is "" when nothing
// is left.
func FileName(name string) string {
	name = strings.ToValidUTF8(name, "")
	if i := strings.LastIndexAny(name, `/\`); i >= 0 {
		name = name[i+1:]
	}
	name = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || unicode.In(r, unicode.Cf, unicode.Zl, unicode.Zp) {
			return -1
		}
		return r
	}, name)
	name = strings.Join(strings.Fields(name), " ")
	for len(name) > longestFileName {
		_, n := utf8.DecodeLastRuneInString(name)
		name = name[:len(name)-n]
	}
	if strings.Trim(name, ". ") == "" {
		return ""
	}
	return strings.TrimSpace(name)
}

// AttachmentID names a user's upload: the same bytes under the same name are the
// same one, however often they come.
func AttachmentID(user int64, name, sha string) string {
	h := sha256.New()
	var b [8]byte
	binary.BigEndian.PutUint64(b[:], uint64(user))
	h.Write(b[:])
	io.WriteString(h, sha+"\x00"+name)
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// IsAttachmentID reports whether id could name an attachment.
func IsAttachmentID(id string) bool {
	b, err := hex.DecodeString(id)
	return err == nil && len(b) == 16 && strings.ToLower(id) == id
}
