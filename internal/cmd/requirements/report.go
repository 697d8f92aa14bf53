package main

import (
	"fmt"
	"slices"
	"strings"
)

var backends = []string{"sqlite", "postgres", "sqlserver"}

// The results of a requirement.
const (
	resultOK     = "ok"
	resultFailed = "FAILED"
	resultLater  = "later"
)

// A report is the table that is printed.
type report struct {
	rows     []row
	ran      []string // the databases on which tests of requirements ran
	problems []string // why the run does not show every requirement in scope
}

type row struct {
	requirement
	result   string
	passedOn []string
	tests    []string
}

func (r report) didNotRun() []string {
	return slices.DeleteFunc(slices.Clone(backends), func(b string) bool { return slices.Contains(r.ran, b) })
}

func evaluate(requirements []requirement, tests map[test]string) report {
	all := outcomes(tests)
	byID := map[string][]outcome{}
	ran := map[string]bool{}
	for _, o := range all {
		for _, id := range o.ids {
			byID[id] = append(byID[id], o)
		}
		ran[o.backend] = ran[o.backend] || o.result != skipped
	}

	var r report
	for _, b := range backends {
		if ran[b] {
			r.ran = append(r.ran, b)
		}
	}
	if len(r.ran) == 0 {
		r.problems = append(r.problems, "no test of a requirement ran on any database")
	}
	for _, requirement := range requirements {
		row, problems := judge(requirement, byID[requirement.ID], r.ran)
		r.rows = append(r.rows, row)
		r.problems = append(r.problems, problems...)
		delete(byID, requirement.ID)
	}
	r.problems = append(r.problems, unknown(byID)...)
	return r
}

// judge says on which databases the requirement's tests passed. On each that ran at least one must, and none may fail.
func judge(r requirement, found []outcome, ran []string) (row, []string) {
	row := row{requirement: r, result: resultFailed}
	for _, o := range found {
		if !slices.Contains(row.tests, o.name) {
			row.tests = append(row.tests, o.name)
		}
	}
	var problems []string
	if len(found) == 0 {
		problems, ran = []string{r.ID + " has no test"}, nil
	}
	for _, b := range ran {
		switch on(b, found) {
		case passed:
			row.passedOn = append(row.passedOn, b)
		case failed:
			problems = append(problems, fmt.Sprintf("%s failed on %s", r.ID, b))
		case skipped: // the server lacks what it needs, which the run lists; another one has to show it
		default:
			problems = append(problems, fmt.Sprintf("%s has no test on %s", r.ID, b))
		}
	}
	if len(problems) == 0 && len(ran) > 0 && len(row.passedOn) == 0 {
		problems = []string{r.ID + " was skipped everywhere"}
	}
	if !r.InScope {
		row.result = resultLater
		return row, nil
	}
	if len(problems) == 0 && len(row.passedOn) > 0 {
		row.result = resultOK
	}
	return row, problems
}

// on is the result of all the tests on one database together; empty if there is none.
func on(backend string, found []outcome) (result string) {
	for _, o := range found {
		switch {
		case o.backend != "" && o.backend != backend:
		case o.result == failed:
			return failed
		case o.result == passed || result == "":
			result = o.result
		}
	}
	return result
}

func unknown(byID map[string][]outcome) (problems []string) {
	for id, found := range byID {
		problems = append(problems, fmt.Sprintf("%s names %s, which is no requirement", found[0].name, id))
	}
	slices.SortFunc(problems, strings.Compare)
	return problems
}
