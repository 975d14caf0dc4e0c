package handlers

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"time"

	"github.com/go-chi/chi/v5"

	"semel/chat"
	"semel/db"
)

// uploadTimeout is how long a file may take to come.
const uploadTimeout = 5 * time.Minute

// postAttachment stores a file: the body as it is, its name in the query. What it is
// is read from its bytes. The same file again is the same attachment.
func (s *server) postAttachment(w http.ResponseWriter, r *http.Request) error {
	if low, full := s.room(); low || full { // what there is belongs to questions
		return refuse(http.StatusInsufficientStorage, "disk_full", chat.RetrySameID, "The disk of the server is nearly full: files are taken again when there is room.")
	}
	content, err := s.readUpload(w, r)
	if err != nil {
		return err
	}
	f, err := chat.ReadFile(r.URL.Query().Get("name"), content)
	switch {
	case errors.Is(err, chat.ErrFileEmpty):
		return refuse(http.StatusUnprocessableEntity, "file_empty", chat.RetryNever, "The file is empty.")
	case errors.Is(err, chat.ErrFileKind):
		return refuse(http.StatusUnsupportedMediaType, "file_kind", chat.RetryNever,
			"Taken are images (PNG, JPEG, GIF, WebP) and texts in UTF-8 without NULs; this file is neither.")
	case err != nil:
		return err
	}
	a, err := s.DB.Upload(r.Context(), s.user(r), f)
	if err != nil {
		return err
	}
	s.writeJSON(w, http.StatusOK, a)
	return nil
}

// readUpload reads a file, unless it is larger than the limit.
func (s *server) readUpload(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	most := s.Attachments.Bytes
	tooLarge := refuse(http.StatusRequestEntityTooLarge, "file_too_large", chat.RetryNever,
		fmt.Sprintf("limits.attachment_bytes allows %d bytes for a file.", most))
	if r.ContentLength > most {
		return nil, tooLarge
	}
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(uploadTimeout)) // recorders in tests have none
	content, err := io.ReadAll(http.MaxBytesReader(w, r.Body, most))
	_ = http.NewResponseController(w).SetReadDeadline(time.Time{}) // see patience
	var over *http.MaxBytesError
	switch {
	case errors.As(err, &over):
		return nil, tooLarge
	case err != nil:
		return nil, refuse(http.StatusRequestTimeout, "bad_request", chat.RetrySameID, "The file did not arrive whole.")
	}
	return content, nil
}

// cspOfFiles lets a file do nothing, whatever a browser takes it for.
const cspOfFiles = "default-src 'none'; sandbox"

// getAttachment serves a file to whoever uploaded it. A text is text, also when it is
// a page or a drawing with scripts in it.
func (s *server) getAttachment(w http.ResponseWriter, r *http.Request) error {
	f, err := s.DB.File(r.Context(), s.user(r), chi.URLParam(r, "attachmentID"))
	if errors.Is(err, db.ErrNotFound) {
		return refuse(http.StatusNotFound, "not_found", chat.RetryNever, "There is no such attachment.")
	}
	if err != nil {
		return err
	}
	media := f.MediaType
	if !f.Image() {
		media += "; charset=utf-8"
	}
	h := w.Header()
	h.Set("Content-Type", media)
	h.Set("Content-Disposition", mime.FormatMediaType("inline", map[string]string{"filename": f.Name}))
	h.Set("Content-Security-Policy", cspOfFiles)
	h.Set("Cache-Control", "private, no-cache") // it may be kept, and is asked for again: that its reader may still see it
	h.Set("Etag", `"`+f.SHA256+`"`)
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(uploadTimeout)) // recorders in tests have none
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(f.Content))
	return nil
}

// checkAttachments refuses what no question may carry. Whether they are there is
// looked at when it is known that the question is new.
func (s *server) checkAttachments(kind chat.Kind, ids []string) error {
	switch {
	case len(ids) > 0 && !kind.WritesQuestion():
		return badRequest(string(kind) + " sends no attachments: those of the question stay.")
	case len(ids) > s.Attachments.Count:
		return refuse(http.StatusUnprocessableEntity, "too_many_attachments", chat.RetryNewID,
			fmt.Sprintf("The question carries %d attachments; limits.attachments allows %d.", len(ids), s.Attachments.Count))
	}
	for _, id := range ids {
		if !chat.IsAttachmentID(id) {
			return badRequest(fmt.Sprintf("attachments are ids that POST /api/attachments gave; %q is none.", shown(id, 64)))
		}
	}
	return nil
}

// room is s.Room, which may be nil.
func (s *server) room() (low, full bool) {
	if s.Room == nil {
		return false, false
	}
	return s.Room()
}
