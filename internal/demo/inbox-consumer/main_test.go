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

const balance = `3 payments booked, 3 parcels shipped; 1 was rolled back and came again, 1 was refused
received 17, handled 6, duplicates 9, effects doubled 0, lost 0
`

func requireStory(t *testing.T, args ...string) {
	t.Helper()
	var out, errOut bytes.Buffer
	code := inboxConsumer.Run(t.Context(), args, &out, &errOut)
	require.Zero(t, code, "%s%s", &out, &errOut)
	require.Empty(t, errOut.String())
	require.True(t, strings.HasSuffix(out.String(), "\n\n"+balance), out.String())
	for text, times := range map[string]int{
		"order-2 fails: the bank does not answer":                                                1,
		"order-3: its receipt over 10 EUR cannot be sent; the booking stands":                    1,
		"order-3 comes again: nothing is booked, and the inbox has its receipt over 10 EUR sent": 2,
		"order-1 is refused and put aside":                                                       1,
		" are booked":                                                                            3,
		"parcel-2 fails: there is no such address":                                               2,
		"parcel-2 has failed: there is no such address":                                          1,
		"1 parcel is requeued":                                                                   1,
		"parcel-2 is shipped to Nowhere":                                                         1,
	} {
		require.Equal(t, times, strings.Count(out.String(), text), "%q in:\n%s", text, &out)
	}
}

func TestStory(t *testing.T) { stagetest.OnEveryDatabase(t, requireStory) }

func TestBadInput(t *testing.T) { stagetest.RequireBadDSNsRefused(t, inboxConsumer.Run) }

// TestAnotherBalanceIsSeen: what is doubled or lost, and a delivery of which nobody knows, is an error.
func TestAnotherBalanceIsSeen(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	db, err := stage.Create(t.Context(), "", "inbox_consumer", tables)
	require.NoError(t, err)
	defer func() { require.NoError(t, db.Drop(t.Context())) }()
	var out bytes.Buffer
	a, err := newApp(t.Context(), db, stage.NewScreen(&out), watermill.NopLogger{})
	require.NoError(t, err)
	exec := func(statement string) {
		_, err := a.ExecContext(t.Context(), a.SQL(statement))
		require.NoError(t, err)
	}
	exec("INSERT INTO {payments} (message, amount) VALUES ('order-1', ''), ('order-1', ''), ('order-2', ''), ('order-3', '')")
	exec("INSERT INTO {shipments} (message, address) VALUES ('parcel-1', ''), ('parcel-2', '')")
	a.received.Store(6)
	require.ErrorContains(t, a.printBalance(t.Context(), 0), "once")
	require.Contains(t, out.String(), "received 6, handled 5, duplicates 0, effects doubled 1, lost 1\n")

	exec("DELETE FROM {payments}")
	exec("INSERT INTO {payments} (message, amount) VALUES ('order-1', ''), ('order-2', ''), ('order-3', '')")
	exec("INSERT INTO {shipments} (message, address) VALUES ('parcel-3', '')")
	require.NoError(t, a.printBalance(t.Context(), 0))
	require.ErrorContains(t, a.printBalance(t.Context(), 1), "what was received")
}

// TestInterrupt stops the program in the middle: nothing is left of it.
func TestInterrupt(t *testing.T) {
	for _, text := range []string{"order-2 fails", "parcel-2 fails"} {
		t.Run(text, func(t *testing.T) { stagetest.RequireInterruptible(t, inboxConsumer.Run, "inbox-consumer", text) })
	}
}
