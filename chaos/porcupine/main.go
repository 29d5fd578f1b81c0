// Judges whether each row of a history behaves like one atomic object, with Porcupine: a second opinion that shares no code
// with the project's own checkers.
//
// It reads a history.jsonl (a file, or - for standard input) and writes one JSON document. Exit codes: 0 every row that it
// judged is linearizable, 1 one is not, 2 wrong usage or no history, 3 it could not decide.
package main

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"
)

// opinion is the document. steps: calls on rows that were judged; lossy: those rows that a manifest names.
type opinion struct {
	Rows      int      `json:"rows"`
	Steps     int      `json:"steps"`
	Lossy     int      `json:"lossy"`
	Broken    []broken `json:"broken"`
	Undecided []row    `json:"undecided"`
	Beyond    string   `json:"beyond"` // why this history is not judged at all
}

type row struct {
	Table string `json:"table"`
	Key   string `json:"key"`
}

// broken: no order explains what these calls were told.
type broken struct {
	row
	Calls []int `json:"calls"`
}

func main() {
	seconds := flag.Float64("seconds", 60, "for each row; then it is undecided")
	flag.Usage = func() {
		fmt.Fprintln(flag.CommandLine.Output(), "usage: porcupine [-seconds S] HISTORY.jsonl|-")
	}
	flag.Parse()
	if flag.NArg() != 1 || *seconds <= 0 {
		flag.Usage()
		os.Exit(2)
	}
	found, err := open(flag.Arg(0))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	told := judged(found, time.Duration(*seconds*float64(time.Second)))
	encoder := json.NewEncoder(os.Stdout)
	encoder.SetIndent("", " ")
	if err := encoder.Encode(told); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	os.Exit(told.code())
}

func open(path string) (*history, error) {
	source := io.Reader(os.Stdin)
	if path != "-" {
		file, err := os.Open(path)
		if err != nil {
			return nil, err
		}
		defer file.Close()
		source = file
	}
	return read(bufio.NewReader(source))
}

func judged(found *history, within time.Duration) opinion {
	told := opinion{Broken: []broken{}, Undecided: []row{}}
	if found.apart {
		told.Beyond = "a command had the register decided at each site apart: this checker does not know what that allows"
		return told
	}
	rows, lossy := found.rows()
	told.Lossy = lossy
	names := make([]rowName, 0, len(rows))
	for name := range rows {
		names = append(names, name)
	}
	slices.SortFunc(names, func(one, other rowName) int {
		return strings.Compare(one.table+"\x00"+one.key, other.table+"\x00"+other.key)
	})
	for _, name := range names {
		steps := rows[name]
		told.Rows++
		told.Steps += len(steps)
		switch judgeRow(steps, within) {
		case porcupine.Unknown:
			told.Undecided = append(told.Undecided, row{name.table, name.key})
		case porcupine.Illegal:
			it := broken{row: row{name.table, name.key}}
			for _, each := range smallest(steps) {
				it.Calls = append(it.Calls, each.ID)
			}
			told.Broken = append(told.Broken, it)
		}
	}
	if told.Rows == 0 {
		told.Beyond = "there is no row in it to judge"
	}
	return told
}

func (o opinion) code() int {
	switch {
	case len(o.Broken) > 0:
		return 1
	case len(o.Undecided) > 0 || o.Beyond != "":
		return 3
	}
	return 0
}
