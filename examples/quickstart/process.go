package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"sync"
	"time"

	"github.com/incursa/watermill-outbox/examples/internal/stage"
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

// silence is how long a worker may have no news before the story is given up.
const silence = time.Minute

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

// A process is a worker as seen by who started it.
type process struct {
	name  string
	cmd   *exec.Cmd
	stdin io.Closer
	news  chan news
	ended chan struct{} // closed after the last news
	err   error         // how it ended; read it after ended
}

// startWorker starts a worker, which is killed when ctx ends.
func startWorker(ctx context.Context, j job, errOut io.Writer) (*process, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, program, workerFlag)
	cmd.Stderr = errOut
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", j.Name, err)
	}
	p := &process{name: j.Name, cmd: cmd, stdin: stdin, news: make(chan news), ended: make(chan struct{})}
	go p.listen(stdout)
	if err := json.NewEncoder(stdin).Encode(j); err != nil {
		p.kill()
		return nil, fmt.Errorf("tell %s its job: %w", j.Name, err)
	}
	return p, nil
}

func (p *process) listen(stdout io.Reader) {
	defer close(p.ended)
	decoder := json.NewDecoder(stdout)
	for {
		var n news
		if err := decoder.Decode(&n); err != nil {
			break // its end; a half line if it was killed
		}
		p.news <- n
	}
	close(p.news)
	p.err = p.cmd.Wait()
}

func (p *process) pid() int { return p.cmd.Process.Pid }

// next waits for news. That the worker has ended is an error.
func (p *process) next(ctx context.Context) (news, error) {
	timer := time.NewTimer(silence)
	defer timer.Stop()
	select {
	case n, open := <-p.news:
		if ctx.Err() != nil {
			return news{}, ctx.Err() // which is why it ended, if it did
		}
		if !open {
			<-p.ended
			return news{}, fmt.Errorf("%s ended by itself: %v", p.name, p.cmd.ProcessState)
		}
		return n, nil
	case <-timer.C:
		return news{}, fmt.Errorf("%s has had no news for %v", p.name, silence)
	case <-ctx.Done():
		return news{}, ctx.Err()
	}
}

// kill ends the worker as an outage would, and waits for its end. What it could still have said is not heard.
func (p *process) kill() {
	_ = p.cmd.Process.Kill() // fails only if it has ended already
	p.wait()
}

// stop lets the worker finish what it does.
func (p *process) stop() error {
	if err := p.stdin.Close(); err != nil {
		return fmt.Errorf("stop %s: %w", p.name, err)
	}
	p.wait()
	if p.err != nil {
		return fmt.Errorf("stop %s: %w", p.name, p.err)
	}
	return nil
}

func (p *process) wait() {
	for range p.news {
		continue
	}
	<-p.ended
}
