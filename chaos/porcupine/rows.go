package main

// The calls of a history as steps on single rows: what each one did to a row, showed of it, or was refused by it.
// What always holds: a step says no more than the answer promises (docs/protocol.md P3, P5; docs/api.md), and what cannot be
// told of one row alone is no step.

import (
	"maps"
	"math"
	"slices"
)

const checkName = "linearizable" // tables that ask for it are judged

// rows are the steps of each row of each table; lossy: how many of them a manifest names.
func (h *history) rows() (found map[rowName][]*step, lossy int) {
	found = map[rowName][]*step{}
	for _, use := range h.tables {
		if slices.Contains(use.Checks, checkName) {
			maps.Copy(found, h.rowsOf(use))
		}
	}
	for name := range found {
		if h.lost[name] != nil {
			lossy++
		}
	}
	return found, lossy
}

// table is one table on the way to its rows. moved: columns that a schema change may drop or rename; they are not followed.
type table struct {
	use     tableUse
	moved   map[string]bool
	altered bool
	steps   map[rowName][]*step
	keys    []string // of the steps, in order
}

func (h *history) rowsOf(use tableUse) map[rowName][]*step {
	made := &table{use: use, moved: map[string]bool{}, steps: map[rowName][]*step{}}
	var calls []*call
	for at := range h.calls {
		each := &h.calls[at]
		if each.Operation.Table != use.Name {
			continue
		}
		if each.Operation.Kind == "schema" {
			made.alter(each.Operation.Body)
		} else {
			calls = append(calls, each)
		}
	}
	var looks []*call
	for _, each := range calls {
		if k := each.Operation.Kind; k == "read" || k == "scan" {
			looks = append(looks, each)
		} else {
			made.takeWrite(h, each)
		}
	}
	for _, each := range looks { // after the writes, for a scan shows of every known row that it is not there
		if each.Outcome != nil && each.Outcome.Result == "ok" && each.Operation.AsOf == nil && !h.isGivenUp(each) {
			made.takeLook(each)
		}
	}
	for name, steps := range made.steps {
		made.steps[name] = made.settledBySight(withoutLosses(steps, h.lost[name]))
	}
	return made.steps
}

func (h *history) isGivenUp(each *call) bool {
	return each.Outcome.Epoch != nil && h.givenUp[*each.Outcome.Epoch]
}

func (t *table) alter(body map[string]any) {
	if _, isNew := body["name"]; isNew {
		return
	}
	t.altered = true
	dropped, _ := body["drop"].([]any)
	for _, name := range dropped {
		t.moved[name.(string)] = true
	}
	renamed, _ := body["rename"].(map[string]any)
	for name, other := range renamed {
		t.moved[name], t.moved[other.(string)] = true, true
	}
}

func (t *table) add(key string, each *step) {
	name := rowName{t.use.Name, key}
	if _, known := t.steps[name]; !known {
		at, _ := slices.BinarySearch(t.keys, key)
		t.keys = slices.Insert(t.keys, at, key)
	}
	t.steps[name] = append(t.steps[name], each)
}

// ---- looks
func (t *table) takeLook(each *call) {
	shown := map[string]bool{}
	add := func(key string, seen state) {
		t.add(key, &step{call: each, kind: look, seen: seen, callS: each.InvokedS, returnS: *each.ReturnedS})
	}
	for _, row := range each.Outcome.Rows {
		shown[row.Key] = true
		add(row.Key, state{columns: written(t.followed(row.Row), false), version: row.Version})
	}
	if each.Operation.Kind == "read" {
		if len(each.Outcome.Rows) == 0 {
			add(each.Operation.Key, state{})
		}
		return
	}
	if each.Outcome.Complete != nil && !*each.Outcome.Complete {
		return
	}
	from, _ := slices.BinarySearch(t.keys, each.Operation.Start)
	to := len(t.keys)
	if each.Operation.End != nil {
		to, _ = slices.BinarySearch(t.keys, *each.Operation.End)
	}
	for at := from; at < to; at++ {
		if !shown[t.keys[at]] {
			add(t.keys[at], state{})
		}
	}
}

func (t *table) followed(row map[string]any) map[string]any {
	kept := map[string]any{}
	for name, value := range row {
		if !t.moved[name] {
			kept[name] = value
		}
	}
	return kept
}

