package stage

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"
)

// silence is how long a process may have no news before the story is given up.
const silence = time.Minute

// A Process is a program's other self, started again to be killed, as seen by who started it. It reads its job as one line of
// JSON, tells news on its output, a line each, and ends when its input does, so that it never outlives who started it.
type Process[News any] struct {
	Name string

	cmd   *exec.Cmd
	stdin io.Closer
	news  chan News
	ended chan struct{} // closed after the last news
	err   error         // how it ended; read it after ended
}

// Start starts this program again with a flag and a job. It is killed when ctx ends.
func Start[News any](ctx context.Context, name, flag string, job any, errOut io.Writer) (*Process[News], error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, program, flag)
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
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	p := &Process[News]{Name: name, cmd: cmd, stdin: stdin, news: make(chan News), ended: make(chan struct{})}
	go p.listen(stdout)
	if err := json.NewEncoder(stdin).Encode(job); err != nil {
		p.Kill()
		return nil, fmt.Errorf("tell %s its job: %w", name, err)
	}
	return p, nil
}

func (p *Process[News]) listen(stdout io.Reader) {
	defer close(p.ended)
	decoder := json.NewDecoder(stdout)
	for {
		var n News
		if err := decoder.Decode(&n); err != nil {
			break // its end; a half line if it was killed
		}
		p.news <- n
	}
	close(p.news)
	p.err = p.cmd.Wait()
}

// PID is the id of the process.
func (p *Process[News]) PID() int { return p.cmd.Process.Pid }

// Next waits for news. That the process has ended is an error.
func (p *Process[News]) Next(ctx context.Context) (n News, err error) {
	timer := time.NewTimer(silence)
	defer timer.Stop()
	select {
	case n, open := <-p.news:
		if ctx.Err() != nil {
			return n, ctx.Err() // which is why it ended, if it did
		}
		if !open {
			<-p.ended
			return n, fmt.Errorf("%s ended by itself: %v", p.Name, p.cmd.ProcessState)
		}
		return n, nil
	case <-timer.C:
		return n, fmt.Errorf("%s has had no news for %v", p.Name, silence)
	case <-ctx.Done():
		return n, ctx.Err()
	}
}

// Kill ends the process as an outage would, and waits for its end. What it could still have said is not heard.
func (p *Process[News]) Kill() {
	_ = p.cmd.Process.Kill() // fails only if it has ended already
	p.wait()
}

// Stop lets the process finish what it does.
func (p *Process[News]) Stop() error {
	if err := p.stdin.Close(); err != nil {
		return fmt.Errorf("stop %s: %w", p.Name, err)
	}
	p.wait()
	if p.err != nil {
		return fmt.Errorf("stop %s: %w", p.Name, p.err)
	}
	return nil
}

func (p *Process[News]) wait() {
	for range p.news {
		continue
	}
	<-p.ended
}
