package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// builtOf is what the go command says of the modules in the program.
func builtOf(t *testing.T) (modules map[string]string) {
	t.Helper()
	out, err := exec.Command("go", "version", "-m", semelBinary(t)).Output()
	if err != nil {
		t.Fatal(err)
	}
	modules = map[string]string{}
	for line := range strings.Lines(string(out)) {
		if f := strings.Fields(line); len(f) >= 3 && f[0] == "dep" {
			modules[f[1]] = f[2]
		}
	}
	if len(modules) < 20 {
		t.Fatalf("only %d modules: %s", len(modules), out)
	}
	return modules
}

func TestTheProgramNamesAllThatItIsMadeOf(t *testing.T) {
	t.Parallel()
	out, stderr, code := runSemel(t, "version", "--sbom")
	if code != 0 {
		t.Fatal(stderr)
	}
	var b bom
	d := json.NewDecoder(strings.NewReader(out))
	d.DisallowUnknownFields()
	if err := d.Decode(&b); err != nil {
		t.Fatal(err)
	}
	if b.Format != "CycloneDX" || b.SpecVersion != "1.6" || b.Version != 1 || b.Metadata.Component.Name != "semel" || b.Metadata.Component.Type != "application" {
		t.Errorf("it begins as %+v", b.Metadata)
	}
	want := builtOf(t)
	want["std"] = strings.TrimPrefix(runtime.Version(), "go")
	got, refs := map[string]string{}, map[string]bool{b.Metadata.Component.Ref: true}
	purl := regexp.MustCompile(`^pkg:(golang|generic)/[a-zA-Z0-9./_~-]+@[a-zA-Z0-9.%_~-]+$`)
	for _, c := range b.Components {
		if refs[c.Ref] || c.Type != "library" || !purl.MatchString(c.PURL) {
			t.Errorf("%+v", c)
		}
		refs[c.Ref] = true
		if c.Name == "sqlite" {
			if version, _, _ := runSemel(t, "version"); !strings.Contains(version, "SQLite "+c.Version+"\n") || !strings.Contains(c.CPE, ":"+c.Version+":") {
				t.Errorf("%+v, and semel version says %s", c, version)
			}
			continue
		}
		got[c.Name] = c.Version
	}
	if !maps.Equal(got, want) {
		t.Errorf("it names %v, and is built of %v", got, want)
	}
	if again, _, _ := runSemel(t, "version", "--sbom"); again != out {
		t.Error("it names other things the second time")
	}
}

// licences are those that a module in the program may have, known by their words.
var licences = []struct {
	name  string
	words []string
}{
	{"Apache-2.0", []string{"Apache License", "Version 2.0"}},
	{"BSD-3-Clause", []string{"Redistribution and use in source and binary forms", "endorse or promote products"}},
	{"BSD-2-Clause", []string{"Redistribution and use in source and binary forms"}},
	{"MIT", []string{"Permission is hereby granted, free of charge", "The above copyright notice and this permission notice"}},
}

// X38: each module in the program has a licence that is known, and docs/licences.md says
// which.
func TestX38EveryModuleHasALicenceThatIsKnown(t *testing.T) {
	t.Parallel()
	modules := builtOf(t)
	out, err := exec.Command("go", append([]string{"list", "-m", "-f", "{{.Path}} {{.Dir}}"}, slices.Sorted(maps.Keys(modules))...)...).Output()
	if err != nil {
		t.Fatal(err)
	}
	var found bytes.Buffer
	for line := range strings.Lines(string(out)) {
		module, dir, _ := strings.Cut(strings.TrimSpace(line), " ")
		files, err := filepath.Glob(filepath.Join(dir, "[LlCc][IiOo][CcPp]*"))
		if err != nil || dir == "" {
			t.Fatalf("%s: %v", module, err)
		}
		name := ""
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				continue // a folder
			}
			flat := strings.Join(strings.Fields(string(text)), " ")
			for _, l := range licences {
				if name == "" && !slices.ContainsFunc(l.words, func(w string) bool { return !strings.Contains(flat, w) }) {
					name = l.name
				}
			}
		}
		if name == "" {
			t.Errorf("%s has no licence that is known here: %q", module, files)
		}
		fmt.Fprintf(&found, "| %s | %s |\n", module, name)
	}
	doc, err := os.ReadFile("docs/licences.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(doc), "|---|---|\n")
	if table, _, _ = strings.Cut(table, "\n\n"); strings.TrimSpace(table) != strings.TrimSpace(found.String()) {
		t.Errorf("docs/licences.md should list\n%s", &found)
	}
}