// ---- writes
func (t *table) takeWrite(h *history, each *call) {
	asked, guards := each.Operation, t.guards(each.Operation)
	result, version, returnS := "unknown", int64(0), h.settled(each)
	if each.Outcome != nil && each.ReturnedS != nil {
		result = each.Outcome.Result
		if each.Outcome.Ack != nil {
			version = each.Outcome.Ack.Version - int64(len(asked.Mutations)) + 1
		}
	}
	switch result {
	case "not_applied":
		t.takeRefusal(h, each, guards)
		return
	case "ok":
		returnS = *each.ReturnedS
	}
	changes := map[string]*step{}
	for key := range guards {
		changes[key] = &step{}
	}
	for at, one := range asked.Mutations {
		if changes[one.Key] == nil {
			changes[one.Key] = &step{}
		}
		one.Row = t.followed(one.Row)
		it := changes[one.Key]
		it.mutations = append(it.mutations, one)
		if version != 0 {
			it.versions = append(it.versions, version+int64(at))
		} else {
			it.versions = append(it.versions, 0)
		}
	}
	for key, it := range changes {
		it.call, it.kind, it.guards, it.callS, it.returnS = each, change, guards[key], each.InvokedS, returnS
		if result == "unknown" {
			it.kind = maybe
		}
		if it.kind == change || len(it.mutations) > 0 {
			t.add(key, it)
		}
	}
}

// guards are the conditions on each row: stated, and those that an insert or an update brings. Where a request names a row
// twice, an earlier mutation may have met the latter.
func (t *table) guards(asked operation) map[string][]condition {
	found, times := map[string][]condition{}, map[string]int{}
	for _, each := range asked.Conditions {
		if t.moved[each.Column] {
			each.Op = "of a column that is not followed"
		}
		found[asked.Key] = append(found[asked.Key], each)
	}
	for _, one := range asked.Mutations {
		times[one.Key]++
	}
	for _, one := range asked.Mutations {
		if exists := one.Op == "update"; times[one.Key] == 1 && (exists || one.Op == "insert") {
			found[one.Key] = append(found[one.Key], condition{Exists: &exists})
		}
	}
	return found
}

// takeRefusal: only where a condition refused it, and one row alone can have.
func (t *table) takeRefusal(h *history, each *call, guards map[string][]condition) {
	switch each.Outcome.Error {
	case "precondition-failed", "not-found":
	case "conflict":
		if t.altered {
			return // it may be one with a schema change
		}
	default:
		return
	}
	named := map[string]bool{}
	for _, one := range each.Operation.Mutations {
		if one.Op == "insert" || one.Op == "update" {
			named[one.Key] = true
		}
	}
	if len(each.Operation.Conditions) > 0 {
		named[each.Operation.Key] = true
	}
	if len(named) != 1 || h.isGivenUp(each) {
		return
	}
	for key := range named {
		if len(guards[key]) > 0 {
			t.add(key, &step{call: each, kind: refusal, guards: guards[key], callS: each.InvokedS, returnS: *each.ReturnedS})
		}
	}
}

// withoutLosses takes what a manifest names as cut off (P6) for never done, or put back later, on no condition. Who saw it saw
// what does not count any more. Whoever was shown no version from then on may have.
func withoutLosses(steps []*step, lost map[int64]bool) []*step {
	fromS := math.Inf(1)
	for _, each := range steps {
		if slices.ContainsFunc(each.versions, func(version int64) bool { return lost[version] }) {
			fromS = min(fromS, each.callS)
			each.kind, each.guards, each.versions, each.returnS = maybe, nil, make([]int64, len(each.versions)), math.Inf(1)
		}
	}
	return slices.DeleteFunc(steps, func(each *step) bool {
		telling := each.kind == look && each.seen.version != 0
		return telling && lost[each.seen.version] || !telling && (each.kind == look || each.kind == refusal) && each.returnS >= fromS
	})
}

// settledBySight: where values are unique, whoever saw what a call of unknown outcome wrote proves that it took effect by then.
// Where a row is only ever written as a whole and without conditions, what nobody saw can be taken for never done.
func (t *table) settledBySight(steps []*step) []*step {
	if t.use.Unique != nil && !*t.use.Unique {
		return steps
	}
	simple, seenS, shownAs := true, map[string]float64{}, map[string]int64{}
	for _, each := range steps {
		simple = simple && each.kind != refusal && len(each.guards) == 0
		for _, one := range each.mutations {
			simple = simple && one.Op == "upsert"
		}
		if each.kind == look && each.seen.columns != "" {
			value := t.value(columnsOf(each.seen.columns))
			if before, there := seenS[value]; !there || each.returnS < before {
				seenS[value] = each.returnS
			}
			shownAs[value] = each.seen.version
		}
	}
	kept := steps[:0]
	for _, each := range steps {
		if each.kind == maybe {
			value := t.value(each.mutations[len(each.mutations)-1].Row)
			seen, isSeen := seenS[value]
			if isSeen {
				each.kind, each.returnS = change, math.Max(each.callS, math.Min(each.returnS, seen))
				each.shownAs = shownAs[value]
			} else if simple {
				continue
			}
		}
		kept = append(kept, each)
	}
	return kept
}

// value is the text of the column that differs between writes; a write that leaves it alone is never seen by it.
func (t *table) value(row map[string]any) string {
	name := "value"
	if t.use.Value != nil {
		name = *t.use.Value
	}
	value, there := row[name]
	if !there {
		return "not written"
	}
	return canonical(value)
}
