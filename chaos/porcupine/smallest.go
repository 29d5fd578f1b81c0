package main

// The smallest part of a row's calls that no order explains.
// What always holds: each cut only takes demands away (a call that took effect becomes one that may have, an answer is
// forgotten, the row may begin as anything), so what is still impossible proves that the whole is.

import (
	"cmp"
	"math"
	"slices"
	"sort"
	"time"

	"github.com/anishathalye/porcupine"
)

const (
	memoryBytes = 1 << 30   // for what a search remembers, about
	placesSome  = 1_000_000 // for each of the many searches for a smallest part
	smallestIn  = 60 * time.Second
)

// judge looks for an order of the steps, from this state on. places: after how many successful tries it gives up.
func judge(first state, steps []*step, places int, within time.Duration) porcupine.CheckResult {
	operations := make([]porcupine.Operation, len(steps))
	for at, each := range steps {
		operations[at] = porcupine.Operation{Input: each, Call: nanoseconds(each.callS), Return: nanoseconds(each.returnS)}
	}
	allowed := func() bool {
		places--
		return places >= 0
	}
	result := porcupine.CheckOperationsTimeout(model(first, allowed), operations, within)
	if places < 0 {
		return porcupine.Unknown // nothing was possible any more
	}
	return result
}

// judgeRow looks for an order in which versions ascend, and for any other one if there is none: the former is found at once,
// however many calls overlap.
func judgeRow(steps []*step, within time.Duration) porcupine.CheckResult {
	if result := judge(state{}, ordered(steps), placesMax(steps), within); result == porcupine.Ok {
		return result
	}
	return judge(state{}, steps, placesMax(steps), within)
}

// ordered are the steps with places for those whose version is known: a change, then who saw the row like that.
func ordered(steps []*step) []*step {
	all := make([]*step, len(steps))
	var placed []*step
	for at, each := range steps {
		copied := *each
		all[at] = &copied
		if each.kind != maybe && each.version() != 0 {
			placed = append(placed, &copied)
		}
	}
	slices.SortFunc(placed, func(one, other *step) int {
		return cmp.Or(cmp.Compare(one.version(), other.version()), cmp.Compare(other.kind, one.kind),
			cmp.Compare(one.callS, other.callS))
	})
	for at, each := range placed {
		each.place = at + 1
	}
	return all
}

// version of the row behind the step, 0 where it is not known.
func (s *step) version() int64 {
	if len(s.versions) == 0 {
		return s.seen.version
	}
	return max(s.versions[len(s.versions)-1], s.shownAs)
}

// placesMax is as many as there is memory for: at each, a set of steps and the states of the row are remembered.
func placesMax(steps []*step) int {
	return memoryBytes / (len(steps)/8 + 200)
}

func nanoseconds(s float64) int64 {
	if math.IsInf(s, 1) {
		return math.MaxInt64
	}
	return int64(math.Round(s * 1e9))
}

// smallest are the calls whose answers cannot all be true, as far as that is found soon.
func smallest(steps []*step) []*call {
	until := time.Now().Add(smallestIn)
	impossible := func(from state, some []*step) bool {
		left := time.Until(until)
		return left > 0 && judge(from, some, placesSome, left) == porcupine.Illegal
	}
	first := state{}
	ends := times(steps, func(each *step) float64 { return each.returnS })
	enough := sort.Search(len(ends), func(at int) bool { return impossible(first, before(steps, ends[at])) })
	if enough < len(ends) {
		steps = before(steps, ends[enough])
	}
	begins := times(steps, func(each *step) float64 { return each.callS })
	slices.Reverse(begins)
	late := func(at int) bool { return impossible(state{open: true}, from(steps, begins[at])) }
	for far := 1; far < 2*len(begins); far *= 2 { // short parts are judged soon, and most are short
		if last := min(far, len(begins)) - 1; late(last) {
			first, steps = state{open: true}, from(steps, begins[sort.Search(last, late)])
			break
		}
	}
	for at := len(steps) - 1; at >= 0; at-- {
		if less := without(steps, at); steps[at].kind != maybe && impossible(first, less) {
			steps = less
		}
	}
	var found []*call
	for _, each := range steps {
		if each.kind != maybe {
			found = append(found, each.call)
		}
	}
	slices.SortFunc(found, func(one, other *call) int { return one.ID - other.ID })
	return found
}

func times(steps []*step, of func(*step) float64) []float64 {
	var found []float64
	for _, each := range steps {
		found = append(found, of(each))
	}
	slices.Sort(found)
	return slices.Compact(found)
}

// before is what is known at that time.
func before(steps []*step, atS float64) []*step {
	var known []*step
	for _, each := range steps {
		switch {
		case each.callS > atS:
		case each.returnS <= atS:
			known = append(known, each)
		case each.kind == change || each.kind == maybe:
			known = append(known, each.asMaybe())
		}
	}
	return known
}

// from is what began at that time or later; what was under way then may have taken effect before.
func from(steps []*step, atS float64) []*step {
	var left []*step
	for _, each := range steps {
		switch {
		case each.returnS < atS:
		case each.callS >= atS:
			left = append(left, each)
		case each.kind == change || each.kind == maybe:
			left = append(left, each.asMaybe())
		}
	}
	return left
}

// without one answer: what only showed something is left out, what took effect may have done so.
func without(steps []*step, at int) []*step {
	if steps[at].kind != change {
		return slices.Concat(steps[:at], steps[at+1:])
	}
	less := slices.Clone(steps)
	less[at] = less[at].asMaybe()
	return less
}

func (s *step) asMaybe() *step {
	copied := *s
	copied.kind = maybe
	return &copied
}
