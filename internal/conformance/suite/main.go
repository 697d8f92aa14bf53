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

// Main is for each TestMain. It ends the run with the list of what did not run, and fails it if a goroutine is left over.
func Main(m *testing.M) {
	fewerChecks()
	code := m.Run()
	if err := skipped.Report(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, "goroutines are left over:", err)
			code = 1
		}
	}
	os.Exit(code)
}

// fewerChecks lets each property be checked 30 times, with a database, and not 100; -rapid.checks says otherwise.
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
	if err := errors.Join(flag.Set("rapid.checks", "30"), flag.Set("rapid.nofailfile", "true")); err != nil {
		panic(err) // the flags have other names
	}
}
