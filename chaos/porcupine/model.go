package main

// One row as a sequential object: a map of columns with a version, or nothing. Porcupine finds an order of calls that it allows.
// What always holds: a step never changes a state; what a state does not know never makes a call impossible.

import (
	"bytes"
	"encoding/json"
	"hash/maphash"
	"maps"
	"math/big"
	"strings"

	"github.com/anishathalye/porcupine"
)

type kind int

const (
	look    kind = iota // it showed the row, or that there is none
	change              // it was acknowledged
	maybe               // its outcome is unknown: it took effect once, or never does
	refusal             // its conditions on this row did not all hold
)

// step is what one call does with one row. versions: of each mutation, 0 where it is not known. place: among those that
// must follow one another (ordered), 0 where it may stand anywhere. shownAs: the version under which somebody saw a change
// that was not acknowledged, 0 for none.
type step struct {
	call      *call
	kind      kind
	place     int
	shownAs   int64
	guards    []condition
	mutations []mutation
	versions  []int64
	seen      state
	callS     float64
	returnS   float64
}

// state of a row. columns: canonical JSON of what is not null, "" for no row; version 0: not known. open: the row is only
// known as far as columns says, and may not be there at all. place: of the last step that has one.
type state struct {
	columns string
	version int64
	open    bool
	place   int
}

var seed = maphash.MakeSeed()

// model of a row that begins as first. Once allowed says no, nothing is possible: the search ends, and its answer is void.
func model(first state, allowed func() bool) porcupine.Model {
	nondeterministic := porcupine.NondeterministicModel{
		Init: func() []interface{} { return []interface{}{first} },
		Step: func(before, asked, _ interface{}) []interface{} {
			var after []interface{}
			for _, each := range next(before.(state), asked.(*step)) {
				after = append(after, each)
			}
			if len(after) > 0 && !allowed() {
				return nil
			}
			return after
		},
		Hash: func(each interface{}) uint64 {
			return maphash.String(seed, each.(state).columns) + uint64(each.(state).version)
		},
	}
	return nondeterministic.ToModel()
}

// next are the states that the row may be in after the step; none if the step is impossible.
func next(before state, asked *step) []state {
	if asked.place != 0 && asked.place != before.place+1 {
		return nil
	}
	before.place = max(before.place, asked.place)
	switch asked.kind {
	case look:
		return shown(before, asked.seen)
	case refusal:
		if verdict(before, asked.guards) == yes {
			return nil
		}
		return []state{before}
	}
	var after []state
	if asked.kind == maybe {
		after = append(after, before)
	}
	if verdict(before, asked.guards) != no {
		after = append(after, changed(before, asked))
	}
	return after
}

// shown are the states in which a row, or its absence, is shown like this.
func shown(before, seen state) []state {
	if before.open {
		found := columnsOf(seen.columns)
		for name, value := range columnsOf(before.columns) {
			if canonical(found[name]) != canonical(value) {
				return nil
			}
		}
	} else if before.columns != seen.columns {
		return nil
	}
	if before.version != 0 && before.version != seen.version {
		return nil
	}
	seen.place = before.place
	return []state{seen}
}

// changed is the row after the step's mutations.
func changed(row state, asked *step) state {
	for at, each := range asked.mutations {
		switch each.Op {
		case "delete":
			row = state{place: row.place}
		case "update":
			columns := columnsOf(row.columns)
			maps.Copy(columns, each.Row)
			row = state{written(columns, row.open), asked.versions[at], row.open, row.place}
		default: // upsert, insert: the whole row
			row = state{written(each.Row, false), asked.versions[at], false, row.place}
		}
	}
	return row
}

type answer int

const (
	no answer = iota
	unsure
	yes
)

// verdict says whether all guards hold.
func verdict(of state, guards []condition) answer {
	all := yes
	for _, guard := range guards {
		all = min(all, holds(of, guard))
	}
	return all
}

func holds(of state, guard condition) answer {
	switch {
	case of.open && of.columns == "":
		return unsure
	case guard.Exists != nil:
		return truth((of.columns != "") == *guard.Exists)
	case of.columns == "":
		return no
	case guard.Version != nil:
		if of.version == 0 {
			return unsure
		}
		return truth(of.version == *guard.Version)
	case guard.Op != "=" || guard.Value == nil:
		return unsure // rows.go made it so, or no workload asks it
	}
	value, known := columnsOf(of.columns)[guard.Column]
	if !known && of.open {
		return unsure
	}
	return truth(canonical(value) == canonical(guard.Value))
}

func truth(it bool) answer {
	if it {
		return yes
	}
	return no
}

// written is the canonical text of a row. Null is as good as not there, but for what an open state knows of it.
func written(columns map[string]any, open bool) string {
	kept := map[string]any{}
	for name, value := range columns {
		if value != nil || open {
			kept[name] = value
		}
	}
	return canonical(kept)
}

func columnsOf(text string) map[string]any {
	columns := map[string]any{}
	if text != "" {
		if err := unmarshal([]byte(text), &columns); err != nil {
			panic(err) // written made it
		}
	}
	return columns
}

// unmarshal keeps numbers as they are written: a version has more digits than a float.
func unmarshal(text []byte, into any) error {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	return decoder.Decode(into)
}

// canonical is one text for one value: 1.0 and 1 are the same, and columns are in order.
func canonical(value any) string {
	text, err := json.Marshal(plain(value))
	if err != nil {
		panic(err) // it came from JSON
	}
	return string(text)
}

func plain(value any) any {
	switch it := value.(type) {
	case json.Number:
		if exact, ok := new(big.Rat).SetString(it.String()); ok && strings.ContainsAny(it.String(), ".eE") && exact.IsInt() {
			return json.Number(exact.RatString())
		}
	case map[string]any:
		made := map[string]any{}
		for name, each := range it {
			made[name] = plain(each)
		}
		return made
	case []any:
		made := make([]any, len(it))
		for at, each := range it {
			made[at] = plain(each)
		}
		return made
	}
	return value
}
