package suite

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/incursa/watermill-outbox/internal/skipped"
	"github.com/incursa/watermill-outbox/internal/testdb"
)

// A Capability is what a test needs of a server beyond plain SQL. Whether the server has it is found out by a probe,
// once a run; nothing is assumed from a name.
type Capability struct {
	name string

	// probe returns what the server lacks, empty if nothing. An error counts as lacking it.
	probe func(ctx context.Context, db *testdb.DB) (lacks string, err error)
}

// NewCapability is one that a test of its own package asks for.
func NewCapability(name string, probe func(ctx context.Context, db *testdb.DB) (lacks string, err error)) *Capability {
	return &Capability{name, probe}
}

const probeTimeout = 20 * time.Second

// Needs skips the test where the server lacks a capability, and remembers that it did.
func (f *Fixture) Needs(capabilities ...*Capability) {
	f.T.Helper()
	Need(f.T, f.DB, capabilities...)
}

// Need is Needs for a test without a fixture of this package.
func Need(t *testing.T, db *testdb.DB, capabilities ...*Capability) {
	t.Helper()
	for _, c := range capabilities {
		if why := Probes.Ask(c, db); why != "" {
			skip(t, c.name, why)
		}
	}
}

// Lacks answers what the server lacks, for a test that does without a part of it. The list at the end has that too.
func (f *Fixture) Lacks(c *Capability) (why string) {
	f.T.Helper()
	return Lacks(f.T, f.DB, c)
}

// Lacks is that for a test without a fixture of this package.
func Lacks(t testing.TB, db *testdb.DB, c *Capability) (why string) {
	t.Helper()
	if why = Probes.Ask(c, db); why != "" {
		skipped.Add(t.Name()+" (a part)", c.name, why)
	}
	return why
}

// Skip leaves a test out, with the reason in the list at the end of the run.
func (f *Fixture) Skip(needed, why string) {
	f.T.Helper()
	skip(f.T, needed, why)
}

func skip(t *testing.T, needed, why string) {
	t.Helper()
	skipped.Add(t.Name(), needed, why)
	t.Skipf("needs %s: %s", needed, why)
}

// Probes remembers answers, by capability and backend.
var Probes answers

type answers struct {
	mu    sync.Mutex
	known map[question]*answer
}

type question struct{ capability, backend string }

type answer struct {
	once sync.Once
	why  string
}

// Ask returns what a database lacks, empty if nothing.
func (a *answers) Ask(c *Capability, db *testdb.DB) (why string) {
	a.mu.Lock()
	if a.known == nil {
		a.known = map[question]*answer{}
	}
	q := question{c.name, db.Name}
	known, ok := a.known[q]
	if !ok {
		known = &answer{}
		a.known[q] = known
	}
	a.mu.Unlock()
	known.once.Do(func() {
		ctx, cancel := context.WithTimeout(context.Background(), probeTimeout)
		defer cancel()
		lacks, err := c.probe(ctx, db)
		if err != nil {
			lacks = fmt.Sprintf("the probe failed: %v", err)
		}
		known.why = lacks
	})
	return known.why
}
