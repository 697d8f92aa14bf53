package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"

	"github.com/incursa/watermill-outbox/internal/demo/stage"
	"github.com/incursa/watermill-outbox/stores"
)

// migrate installs the outbox in the database of every tenant, and the application's own table, which in earnest your own
// migrations do. A tenant that fails stops no other.
func migrate(ctx context.Context, provider stores.Provider, screen *stage.Screen, out io.Writer) error {
	present, _ := provider.Stores()
	screen.Say("%d databases found; the outbox is installed in each", len(present))
	report, err := stores.Migrate(ctx, provider, stores.MigrateConfig{OnProgress: progress(len(present), screen, out)})
	failed := report.Failed()
	if len(failed) == len(report) {
		return err
	}
	screen.Say("%d databases are ready, %d failed", len(report)-len(failed), len(failed))
	for _, m := range failed {
		screen.Say("    %s: %v", m.Store, m.Err)
	}
	for i, m := range report {
		if m.Err != nil {
			continue
		}
		if _, err := present[i].DB().ExecContext(ctx, createTables); err != nil {
			return fmt.Errorf("create the table of %s: %w", m.Store, err)
		}
	}
	return ctx.Err()
}

// progress draws a bar where somebody looks, and writes a line a database elsewhere.
func progress(total int, screen *stage.Screen, out io.Writer) func(stores.Progress) {
	file, ok := out.(*os.File)
	if !ok || !term.IsTerminal(int(file.Fd())) {
		return func(p stores.Progress) {
			outcome := "installed"
			if p.Last.Err != nil {
				outcome = "FAILED"
			}
			screen.Say("    %2d of %d  %s %s", p.Done, p.Total, p.Last.Store, outcome)
		}
	}
	bar := progressbar.NewOptions(total, progressbar.OptionSetWriter(out), progressbar.OptionSetDescription("installing"),
		progressbar.OptionShowCount(), progressbar.OptionFullWidth(), progressbar.OptionClearOnFinish())
	return func(stores.Progress) {
		if err := bar.Add(1); err != nil {
			screen.Say("%v", errors.Join(errors.New("the progress bar"), err))
		}
	}
}
