package chat_test

import (
	"bytes"
	"errors"
	"image"
	"image/gif"
	"image/jpeg"
	"image/png"
	"strings"
	"testing"
	"unicode/utf8"

	"semel/chat"
)

func encoded(t testing.TB, encode func(*bytes.Buffer, image.Image) error) string {
	t.Helper()
	var b bytes.Buffer
	if err := encode(&b, image.NewGray(image.Rect(0, 0, 7, 5))); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// webp is the head of a WebP image, which is all that is looked at.
func webp(chunk, data string) string {
	return "RIFF\x00\x00\x00\x00WEBP" + chunk + "\x00\x00\x00\x00" + data
}

// images are one of each kind and form, all of 7 × 5.
func images(t testing.TB) map[string]string {
	t.Helper()
	return map[string]string{
		"image/png":            encoded(t, func(b *bytes.Buffer, m image.Image) error { return png.Encode(b, m) }),
		"image/jpeg":           encoded(t, func(b *bytes.Buffer, m image.Image) error { return jpeg.Encode(b, m, nil) }),
		"image/gif":            encoded(t, func(b *bytes.Buffer, m image.Image) error { return gif.Encode(b, m, nil) }),
		"image/webp":           webp("VP8 ", "\x10\x00\x00\x9d\x01\x2a\x07\x40\x05\x80"), // the upper bits scale
		"image/webp, lossless": webp("VP8L", "\x2f\x06\x00\x01\x00\x00\x00\x00\x00\x00"),
		"image/webp, extended": webp("VP8X", "\x10\x00\x00\x00\x06\x00\x00\x04\x00\x00"),
	}
}

func TestImagesAreKnownByTheirBytes(t *testing.T) {
	for kind, content := range images(t) {
		media, _, _ := strings.Cut(kind, ",")
		f, err := chat.ReadFile("a.txt", []byte(content))
		if err != nil || f.MediaType != media || f.Width != 7 || f.Height != 5 || f.Tokens != 85 {
			t.Errorf("%s: %+v (%v)", kind, f.Attachment, err)
		}
		// Any beginning of it is an image, a refusal, and never a text.
		for n := range len(content) {
			if n < 12 { // "RIFF" may be a word
				continue
			}
			if f, err := chat.ReadFile("a", []byte(content[:n])); err == nil && !f.Image() {
				t.Errorf("%d bytes of %s are a text", n, kind)
			}
		}
	}
	for what, content := range map[string]string{
		"a later frame":     webp("VP8 ", "\x11\x00\x00\x9d\x01\x2a\x07\x00\x05\x00"),
		"no start code":     webp("VP8 ", "\x10\x00\x00\x9d\x01\x2b\x07\x00\x05\x00"),
		"no width":          webp("VP8 ", "\x10\x00\x00\x9d\x01\x2a\x00\x00\x05\x00"),
		"no signature":      webp("VP8L", "\x2e\x06\x00\x01\x00\x00\x00\x00\x00\x00"),
		"another chunk":     webp("ALPH", "\x10\x00\x00\x00\x06\x00\x00\x04\x00\x00"),
		"a sound":           strings.Replace(webp("VP8X", "\x10\x00\x00\x00\x06\x00\x00\x04\x00\x00"), "WEBP", "WAVE", 1),
		"an unknown binary": "\x7fELF\x02\x01\x01\x00",
	} {
		if f, err := chat.ReadFile("a", []byte(content)); !errors.Is(err, chat.ErrFileKind) {
			t.Errorf("%s: %+v (%v)", what, f.Attachment, err)
		}
	}
}

func TestLargeImagesCostWhatIsLeftOfThem(t *testing.T) {
	for size, want := range map[string]int64{"\x06\x00\x00\x04\x00\x00": 85, "\xe7\x03\x00\xe7\x03\x00": 1334, "\xff\xff\xff\xff\xff\xff": 1600} {
		f, err := chat.ReadFile("a", []byte(webp("VP8X", "\x10\x00\x00\x00"+size)))
		if err != nil || f.Tokens != want {
			t.Errorf("%d × %d: %d tokens (%v), want %d", f.Width, f.Height, f.Tokens, err, want)
		}
	}
}

// Whatever comes, what is stored is an image with a size or a text that every page
// and every provider can carry, and its name is one that stays as it is.
func FuzzReadFile(f *testing.F) {
	for _, content := range images(f) {
		f.Add("a.png", []byte(content))
	}
	f.Add("../a\u202eb", []byte("text"))
	f.Add(".. /\x00", []byte("\xff\xd8\xff\xe0\x00\x10JFIF"))
	f.Add(strings.Repeat("é ", 150), []byte("GIF89a\x07\x00\x05\x00"))
	f.Fuzz(func(t *testing.T, name string, content []byte) {
		got, err := chat.ReadFile(name, content)
		if err != nil {
			if !errors.Is(err, chat.ErrFileEmpty) && !errors.Is(err, chat.ErrFileKind) {
				t.Errorf("%v", err)
			}
			return
		}
		switch {
		case got.Image() && (got.Width <= 0 || got.Height <= 0 || got.Tokens < 85 || got.Tokens > 1600):
			t.Errorf("an image is %+v", got.Attachment)
		case !got.Image() && (got.MediaType != chat.MediaText || got.Width != 0 || got.Height != 0 || !utf8.Valid(content) || bytes.IndexByte(content, 0) >= 0):
			t.Errorf("a text is %+v", got.Attachment)
		}
		if n := got.Name; n == "" || len(n) > 200 || chat.FileName(n) != n || strings.ContainsAny(n, "/\\\x00\n") || !utf8.ValidString(n) {
			t.Errorf("the name is %q", n)
		}
		if id := chat.AttachmentID(1, got.Name, got.SHA256); !chat.IsAttachmentID(id) || id == chat.AttachmentID(2, got.Name, got.SHA256) {
			t.Errorf("the id is %s", id)
		}
	})
}
