package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"sort"
	"strings"
)

// What go test says of a test. One that began and never ended, as after a panic, failed.
const (
	passed  = "pass"
	failed  = "fail"
	skipped = "skip"
	begun   = "run"
)

// A test is one test or subtest of the run.
type test struct {
	Package string
	Name    string // as TestOBX021_AckMarksProcessed/postgres
}

// parseTests reads the output of go test -json. A test that ran several times failed if it failed once.
func parseTests(r io.Reader) (map[test]string, error) {
	tests := map[test]string{}
	lines := bufio.NewReader(r)
	for n := 1; ; n++ {
		line, err := lines.ReadBytes('\n')
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, err
		}
		if len(line) > 0 && line[0] == '{' { // go test also prints lines that are not JSON, as when a build fails
			var event struct{ Action, Package, Test string }
			if err := json.Unmarshal(line, &event); err != nil {
				return nil, fmt.Errorf("line %d: %w", n, err)
			}
			key := test{event.Package, event.Test}
			switch event.Action {
			case begun, passed, failed, skipped:
				if event.Test != "" && tests[key] != failed {
					tests[key] = event.Action
				}
			}
		}
		if err != nil {
			break
		}
	}
	for key, result := range tests {
		if result == begun {
			tests[key] = failed
		}
	}
	return tests, nil
}

// An outcome is what one test or subtest says of the requirements that it names.
type outcome struct {
	ids     []string // as OBX-021
	name    string   // of the whole test
	backend string   // empty: of all of them
	result  string
}

var numbered = regexp.MustCompile(`^(?:Test)?((?:OBX|JOIN)\d{3}(?:_(?:OBX|JOIN)?\d{3})*)(?:_|$)`)

// outcomes takes what tests say about requirements. Tests pass and are skipped at their leaves, since a test also passes
// when all its subtests were skipped; they fail where no subtest explains it.
func outcomes(tests map[test]string) []outcome {
	parents, explained := map[test]bool{}, map[test]bool{}
	for key, result := range tests {
		for parent := key; ; {
			end := strings.LastIndexByte(parent.Name, '/')
			if end < 0 {
				break
			}
			parent.Name = parent.Name[:end]
			parents[parent] = true
			explained[parent] = explained[parent] || result == failed
		}
	}

	var found []outcome
	for key, result := range tests {
		if parents[key] && (result != failed || explained[key]) {
			continue
		}
		o := outcome{result: result}
		o.name, _, _ = strings.Cut(key.Name, "/")
		for element := range strings.SplitSeq(key.Name, "/") {
			o.ids = append(o.ids, requirementIDs(element)...)
			if slices.Contains(backends, element) {
				o.backend = element
			}
		}
		if len(o.ids) > 0 {
			found = append(found, o)
		}
	}
	sort.Slice(found, func(i, j int) bool { return found[i].name < found[j].name })
	return found
}

// requirementIDs reads the numbers off a test's name: TestOBX016_017_Claim has OBX-016 and OBX-017, and
// TestJOIN020_OBX079_080_Report has JOIN-020, OBX-079 and OBX-080.
func requirementIDs(name string) (ids []string) {
	match := numbered.FindStringSubmatch(name)
	if match == nil {
		return nil
	}
	kind := ""
	for part := range strings.SplitSeq(match[1], "_") {
		number := strings.TrimLeft(part, "OBXJIN")
		if number != part {
			kind = strings.TrimSuffix(part, number)
		}
		ids = append(ids, kind+"-"+number)
	}
	return ids
}
