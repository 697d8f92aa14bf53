// Command requirements prints which requirement of the specification is shown by which test, on which databases that
// test passed, and where the project deviates from the text. It reads the output of a run of go test -json and ends with
// exit code 1 if a requirement in scope has no test that passed on every database of that run.
//
// A test names its requirements: TestOBX021_AckMarksProcessed, or TestOBX016_017_… for several. Below it is a subtest for
// each database, called sqlite, postgres or sqlserver. A test without such subtests counts for all of them. A skipped
// test counts as not run.
package main

import (
	_ "embed"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"time"
)

//go:embed requirements.tsv
var requirementsTSV string

func main() {
	path := flag.String("json", "build/test.json", "the output of go test -json")
	all := flag.Bool("all", false, "list the requirements of later work too")
	flag.Parse()

	complete, err := run(os.Stdout, *path, *all)
	if err != nil {
		fmt.Fprintln(os.Stderr, "requirements:", err)
		os.Exit(2)
	}
	if !complete {
		os.Exit(1)
	}
}

func run(w io.Writer, path string, all bool) (complete bool, err error) {
	requirements, err := parseRequirements(requirementsTSV)
	if err != nil {
		return false, fmt.Errorf("reading the requirements: %w", err)
	}
	file, err := os.Open(path)
	if err != nil {
		return false, fmt.Errorf("opening the test results: %w", err)
	}
	defer file.Close() //nolint:errcheck // only read
	info, err := file.Stat()
	if err != nil {
		return false, fmt.Errorf("opening the test results: %w", err)
	}
	tests, err := parseTests(file)
	if err != nil {
		return false, fmt.Errorf("reading %s: %w", path, err)
	}

	r := evaluate(requirements, tests)
	fmt.Fprintf(w, "From %s, written %s.\n\n", path, info.ModTime().Format(time.DateTime))
	return len(r.problems) == 0, r.print(w, all)
}

func (r report) print(w io.Writer, all bool) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "ID\tRESULT\tPASSED ON\tREQUIREMENT, AS BUILT, TESTS")
	passed, later := 0, 0
	for _, row := range r.rows {
		if !row.InScope {
			later++
			if !all {
				continue
			}
		} else if row.result == resultOK {
			passed++
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\n", row.ID, row.result, strings.Join(row.passedOn, " "), row.Text)
		if row.AsBuilt != "" {
			fmt.Fprintf(table, "\t\t\tas built: %s\n", row.AsBuilt)
		}
		for _, test := range row.tests {
			fmt.Fprintf(table, "\t\t\t%s\n", test)
		}
	}
	if err := table.Flush(); err != nil {
		return fmt.Errorf("printing: %w", err)
	}

	fmt.Fprintf(w, "\n%d of %d requirements in scope passed on %s; %d are of later work.\n",
		passed, len(r.rows)-later, list(r.ran), later)
	if missing := r.didNotRun(); len(missing) > 0 {
		fmt.Fprintf(w, "No test of a requirement ran on %s.\n", list(missing))
	}
	for _, problem := range r.problems {
		fmt.Fprintln(w, "FAILED:", problem)
	}
	return nil
}

func list(names []string) string {
	if len(names) == 0 {
		return "no database"
	}
	return strings.Join(names, ", ")
}
