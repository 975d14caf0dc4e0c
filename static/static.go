// Package static holds what browsers load: one style sheet and ES modules that
// need no build step.
package static

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"io"
	"io/fs"
	"mime"
	"net/http"
	"path"
	"strings"
	"time"
)

//go:embed *.css *.js *.svg
var files embed.FS

// Prefix is where [Handler] expects to be mounted.
const Prefix = "/static/"

// version names the content of all files together. Modules import each other by
// relative address, so one version in the path keeps them from ever being mixed.
var version = hashAll()

// URL returns the address of a file, which changes when any file changes. It
// panics when there is no such file.
func URL(name string) string {
	if _, err := fs.Stat(files, name); err != nil {
		panic(fmt.Sprintf("static: %v", err))
	}
	return Prefix + version + "/" + name
}

// Handler serves the files at their versioned addresses, to be kept for ever.
// The address of another version is missing's to answer: half an old page and half a new
// one would be worse than a page whose forms work without scripts.
func Handler(missing http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name, ok := strings.CutPrefix(r.URL.Path, Prefix+version+"/")
		content, err := files.ReadFile(name)
		if !ok || err != nil {
			w.Header().Set("Cache-Control", "no-store")
			missing.ServeHTTP(w, r)
			return
		}
		h := w.Header()
		h.Set("Content-Type", contentType(name))
		h.Set("Cache-Control", "public, max-age=31536000, immutable")
		h.Set("ETag", `"`+version+`"`)
		http.ServeContent(w, r, name, time.Time{}, bytes.NewReader(content))
	})
}

// contentType does not ask the system's tables: a Windows registry that calls
// .js text/plain would stop every module.
func contentType(name string) string {
	switch path.Ext(name) {
	case ".js":
		return "text/javascript; charset=utf-8"
	case ".css":
		return "text/css; charset=utf-8"
	case ".svg":
		return "image/svg+xml"
	}
	return mime.TypeByExtension(path.Ext(name))
}

func hashAll() string {
	list, err := fs.Glob(files, "*")
	if err != nil {
		panic(err)
	}
	sum := sha256.New()
	for _, name := range list {
		content, err := files.ReadFile(name)
		if err != nil {
			panic(err)
		}
		fmt.Fprintf(sum, "%s %d\n", name, len(content))
		io.Copy(sum, bytes.NewReader(content))
	}
	return hex.EncodeToString(sum.Sum(nil)[:6])
}
