package config

import (
	"bufio"
	"fmt"
	"io"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Print writes everything in force as a semel.toml with a line of documentation
// above each key and its origin behind it. With redact, keys of providers, secrets,
// passwords and the values of queries are replaced; without, the output gives the same configuration when read again.
func (c *Config) Print(w io.Writer, redact bool) error {
	out := bufio.NewWriter(w)
	section := ""
	for _, k := range configKeys {
		if k.get == nil { // of a later version
			continue
		}
		name := k.name
		if table, key, ok := strings.Cut(k.name, "."); ok {
			name = key
			if table != section {
				section = table
				fmt.Fprintf(out, "\n[%s]\n", table)
			}
		}
		printKey(out, name, k.doc, k.get(c), c.Origin(k.name))
	}
	for i := range c.Models {
		m := c.Models[i] // a copy, to be redacted
		switch {
		case m.KeyFile != "":
			m.Key = ""
		case redact:
			m.Key = Secret(m.Key.String())
		}
		fmt.Fprint(out, "\n[[models]]\n")
		for _, k := range modelKeys {
			if k.get == nil {
				continue
			}
			v, origin := k.get(&m), c.Origin(fmt.Sprintf("models[%d].%s", i, k.name))
			noPrice := strings.HasPrefix(k.name, "price.") && v == "0" && origin == "default"
			if v == `""` || noPrice { // optional and not given
				continue
			}
			printKey(out, k.name, k.doc, v, origin)
		}
	}
	for i, a := range c.Actions {
		a.Destination = a.Destination.shown(redact)
		if a.Compensate != nil {
			t := a.Compensate.shown(redact)
			a.Compensate = &t
		}
		printList(out, c, fmt.Sprintf("actions[%d]", i), &a, actionKeys, func(name string) bool {
			return a.Destination.Kind == "" && strings.HasPrefix(name, "destination.") ||
				a.Compensate == nil && strings.HasPrefix(name, "compensate.")
		})
	}
	for i, d := range c.Destinations {
		d.Target = d.Target.shown(redact)
		printList(out, c, fmt.Sprintf("destinations[%d]", i), &d, destinationKeys, nil)
	}
	for i, a := range c.Alerts {
		printList(out, c, fmt.Sprintf("alerts[%d]", i), &a, alertKeys, nil)
	}
	return out.Flush()
}

// printList writes one table of a list, without the keys that are left out and
// those that are optional and not given.
func printList[T any](w io.Writer, c *Config, at string, t *T, keys []key[T], leftOut func(string) bool) {
	list, _, _ := strings.Cut(at, "[")
	fmt.Fprintf(w, "\n[[%s]]\n", list)
	for _, k := range keys {
		if leftOut != nil && leftOut(k.name) {
			continue
		}
		switch v := k.get(t); v {
		case `""`, `"0s"`, "[]":
		default:
			printKey(w, k.name, k.doc, v, c.Origin(at+"."+k.name))
		}
	}
}

func printKey(w io.Writer, name, doc, value, origin string) {
	origin = strings.Map(func(r rune) rune { // a comment ends with its line
		if unicode.IsControl(r) || r == utf8.RuneError {
			return '?'
		}
		return r
	}, origin)
	fmt.Fprintf(w, "# %s\n%s = %s  # %s\n", doc, name, value, origin)
}

// quote is s as a TOML basic string.
func quote(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case r < 0x20 || r == 0x7f:
			fmt.Fprintf(&b, `\u%04X`, r)
		default:
			b.WriteRune(r)
		}
	}
	b.WriteByte('"')
	return b.String()
}
