package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"
)

// A process is a dispatcher as seen by who started it.
type process struct {
	name  string
	cmd   *exec.Cmd
	stdin io.Closer
	news  chan news
	ended chan struct{} // closed after the last news
	err   error         // how it ended; read it after ended
}

// startDispatcher starts a dispatcher, which is killed when ctx ends.
func startDispatcher(ctx context.Context, name string, todo job, errOut io.Writer) (*process, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, program, dispatcherFlag)
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
	p := &process{name: name, cmd: cmd, stdin: stdin, news: make(chan news), ended: make(chan struct{})}
	go p.listen(stdout)
	if err := json.NewEncoder(stdin).Encode(todo); err != nil {
		p.kill()
		return nil, fmt.Errorf("tell %s its job: %w", name, err)
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

// next waits for news. That the process has ended is an error.
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

// kill ends the process as an outage would, and waits for its end. What it could still have said is not heard.
func (p *process) kill() {
	_ = p.cmd.Process.Kill() // fails only if it has ended already
	p.wait()
}

// stop lets the process finish what it does.
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
