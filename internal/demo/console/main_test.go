package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/incursa/watermill-outbox/internal/demo/stagetest"
	"github.com/incursa/watermill-outbox/internal/skipped"
	"github.com/incursa/watermill-outbox/internal/testbrowser"
)

func TestMain(m *testing.M) {
	code := m.Run()
	for _, err := range []error{skipped.Report(), goleak.Find()} {
		if err != nil && code == 0 {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// start runs the program, and returns the address of its console.
func start(t *testing.T) string {
	t.Helper()
	t.Setenv("TMPDIR", t.TempDir())
	ctx, cancel := context.WithCancel(context.Background())
	says, out := io.Pipe()
	ended := make(chan error, 1)
	go func() { ended <- show(ctx, "127.0.0.1:0", time.Second, out) }()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-ended)
		require.NoError(t, says.Close())
		stagetest.RequireEmpty(t, os.TempDir())
	})
	line := make([]byte, 200)
	n, err := says.Read(line)
	require.NoError(t, err)
	return strings.TrimSuffix(strings.Fields(string(line[:n]))[4], ".")
}

func TestBadInput(t *testing.T) {
	for _, arg := range []string{"-what", "what"} {
		stagetest.RequireRefused(t, run, 2, arg, arg)
	}
}

// The pictures of docs/console.md are saved by OUTBOX_TEST_PICTURES=FOLDER.
func TestLong_EveryPageHasItsPicture(t *testing.T) {
	b := testbrowser.Start(t)
	address := start(t)
	folder := os.Getenv("OUTBOX_TEST_PICTURES")
	if folder == "" {
		folder = t.TempDir()
	}
	b.Window(1200, 720, false)
	b.Open(address)
	b.Until(`document.querySelectorAll("#stores .spark").length == 4 && document.querySelector("#stores .mark.bad")`)
	shop := address + "s/bookshop/"
	require.Eventually(t, func() bool { // the page does not change by itself
		b.Open(shop + "dead")
		return b.Eval(`document.querySelectorAll("#groups tbody tr").length >= 5`) == true
	}, time.Minute, 500*time.Millisecond)
	b.Open(shop + "streams")
	b.Until(`document.querySelectorAll("#streams button").length > 0`)
	b.Open(shop + "log")
	b.Until(`document.querySelector("#log-groups a.bad")`)

	b.Open(shop)
	b.Until(`document.querySelector("#charts .line").points.numberOfItems >= 25`)

	for _, p := range []struct{ name, path string }{
		{"stores", ""}, {"topics", "s/bookshop/"}, {"topic", "s/bookshop/topic?name=orders.placed"}, {"search", "s/bookshop/search?topic=mail.confirmation"},
		{"dead", "s/bookshop/dead"}, {"confirm", "s/bookshop/act?do=requeue&error=no+such+mailbox"}, {"streams", "s/bookshop/streams"},
		{"joins", "s/bookshop/joins"}, {"log", "s/bookshop/log"}, {"inbox", "s/bookshop/inbox"},
		{"workers", "s/bookshop/workers"}, {"schema", "s/bookshop/schema"},
	} {
		require.EqualValues(t, 200, b.Open(address+p.path), p.name)
		b.Until(`document.body.dataset.live != "busy"`)
		b.Picture(filepath.Join(folder, p.name+".png"))
	}
	b.Open(shop + "joins?key=import-2026-11")
	b.Click(`#joins tbody a`)
	b.Picture(filepath.Join(folder, "join.png"))
	b.Open(shop + "dead?topic=payments.captured")
	b.Click(`#found tbody a`)
	b.Click(`#contents .button`)
	require.Contains(t, b.Text("pre.payload"), "••••")
	b.Picture(filepath.Join(folder, "message.png"))
	b.Open(shop + "act?do=requeue&error=no+such+mailbox")
	b.Until(`document.querySelector("button.main")`)
	b.Click("button.main")
	b.Until(`document.body.dataset.live != "busy"`)
	b.Picture(filepath.Join(folder, "act.png"))
	b.Open(shop + "audit")
	b.Picture(filepath.Join(folder, "audit.png"))
	b.Open(address + "activity")
	b.Until(`document.querySelector("#main table tbody tr")`)
	b.Picture(filepath.Join(folder, "activity.png"))

	b.Window(1200, 720, true)
	b.Open(shop)
	b.Picture(filepath.Join(folder, "topics-dark.png"))
	b.Window(390, 760, false)
	b.Open(shop + "dead")
	b.Until(`document.body.dataset.live != "busy"`)
	require.Equal(t, true, b.Eval(`document.documentElement.scrollWidth <= innerWidth`), "a narrow page does not scroll sideways")
	b.Picture(filepath.Join(folder, "dead-narrow.png"))
	b.Quiet()
}
