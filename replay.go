package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"

	"semel/chat"
	"semel/db"
)

// A replayed counts what replay has seen.
type replayed struct {
	answers, decisions, differ int
}

// replay decides anew on every tool call of the database file at path and compares it
// with what is stored: from the declarations of the time, or from those given. It writes
// a line for each difference and one with the counts; an error means that it could not
// run. It only reads; the file may be served meanwhile.
func replay(ctx context.Context, path string, against *chat.Declarations, w io.Writer) (n replayed, err error) {
	d, err := db.Open(db.Options{Path: path, ReadOnly: true, Readers: 1})
	if err != nil {
		return n, err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	const slice = 200
	of := map[string]*chat.Declarations{} // by their JSON: few, and each is compiled once
	for last := int64(0); ; {
		list, err := d.Proposals(ctx, last, slice)
		if err != nil {
			return n, err
		}
		for _, a := range list {
			declared := against
			if declared == nil {
				declared = of[a.Declared]
			}
			if declared == nil {
				if declared, err = chat.ParseDeclarations([]byte(a.Declared)); err != nil {
					return n, fmt.Errorf("request %s of %s: %w", a.RequestID, a.SessionID, err)
				}
				of[a.Declared] = declared
			}
			calls, err := chat.ParseToolCalls([]byte(a.ToolCalls))
			if err != nil {
				return n, fmt.Errorf("request %s of %s: %w", a.RequestID, a.SessionID, err)
			}
			n.answers++
			if err := n.compare(a, declared.Decide(calls, a.Finish), w); err != nil {
				return n, err
			}
			last = a.ID
		}
		if len(list) < slice {
			break
		}
	}
	_, err = fmt.Fprintf(w, "%d of %d decisions on %d answers are decided so again\n", n.decisions-n.differ, n.decisions, n.answers)
	return n, err
}

// compare writes the differences of one answer. The words of a reason are none: what
// is bound by them is code and verdict.
func (n *replayed) compare(a db.Proposal, again []chat.ActionDecision, w io.Writer) error {
	was, is := byPosition(a.Decisions), byPosition(again)
	all := maps.Clone(was)
	maps.Copy(all, is)
	n.decisions += len(all)
	for _, position := range slices.Sorted(maps.Keys(all)) {
		old, anew := was[position], is[position]
		if same(old, anew) {
			continue
		}
		n.differ++
		if _, err := fmt.Fprintf(w, "%s %s, tool call %d: %s, now %s\n", a.SessionID, a.RequestID, position, decided(old, anew), decided(anew, old)); err != nil {
			return err
		}
	}
	return nil
}

func byPosition(list []chat.ActionDecision) map[int]*chat.ActionDecision {
	of := map[int]*chat.ActionDecision{}
	for i := range list {
		of[list[i].Position] = &list[i]
	}
	return of
}

func same(a, b *chat.ActionDecision) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Action == b.Action && a.Arguments == b.Arguments && a.Digest == b.Digest && a.Verdict == b.Verdict && a.Code == b.Code
}

// decided is a decision for people, beside another. Arguments are not shown: they may
// be private, and long.
func decided(a, other *chat.ActionDecision) string {
	if a == nil {
		return "no decision"
	}
	s := fmt.Sprintf("%s %s", a.Action, a.Verdict)
	if a.Code != "" {
		s += fmt.Sprintf(" (%s: %s)", a.Code, a.Reason)
	}
	if other != nil && a.Arguments != other.Arguments {
		s += fmt.Sprintf(" with %d bytes of other arguments", len(a.Arguments))
	} else if other != nil && a.Action == other.Action && a.Digest != other.Digest {
		s += fmt.Sprintf(" with the digest %x…", a.Digest[:4])
	}
	return s
}
