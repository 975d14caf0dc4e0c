package config

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/pelletier/go-toml/v2"
	"github.com/pelletier/go-toml/v2/unstable"
)

const (
	maxFileBytes   = 1 << 20
	maxSecretBytes = 64 << 10
)

// A setting is one key of a table with what was given for it.
type setting struct {
	name string
	value
}

// A table is one of a list of tables, like one [[models]].
type table struct {
	settings []setting
	origin   string
}

// A file is a parsed semel.toml, not checked against the known keys.
type file struct {
	settings []setting
	tables   map[string][]table // by the name of their list
	wrong    findings           // lists that are none
}

func parseFile(path string, data []byte) (file, error) {
	var f file
	root := map[string]any{}
	if err := toml.Unmarshal(data, &root); err != nil {
		var at *toml.DecodeError
		if errors.As(err, &at) {
			line, _ := at.Position()
			return f, fmt.Errorf("%s:%d: %w", path, line, err)
		}
		return f, fmt.Errorf("%s: %w", path, err)
	}
	lines := keyLines(data)
	origin := func(name string) string { return fmt.Sprintf("%s:%d", path, lines[name]) }

	f.tables = map[string][]table{}
	for _, kind := range listTables {
		given, ok := root[kind]
		if !ok {
			continue
		}
		delete(root, kind)
		list, ok := given.([]any)
		if !ok {
			f.wrong.add("%s (%s): must be written as [[%s]]", kind, origin(kind), kind)
		}
		for i, entry := range list {
			name := fmt.Sprintf("%s[%d]", kind, i)
			at := func(n string) string { return origin(name + "." + n) }
			m, ok := entry.(map[string]any)
			if !ok {
				f.wrong.add("%s (%s): must be a table", name, origin(kind))
				continue
			}
			f.tables[kind] = append(f.tables[kind], table{flatten("", m, at), origin(name)})
		}
	}
	f.settings = flatten("", root, origin)
	slices.SortStableFunc(f.settings, func(a, b setting) int { return lines[a.name] - lines[b.name] })
	return f, nil
}

// flatten returns the leaves of a table under their dotted names, sorted. An
// empty table is a leaf only where it is not a known one.
func flatten(prefix string, t map[string]any, origin func(string) string) []setting {
	var out []setting
	for k, v := range t {
		name := prefix + bare(k)
		sub, ok := v.(map[string]any)
		if ok && (len(sub) > 0 || isTable(name)) {
			out = append(out, flatten(name+".", sub, origin)...)
			continue
		}
		out = append(out, setting{name, value{val: v, origin: origin(name), secret: isSecret(name, v)}})
	}
	slices.SortFunc(out, func(a, b setting) int { return strings.Compare(a.name, b.name) })
	return out
}

func isTable(name string) bool {
	return slices.ContainsFunc(fileKeys(), func(k string) bool {
		return strings.HasPrefix(k, name+".") || slices.ContainsFunc(listTables, func(list string) bool {
			return strings.HasPrefix(k, list+"."+name+".")
		})
	})
}

// bare quotes a key that a dot or something stranger would make ambiguous.
func bare(k string) string {
	if k == "" || strings.ContainsFunc(k, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '_' || r == '-')
	}) {
		return strconv.Quote(k)
	}
	return k
}

// keyLines returns the line of each key and table in a document that has been
// found valid, under the names of [flatten]; the Nth [[models]] is models[N].
// The library decodes without positions, so this walks its syntax tree.
func keyLines(data []byte) map[string]int {
	lines := map[string]int{}
	elements := map[string]int{} // of an array of tables so far
	var p unstable.Parser
	p.Reset(data)

	name := func(prefix string, e *unstable.Node) (string, int) {
		line := 0
		for it := e.Key(); it.Next(); {
			if n := elements[prefix]; n > 0 {
				prefix = fmt.Sprintf("%s[%d]", prefix, n-1)
			}
			if prefix != "" {
				prefix += "."
			}
			prefix += bare(string(it.Node().Data))
			line = p.Shape(it.Node().Raw).Start.Line
			if lines[prefix] == 0 {
				lines[prefix] = line
			}
		}
		return prefix, line
	}
	var walk func(prefix string, e *unstable.Node)
	walk = func(prefix string, e *unstable.Node) {
		path, line := name(prefix, e)
		switch v := e.Value(); v.Kind {
		case unstable.InlineTable:
			for it := v.Children(); it.Next(); {
				if it.Node().Kind == unstable.KeyValue {
					walk(path, it.Node())
				}
			}
		case unstable.Array:
			i := 0
			for it := v.Children(); it.Next(); {
				if it.Node().Kind == unstable.Comment {
					continue
				}
				element := fmt.Sprintf("%s[%d]", path, i)
				lines[element] = line
				i++
				if it.Node().Kind != unstable.InlineTable {
					continue
				}
				for kv := it.Node().Children(); kv.Next(); {
					if kv.Node().Kind == unstable.KeyValue {
						walk(element, kv.Node())
					}
				}
			}
		}
	}
	in := ""
	for p.NextExpression() {
		e := p.Expression()
		switch e.Kind {
		case unstable.KeyValue:
			walk(in, e)
		case unstable.Table:
			in, _ = name("", e)
			if n := elements[in]; n > 0 {
				in = fmt.Sprintf("%s[%d]", in, n-1)
			}
		case unstable.ArrayTable:
			path, line := name("", e)
			elements[path]++
			in = fmt.Sprintf("%s[%d]", path, elements[path]-1)
			lines[in] = line
		}
	}
	return lines
}

// readSmallFile reads a regular file of at most limit bytes.
func readSmallFile(path string, limit int64) (data []byte, err error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() { // a device may never end
		return nil, fmt.Errorf("%s is not a regular file", path)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	data, err = io.ReadAll(io.LimitReader(f, limit+1))
	if err != nil {
		return nil, err
	}
	if int64(len(data)) > limit {
		return nil, fmt.Errorf("%s is larger than %d bytes", path, limit)
	}
	return data, nil
}

// readSecret reads a secret from a file; the line break at its end is not part
// of it.
func readSecret(path string) (Secret, error) {
	data, err := readSmallFile(path, maxSecretBytes)
	if err != nil {
		return "", err
	}
	s := strings.TrimRight(string(data), "\r\n")
	if s == "" {
		return "", fmt.Errorf("%s is empty", path)
	}
	return Secret(s), nil
}
