package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/incursa/watermill-outbox/internal/demo/stage"
	"github.com/incursa/watermill-outbox/internal/demo/stagetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const outcomes = `etl       transformed what 3 of 3 extractions brought
report    assembled 4 of 5 sections, without report.section4: there are no figures for it
pipeline  published what 3 sources brought, after 2 of 2 checks
`

func requireStory(t *testing.T, args ...string) {
	t.Helper()
	var out, errOut bytes.Buffer
	code := fanIn.Run(t.Context(), args, &out, &errOut)
	require.Zero(t, code, "%s%s", &out, &errOut)
	require.Empty(t, errOut.String())
	require.True(t, strings.HasSuffix(out.String(), "\n"+outcomes), out.String())
	require.Contains(t, out.String(), "etl: extract.orders, attempt 2, is done")
	require.Contains(t, out.String(), "report: the join has failed, the report is assembled")
	require.Equal(t, 1, strings.Count(out.String(), "all is valid, it is published"))
}

func TestStory(t *testing.T) { stagetest.OnEveryDatabase(t, requireStory) }

func TestBadInput(t *testing.T) { stagetest.RequireBadDSNsRefused(t, fanIn.Run) }

// TestAnotherOutcomeIsSeen: a workflow that does not end as it has to is an error.
func TestAnotherOutcomeIsSeen(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	db, err := stage.Create(t.Context(), "", "fan_in", tables)
	require.NoError(t, err)
	defer func() { require.NoError(t, db.Drop(t.Context())) }()
	var out bytes.Buffer
	a, err := newApp(db, stage.NewScreen(&out), watermill.NopLogger{})
	require.NoError(t, err)
	w := a.report()
	w.handlers["report.section4"] = a.work // which succeeds
	require.NoError(t, a.run(t.Context(), []workflow{w}))
	require.ErrorContains(t, a.printOutcomes(t.Context(), []workflow{w}), "report should have ended as")
	require.Contains(t, out.String(), "assembled 5 of 5 sections, without \n")
}

// TestInterrupt stops the program in the middle: nothing is left of it.
func TestInterrupt(t *testing.T) {
	stagetest.RequireInterruptible(t, fanIn.Run, "fan-in", "etl: extract.orders fails")
}
