package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync"

	"github.com/incursa/watermill-outbox/internal/demo/stage"
)

// A worker is a process of its own, this program started again with workerFlag. It reads its job as one line of JSON,
// tells news on its output, a line each, and ends when its input does, so that it never outlives who started it.
const workerFlag = "-worker"

// News of a worker.
type news struct {
	Event   string // what became of a message, or one of the others below
	Name    string // of the message
	Attempt int
	Flaky   bool
	Reason  string
	Count   int
}

// What becomes of a message in a handler.
const (
	delivered = "delivered"
	failed    = "failed"
	refused   = "refused"
	hangs     = "hangs"
)

// Other news.
const (
	settled  = "settled"   // outcomes are in the table, Count of them acks
	tookOver = "took over" // Count messages whose lease had ended
)

// workerMain is the life of a worker process.
func workerMain(in io.Reader, out, errOut io.Writer) int {
	signal.Ignore(os.Interrupt) // a Ctrl-C reaches both processes; the one that started this one decides
	w := &worker{report: reporter(out)}
	if err := w.run(bufio.NewReader(in)); err != nil {
		fmt.Fprintf(errOut, "%s: %v\n", w.Name, err)
		return 1
	}
	return 0
}

func (w *worker) run(in *bufio.Reader) (err error) {
	line, err := in.ReadBytes('\n')
	if err != nil {
		return fmt.Errorf("read the job: %w", err)
	}
	if err := json.Unmarshal(line, &w.job); err != nil {
		return fmt.Errorf("read the job: %w", err)
	}
	if w.HangAfter != never {
		w.turns = make(chan int, w.HangAfter+1)
		for n := range cap(w.turns) {
			w.turns <- n + 1
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if w.db, err = stage.Open(ctx, w.DSN, w.Prefix); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.db.Close()) }()
	router, subscriber, err := w.router()
	if err != nil {
		return err
	}
	stopped := make(chan error, 1)
	go func() {
		_, _ = io.Copy(io.Discard, in) // its end is what counts, however it comes
		<-router.Running()
		stopped <- router.Close()
	}()
	if err := router.Run(ctx); err != nil {
		return err
	}
	return errors.Join(<-stopped, subscriber.Close())
}

// reporter writes news a line each, whoever calls it.
func reporter(out io.Writer) func(news) {
	var mu sync.Mutex
	encoder := json.NewEncoder(out)
	return func(n news) {
		mu.Lock()
		defer mu.Unlock()
		_ = encoder.Encode(n) // nobody to tell: who started this process is gone, and stdin says so
	}
}

// startWorker starts a worker, which is killed when ctx ends.
func startWorker(ctx context.Context, j job, errOut io.Writer) (*stage.Process[news], error) {
	return stage.Start[news](ctx, j.Name, workerFlag, j, errOut)
}
