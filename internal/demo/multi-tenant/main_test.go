package main

import (
	"bytes"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/incursa/watermill-outbox/internal/demo/stage"
	"github.com/incursa/watermill-outbox/internal/demo/stagetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestLong_Story(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	var out, errOut bytes.Buffer
	require.Zero(t, run(t.Context(), nil, &out, &errOut), "%s%s", &out, &errOut)
	require.Empty(t, errOut.String())
	require.Equal(t, "tenants 13, published 473, delivered 473, lost 0", lastLine(out.String()), out.String())
	for _, want := range []string{
		"13 databases found", "12 databases are ready, 1 failed", "notes: migrate", "file is not a database",
		`there is no store with this key; check the tenant, or wait until it is discovered: "acmee"`,
		"of initech wait", "3 of 3 steps of the join have completed; its continuation is handled in the database of pied-piper",
		"hooli leaves while a handler is in the middle", "0 of its orders are on their way, and its connections are closed",
		"its breaker opens", "meanwhile an order of acme takes", "it answers again, and its 20 orders are shipped",
	} {
		require.Contains(t, out.String(), want)
	}
	stagetest.RequireEmpty(t, os.TempDir())
}

func TestBadInput(t *testing.T) {
	for _, arg := range []string{"-what", "what"} {
		stagetest.RequireRefused(t, run, 2, arg, arg)
	}
}

// An order that is missing, or shipped twice, and a message that is not done, end the story with an error.
func TestWhatIsWrongIsSeen(t *testing.T) {
	const ship = "INSERT INTO shipped (name, tenant) VALUES ('a', 'late'), ('b', 'late'); "
	for name, test := range map[string]struct{ statements, last, wantErr string }{
		"all is well":        {ship, "tenants 1, published 2, delivered 2, lost 0", ""},
		"one is missing":     {ship + "DELETE FROM shipped WHERE name = 'b'", "tenants 1, published 2, delivered 1, lost 1", "1 lost"},
		"one comes twice":    {ship + "INSERT INTO shipped (name, tenant) VALUES ('b', 'late')", "tenants 1, published 2, delivered 2, lost 0", "1 shipped again"},
		"one was another's":  {ship + "UPDATE shipped SET tenant = 'x' WHERE name = 'a'", "tenants 1, published 2, delivered 1, lost 1", "1 lost"},
		"one is in progress": {ship + "UPDATE outbox_state SET status = 1 WHERE seq = 1", "tenants 1, published 2, delivered 2, lost 0", "1 messages not done"},
	} {
		t.Run(name, func(t *testing.T) {
			ctx := t.Context()
			files := folder(t.TempDir())
			require.NoError(t, files.provision(ctx, "late"))
			shop, err := openShop(ctx, files, stage.NewScreen(io.Discard), watermill.NopLogger{})
			require.NoError(t, err)
			defer func() { require.NoError(t, shop.provider.Close()) }()
			require.NoError(t, shop.place(ctx, batch{tenant: "late", orders: 2}))
			shop.published["late"] = []string{"a", "b"}
			store, err := shop.router.Store("late")
			require.NoError(t, err)
			_, err = store.DB().ExecContext(ctx, "PRAGMA ignore_check_constraints = ON; UPDATE outbox_state SET status = 2; "+test.statements)
			require.NoError(t, err)
			result, err := shop.audit(ctx, files)
			require.NoError(t, err)
			var out bytes.Buffer
			if err = result.print(stage.NewScreen(&out)); test.wantErr == "" {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, test.wantErr)
			}
			require.Equal(t, test.last, lastLine(out.String()))
		})
	}
}

// TestInterrupt stops the program in the middle: nothing is left of it.
func TestInterrupt(t *testing.T) {
	stagetest.RequireInterruptible(t, run, "multi-tenant", "then the others place one each")
}

func lastLine(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return lines[len(lines)-1]
}
