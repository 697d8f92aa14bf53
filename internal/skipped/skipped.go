// Package skipped lists the tests that did not run, and why: no test is skipped silently.
package skipped

import (
	"fmt"
	"io"
	"os"
	"sort"
	"sync"
	"text/tabwriter"
)

var (
	mu   sync.Mutex
	list [][3]string // test, what it needs, why it has not got it
)

// Add notes that a test did not run.
func Add(test, needs, why string) {
	mu.Lock()
	defer mu.Unlock()
	list = append(list, [3]string{test, needs, why})
}

// Report prints the list, and appends it to the file that OUTBOX_TEST_SKIPPED names, for a run that hides what passing
// tests print. Each TestMain calls it at the end.
func Report() (err error) {
	mu.Lock()
	defer mu.Unlock()
	if len(list) == 0 {
		return nil
	}
	sort.Slice(list, func(i, j int) bool { return list[i][0] < list[j][0] })
	write(os.Stdout)
	file := os.Getenv("OUTBOX_TEST_SKIPPED")
	if file == "" {
		return nil
	}
	out, err := os.OpenFile(file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("OUTBOX_TEST_SKIPPED: %w", err)
	}
	write(out)
	return out.Close()
}

func write(w io.Writer) {
	fmt.Fprintln(w, "did NOT run, by what is missing:")
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, entry := range list {
		fmt.Fprintf(table, "  %s\tneeds %s\t%s\n", entry[0], entry[1], entry[2])
	}
	_ = table.Flush() // to a terminal or a file that Close tells about
}
