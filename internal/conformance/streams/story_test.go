package streams_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
)

// A story is what handlers of several processes did. All append to one file, each line by one write: the order of the lines is
// that in which things happened, and a process that is killed leaves what it has written.
type story struct{ file *os.File }

// What a story tells of a message of a stream.
type storyEvent int

const (
	storyBegins   storyEvent = iota // a handler has it
	storySucceeds                   // the handler is done, and acks next
	storyFails                      // it nacks, and the message comes again
	storyGivesUp                    // it nacks, and the message has failed for good
	storyStops                      // its context has ended
	storySkips                      // somebody lets the stream go on behind a message that has failed for good
	storyIsKilled                   // the worker, with all that it handles
)

func (e storyEvent) String() string {
	return [...]string{"begins", "has done", "has failed", "gives up", "stops in the middle of", "skips", "is killed"}[e]
}

func openStory(path string) (*story, error) {
	file, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	return &story{file}, err
}

func (s *story) tell(worker int, event storyEvent, stream, n int) error {
	_, err := s.file.Write(fmt.Appendf(nil, "%d %d %d %d\n", worker, event, stream, n))
	return err
}

// A streamReader goes through a story and counts what must not happen.
//
// A message is handled from when it begins until it succeeds, fails or stops, or its worker is killed. It has ended when its
// handler has succeeded, when somebody skips it, or, where workers skip by themselves, when it has failed for good. An
// inversion is a message that begins before an earlier one of its stream has ended. What is acked and not yet in the table is
// lost with its worker, so that a stream may go back: but only over messages that this one worker began, and no other after it.
type streamReader struct {
	skips   bool // workers skip what fails for good
	lines   *bufio.Reader
	part    string // of a line
	killed  map[int]bool
	streams map[int]*streamRead
	handles map[int]int // how many messages by worker, at the moment

	together, inversions int // must not be
	problems             []string
	again                int // messages that had ended and came again after a kill
	lapsed               int // that came again though their worker was not killed: it had lost their lease
	farthest             int // most messages that a stream went back
	interrupted          int // handlers that were killed
}

// A streamRead is one stream as far as its story has been read.
type streamRead struct {
	in    int   // the worker that handles a message, or 0
	next  int   // the first message that has not ended
	begun []int // the worker that began each message last
	last  []string
}

func newStreamReader(story io.Reader, skips bool) *streamReader {
	return &streamReader{lines: bufio.NewReader(story), skips: skips,
		killed: map[int]bool{}, streams: map[int]*streamRead{}, handles: map[int]int{}}
}

// read goes on to the present end of the story.
func (r *streamReader) read() error {
	for {
		text, err := r.lines.ReadString('\n')
		if r.part += text; errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		var worker, stream, n int
		var event storyEvent
		if _, err := fmt.Sscan(r.part, &worker, &event, &stream, &n); err != nil || event < 0 || event > storyIsKilled {
			return fmt.Errorf("the line %q: %w", r.part, err)
		}
		r.part = ""
		r.happens(worker, event, stream, n)
	}
}

func (r *streamReader) happens(worker int, event storyEvent, stream, n int) {
	if event == storyIsKilled {
		r.kill(worker)
		return
	}
	s := r.streams[stream]
	if s == nil {
		s = &streamRead{}
		r.streams[stream] = s
	}
	const remembered = 12
	s.last = append(s.last[max(0, len(s.last)-remembered):], fmt.Sprintf("%d %v %d", worker, event, n))
	switch {
	case event == storySkips:
		s.next = max(s.next, n+1)
	case event == storyBegins:
		r.begin(s, worker, stream, n)
	case s.in != worker:
		r.problem(&r.together, s, "stream %d: worker %d %v message %d, which it has not", stream, worker, event, n)
	default:
		s.in = 0
		r.handles[worker]--
		if event == storySucceeds || event == storyGivesUp && r.skips {
			s.next = n + 1
		}
	}
}

func (r *streamReader) begin(s *streamRead, worker, stream, n int) {
	if s.in != 0 {
		r.problem(&r.together, s, "stream %d: worker %d begins message %d while %d handles one", stream, worker, n, s.in)
	}
	if n > s.next {
		r.problem(&r.inversions, s, "stream %d: worker %d begins message %d before %d has ended", stream, worker, n, s.next)
	}
	if n < s.next {
		r.goBack(s, stream, n)
	}
	for len(s.begun) <= n {
		s.begun = append(s.begun, worker)
	}
	r.handles[worker]++
	s.in, s.next, s.begun = worker, n, s.begun[:n+1]
	s.begun[n] = worker
}

// goBack is for a message that comes again after it has ended.
func (r *streamReader) goBack(s *streamRead, stream, n int) {
	whose := s.begun[n]
	for m, by := range s.begun[n:] {
		if by != whose {
			r.problem(&r.inversions, s, "stream %d: message %d comes again after worker %d began %d", stream, n, by, n+m)
			break
		}
	}
	if r.killed[whose] {
		r.again += s.next - n
	} else {
		r.lapsed += s.next - n
	}
	r.farthest = max(r.farthest, s.next-n)
}

func (r *streamReader) kill(worker int) {
	r.killed[worker] = true
	for _, s := range r.streams {
		if s.in == worker {
			s.in = 0
			r.interrupted++
		}
	}
	delete(r.handles, worker)
}

func (r *streamReader) problem(count *int, s *streamRead, format string, args ...any) {
	if *count++; len(r.problems) < 10 {
		r.problems = append(r.problems, fmt.Sprintf(format, args...)+fmt.Sprintf(", after %q", s.last))
	}
}
