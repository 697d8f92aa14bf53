// Package testexample runs the tests of a package whose Examples open SQLite. The library's module requires no driver, so that
// they only compile there. TestLong_Examples of internal/conformance/readme links the driver in and runs them.
package testexample

import (
	"database/sql"
	"flag"
	"fmt"
	"os"
	"slices"
	"testing"
)

// Main is the package's TestMain.
func Main(m *testing.M) {
	flag.Parse()
	if !slices.Contains(sql.Drivers(), "sqlite") {
		if err := leaveOutExamples(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	os.Exit(m.Run())
}

func leaveOutExamples() error {
	const name = "test.skip"
	skip := "^Example"
	if others := flag.Lookup(name).Value.String(); others != "" {
		skip += "|" + others
	}
	return flag.Set(name, skip)
}
