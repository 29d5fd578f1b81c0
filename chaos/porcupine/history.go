package main

// The lines of a history.jsonl that the judgement needs; every other line is left alone.
// What always holds: only the format is taken from the project (chaos/history/history.py), none of its judgement.

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
)

type mutation struct {
	Op  string         `json:"op"`
	Key string         `json:"key"`
	Row map[string]any `json:"row"`
}

type condition struct {
	Column  string `json:"column"`
	Op      string `json:"op"`
	Value   any    `json:"value"`
	Version *int64 `json:"version"`
	Exists  *bool  `json:"exists"`
}

type operation struct {
	Kind       string         `json:"kind"`
	Table      string         `json:"table"`
	Key        string         `json:"key"`
	Mutations  []mutation     `json:"mutations"`
	Conditions []condition    `json:"conditions"`
	Start      string         `json:"start"`
	End        *string        `json:"end"`
	AsOf       *int64         `json:"as_of"`
	Body       map[string]any `json:"body"`
}

type shownRow struct {
	Key     string         `json:"key"`
	Row     map[string]any `json:"row"`
	Version int64          `json:"version"`
}

type outcome struct {
	Result string `json:"result"`
	Ack    *struct {
		Version int64 `json:"version"`
	} `json:"ack"`
	Rows     []shownRow `json:"rows"`
	Complete *bool      `json:"complete"` // true unless it is there
	Error    string     `json:"error"`
	Epoch    *int       `json:"epoch"`
}

type call struct {
	ID        int       `json:"id"`
	Operation operation `json:"operation"`
	InvokedS  float64   `json:"invoked_s"`
	DeadlineS *float64  `json:"deadline_s"`
	ReturnedS *float64  `json:"returned_s"`
	Outcome   *outcome  `json:"outcome"`
}

type tableUse struct {
	Name   string   `json:"name"`
	Value  *string  `json:"value"`  // "value" unless it is there
	Unique *bool    `json:"unique"` // true unless it is there
	Checks []string `json:"checks"`
}

type rowName struct{ table, key string }

type history struct {
	calls    []call
	tables   []tableUse
	settledS []float64                  // when what was unknown until then had happened, or never would
	givenUp  map[int]bool               // epochs that a forced takeover undid
	lost     map[rowName]map[int64]bool // versions of rows that a manifest names as cut off
	apart    bool                       // the register was decided at both sites apart from each other
}

// read takes in a whole history. A line that is not of the format is an error.
func read(source io.Reader) (*history, error) {
	found := &history{givenUp: map[int]bool{}, lost: map[rowName]map[int64]bool{}}
	decoder := json.NewDecoder(source)
	for number := 1; ; number++ {
		var line json.RawMessage
		err := decoder.Decode(&line)
		if errors.Is(err, io.EOF) {
			return found, nil
		}
		if err == nil {
			err = found.take(line)
		}
		if err != nil {
			return nil, fmt.Errorf("line %d is none of a history: %w", number, err)
		}
	}
}

func (h *history) take(line []byte) error {
	var tag struct {
		Is string `json:"is"`
	}
	if err := json.Unmarshal(line, &tag); err != nil {
		return err
	}
	switch tag.Is {
	case "":
		return errors.New("it has no `is`")
	case "call":
		var each call
		err := unmarshal(line, &each)
		h.calls = append(h.calls, each)
		return err
	case "table":
		var each tableUse
		err := unmarshal(line, &each)
		h.tables = append(h.tables, each)
		return err
	case "moment":
		var each struct {
			Name string  `json:"name"`
			AtS  float64 `json:"at_s"`
		}
		err := unmarshal(line, &each)
		if each.Name == "recovered" {
			h.settledS = append(h.settledS, each.AtS)
		}
		return err
	case "given_up":
		var each struct {
			Epoch int `json:"epoch"`
		}
		err := unmarshal(line, &each)
		h.givenUp[each.Epoch] = true
		return err
	case "apart":
		h.apart = true
	case "quarantine":
		return h.takeLosses(line)
	}
	return nil
}

func (h *history) takeLosses(line []byte) error {
	var each struct {
		Kept bool                 `json:"kept"`
		Rows [][4]json.RawMessage `json:"rows"` // table, key, sequence, version
	}
	if err := unmarshal(line, &each); err != nil || !each.Kept {
		return err
	}
	for _, row := range each.Rows {
		var name rowName
		var version int64
		err := errors.Join(
			json.Unmarshal(row[0], &name.table), json.Unmarshal(row[1], &name.key), json.Unmarshal(row[3], &version),
		)
		if err != nil {
			return fmt.Errorf("a row in quarantine: %w", err)
		}
		if h.lost[name] == nil {
			h.lost[name] = map[int64]bool{}
		}
		h.lost[name][version] = true
	}
	return nil
}

// settled is the end of a call's time to take effect: its outcome is unknown.
func (h *history) settled(each *call) float64 {
	known := each.InvokedS
	if each.ReturnedS != nil {
		known = *each.ReturnedS
	} else if each.DeadlineS != nil {
		known = *each.DeadlineS
	}
	end := math.Inf(1)
	for _, at := range h.settledS {
		if at >= known {
			end = min(end, at)
		}
	}
	return end
}
