package suite

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"

	_ "github.com/incursa/watermill-outbox/internal/conformance/drivers" // of all databases
	"github.com/incursa/watermill-outbox/internal/skipped"
)

// Main is for each TestMain. After what ends the run it prints the list of what did not run, and fails if a goroutine is left over.
func Main(m *testing.M, ends ...func() error) {
	fewerChecks()
	code := m.Run()
	for _, end := range append(ends, skipped.Report, leftOver) {
		if err := end(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = max(code, 1)
		}
	}
	os.Exit(code)
}

func leftOver() error { return goleak.Find() }

// fewerChecks lets each property be checked 10 times, with a database, and not 100; -rapid.checks says otherwise.
func fewerChecks() {
	flag.Parse()
	if flag.Lookup("rapid.checks") == nil {
		return // the package checks none
	}
	chosen := false
	flag.Visit(func(f *flag.Flag) { chosen = chosen || f.Name == "rapid.checks" })
	if chosen {
		return
	}
	if err := errors.Join(flag.Set("rapid.checks", "10"), flag.Set("rapid.nofailfile", "true")); err != nil {
		panic(err) // the flags have other names
	}
}
