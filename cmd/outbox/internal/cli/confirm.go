package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/schollz/progressbar/v3"

	"github.com/incursa/watermill-outbox/admin"
)

// confirm asks before something that cannot be undone. Without somebody to ask, only --yes will do.
func (a *app) confirm(ctx context.Context, format string, args ...any) error {
	if a.yes {
		return nil
	}
	question := escape(fmt.Sprintf(format, args...), false)
	if !a.Asks {
		return usage("%s There is nobody to ask: add --yes", question)
	}
	fmt.Fprintf(a.Err, "%s [y/N] ", question)
	answer, err := awaited(ctx, func() (string, error) { return bufio.NewReader(a.In).ReadString('\n') })
	if ctx.Err() != nil {
		fmt.Fprintln(a.Err) // what follows is not part of the question
	}
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("read the answer: %w", err)
	}
	if answer = strings.ToLower(strings.TrimSpace(answer)); answer != "y" && answer != "yes" {
		return usage("nothing was done")
	}
	return nil
}

// A progress shows how long work goes on: a bar on a terminal, a line of JSON for each batch, or nothing.
type progress struct {
	app *app
	bar *progressbar.ProgressBar
}

// begin shows work that will look at so many, or an unknown number if total is -1.
func (a *app) begin(what string, total int) *progress {
	p := &progress{app: a}
	if a.Shows && !a.render.json {
		p.bar = progressbar.NewOptions(total, progressbar.OptionSetWriter(a.Err), progressbar.OptionSetDescription(what),
			progressbar.OptionShowCount(), progressbar.OptionSetPredictTime(total > 0), progressbar.OptionClearOnFinish(), progressbar.OptionSetWidth(30),
			progressbar.OptionSetSpinnerChangeInterval(0)) // it turns with the batches: the goroutine that turns it by the clock races with them
	}
	return p
}

// A batch is a line of progress.
type batch struct {
	Examined int    `json:"examined"`
	Matched  int    `json:"matched"`
	Done     int    `json:"done"`
	Until    string `json:"until,omitempty"`
	Finished bool   `json:"finished"`
}

func newBatch(r admin.Result, finished bool) batch {
	return batch{r.Examined, r.Matched, r.Done, moment(r.Until), finished}
}

func (p *progress) advance(r admin.Result) {
	if p.bar != nil {
		_ = p.bar.Set(r.Matched) // a bar that cannot be drawn is no reason to stop
	}
	if p.app.render.json {
		_ = p.app.render.line(newBatch(r, false)) // the last line reports the error
	}
}

func (p *progress) end() {
	if p.bar != nil {
		_ = p.bar.Finish() // as above
	}
}

// readAll reads a file, or the input if its name is "-".
func (a *app) readAll(ctx context.Context, what, name string) (text []byte, err error) {
	if name == "-" {
		text, err = awaited(ctx, func() ([]byte, error) { return io.ReadAll(a.In) })
	} else {
		text, err = os.ReadFile(name)
	}
	if err != nil && ctx.Err() == nil {
		return nil, usage("%s cannot be read: %v", what, err)
	}
	return text, err
}

// awaited waits for what is read only as long as ctx lasts: nothing else ends a read from a terminal.
func awaited[T any](ctx context.Context, read func() (T, error)) (T, error) {
	type result struct {
		value T
		err   error
	}
	done := make(chan result, 1)
	go func() {
		value, err := read()
		done <- result{value, err}
	}()
	select {
	case r := <-done:
		return r.value, r.err
	case <-ctx.Done():
		var none T
		return none, ctx.Err()
	}
}
