package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"io"
	"net/url"
	"runtime/debug"
	"strings"

	sqlite3 "modernc.org/sqlite/lib"
)

// A bom is what the program is made of, as CycloneDX 1.6 has it: the few fields that are
// known of a Go program. Nothing in it differs between two builds of the same.
type bom struct {
	Format      string      `json:"bomFormat"`
	SpecVersion string      `json:"specVersion"`
	Version     int         `json:"version"`
	Metadata    bomMetadata `json:"metadata"`
	Components  []bomPart   `json:"components"`
}

type bomMetadata struct {
	Component bomPart `json:"component"`
}

type bomPart struct {
	Type    string `json:"type"`
	Ref     string `json:"bom-ref"`
	Name    string `json:"name"`
	Version string `json:"version"`
	PURL    string `json:"purl"`
	CPE     string `json:"cpe,omitempty"`
}

func modulePart(path, version string) bomPart {
	purl := "pkg:golang/" + path + "@" + url.QueryEscape(version)
	return bomPart{Type: "library", Ref: purl, Name: path, Version: version, PURL: purl}
}

// bomOf lists the modules that the build names, Go itself, and SQLite, which is in one of
// them and has a version of its own.
func bomOf(info *debug.BuildInfo) bom {
	this := modulePart("semel", version)
	this.Type = "application"
	b := bom{Format: "CycloneDX", SpecVersion: "1.6", Version: 1, Metadata: bomMetadata{this}}
	goVersion, _, _ := strings.Cut(info.GoVersion, " ")
	b.Components = append(b.Components, modulePart("std", strings.TrimPrefix(goVersion, "go")))
	sqlite := "pkg:generic/sqlite@" + sqlite3.SQLITE_VERSION
	b.Components = append(b.Components, bomPart{
		Type: "library", Ref: sqlite, Name: "sqlite", Version: sqlite3.SQLITE_VERSION, PURL: sqlite,
		CPE: "cpe:2.3:a:sqlite:sqlite:" + sqlite3.SQLITE_VERSION + ":*:*:*:*:*:*:*",
	})
	for _, m := range info.Deps {
		m = cmp.Or(m.Replace, m)
		b.Components = append(b.Components, modulePart(m.Path, m.Version))
	}
	return b
}

func writeBOM(w io.Writer) error {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return errors.New("this program was built without a list of its modules")
	}
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(bomOf(info))
}
