package main

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestEvaluate(t *testing.T) {
	file, err := os.Open("testdata/test.json")
	require.NoError(t, err)
	tests, err := parseTests(file)
	require.NoError(t, err)
	require.NoError(t, file.Close())

	var requirements []requirement
	for _, id := range []string{"OBX-001", "OBX-002", "OBX-003", "OBX-004", "OBX-005", "OBX-006", "OBX-007", "OBX-008", "OBX-009"} {
		requirements = append(requirements, requirement{ID: id, InScope: true, Text: "text"})
	}
	requirements = append(requirements, requirement{ID: "OBX-010", Text: "of later work"})
	r := evaluate(requirements, tests)

	require.Equal(t, []string{"sqlite", "postgres"}, r.ran, "a test that names no requirement is no run on its database")
	require.Equal(t, []string{"sqlserver"}, r.didNotRun())
	require.Equal(t, []string{
		"OBX-002 failed on postgres",
		"OBX-003 failed on postgres",
		"OBX-006 failed on postgres",
		"OBX-007 failed on sqlite",
		"OBX-007 failed on postgres",
		"OBX-009 has no test",
		"TestOBX999_Misnumbered names OBX-999, which is no requirement",
	}, r.problems)
	passedOn := map[string]string{}
	for _, row := range r.rows {
		passedOn[row.ID] = row.result + " " + strings.Join(row.passedOn, ",")
	}
	require.Equal(t, map[string]string{
		"OBX-001": "ok sqlite,postgres",
		"OBX-002": "FAILED sqlite",
		"OBX-003": "FAILED sqlite",
		"OBX-004": "ok sqlite,postgres",
		"OBX-005": "ok postgres",
		"OBX-006": "FAILED sqlite",
		"OBX-007": "FAILED ",
		"OBX-008": "ok sqlite,postgres",
		"OBX-009": "FAILED ",
		"OBX-010": "later ",
	}, passedOn)
	require.Equal(t, []string{"TestOBX008_HalfHere", "TestSuite"}, r.rows[7].tests)
}

func TestEvaluateWithoutAnyDatabase(t *testing.T) {
	requirements := []requirement{{ID: "OBX-001", InScope: true}, {ID: "OBX-002", InScope: true}}
	r := evaluate(requirements, map[test]string{
		{Name: "TestOBX001_Stores"}:        passed,
		{Name: "TestOBX001_Stores/sqlite"}: skipped,
	})
	require.Equal(t, []string{"no test of a requirement ran on any database", "OBX-002 has no test"}, r.problems)
	require.Equal(t, resultFailed, r.rows[0].result)
	require.Equal(t, resultFailed, r.rows[1].result)
}

func TestRequirementIDs(t *testing.T) {
	for name, want := range map[string][]string{
		"TestOBX021_AckMarksProcessed":            {"OBX-021"},
		"TestOBX016_017_Claim":                    {"OBX-016", "OBX-017"},
		"TestJOIN020_024_OBX079_080_JOIN034_Ends": {"JOIN-020", "JOIN-024", "OBX-079", "OBX-080", "JOIN-034"},
		"JOIN001":              {"JOIN-001"},
		"TestJOIN0011_TooMany": nil,
		"TestOBX016_17_Claim":  {"OBX-016"},
		"TestOther_JOIN001":    nil,
	} {
		require.Equal(t, want, requirementIDs(name), name)
	}
}

func TestParseTestsRefusesBrokenLines(t *testing.T) {
	_, err := parseTests(strings.NewReader("{\"Action\":\"run\"}\n{\"Action\":\n"))
	require.ErrorContains(t, err, "line 2")
}

func TestRequirementsFile(t *testing.T) {
	requirements, err := parseRequirements(requirementsTSV)
	require.NoError(t, err)
	scope := map[string]int{}
	for _, r := range requirements {
		require.Regexp(t, `^(OBX|JOIN)-\d{3}$`, r.ID)
		kind, _, _ := strings.Cut(r.ID, "-")
		scope[kind]++
		if r.InScope {
			scope[kind+" in scope"]++
		}
	}
	require.Equal(t, map[string]int{"OBX": 120, "OBX in scope": 120, "JOIN": 46, "JOIN in scope": 46}, scope)
}

func TestParseRequirementsRefuses(t *testing.T) {
	const head = "id\tin_scope\ttext\tas_built\n"
	for name, tsv := range map[string]string{
		"a missing field":  head + "OBX-001\tyes\ttext\n",
		"a word for scope": head + "OBX-001\tno\ttext\t\n",
		"a number twice":   head + "OBX-001\tyes\ttext\t\nOBX-001\tyes\ttext\t\n",
		"an empty text":    head + "OBX-001\tyes\t\t\n",
	} {
		t.Run(name, func(t *testing.T) {
			_, err := parseRequirements(tsv)
			require.ErrorContains(t, err, "line")
		})
	}
}

func TestRunPrintsTheTable(t *testing.T) {
	var out bytes.Buffer
	complete, err := run(&out, "testdata/test.json", false)
	require.NoError(t, err)
	require.False(t, complete)
	require.Regexp(t, `OBX-001 +ok +sqlite postgres +\S`, out.String())
	require.Contains(t, out.String(), "TestOBX001_Stores\n")
	require.Contains(t, out.String(), "FAILED: OBX-120 has no test\n")

	_, err = run(&out, "testdata/missing.json", false)
	require.ErrorIs(t, err, os.ErrNotExist)
}
