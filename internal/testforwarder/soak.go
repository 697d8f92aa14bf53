package testforwarder

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/internal/testoutbox"
	"github.com/incursa/watermill-outbox/internal/testprocess"
)

// Plan is the size of a Soak.
type Plan struct {
	Streams, Each           int // how many messages of each
	Forwarders, Cuts, Kills int
	Lease                   time.Duration
	Batch                   int  // small enough that much is left to do after each
	Strict                  bool // no lease may expire but those of the killed; on a busy machine a short one can
}

// NewPlan is what takes seconds, and full where OUTBOX_TEST_STREAMS says so.
func NewPlan() Plan {
	if os.Getenv("OUTBOX_TEST_STREAMS") == "full" {
		return Plan{Streams: 500, Each: 100, Forwarders: 2, Cuts: 5, Kills: 10, Lease: 10 * time.Second, Batch: 200, Strict: true}
	}
	return Plan{Streams: 50, Each: 60, Forwarders: 2, Cuts: 5, Kills: 2, Lease: 5 * time.Second, Batch: 50}
}

// A Soak forwards messages of streams by several processes, to a broker that is cut off now and then, and kills processes when
// the broker has confirmed what they have not acknowledged. Its seed says when.
type Soak struct {
	*testoutbox.Outbox
	Plan
	Seed uint64
	Job  Job
	Cut  func() bool // cuts the connections to the broker, unless it is still about to

	random     *rand.Rand
	lines      chan testprocess.Line
	forwarders map[*testprocess.Process]*progress
	killed     *testprocess.Process // that has not ended yet
	steps      []step
	total      int
	settled    int

	held []int // by kill, how many messages were confirmed and not acknowledged
	cuts int
}

type progress struct{ confirmed, settled int }

// A step is taken when so many messages are settled.
type step struct {
	at   int
	kill bool
}

// Run publishes the messages, and returns when all are forwarded.
func (s *Soak) Run() {
	s.T.Helper()
	s.random, s.lines, s.forwarders = rand.New(rand.NewPCG(s.Seed, 0)), make(chan testprocess.Line, 1000), map[*testprocess.Process]*progress{}
	s.Job.Lease, s.Job.Batch = s.Lease, s.Batch
	s.publish(0, s.Each)
	for range s.Cuts {
		s.steps = append(s.steps, step{s.random.IntN(s.total * 9 / 10), false})
	}
	for range s.Kills {
		s.steps = append(s.steps, step{s.random.IntN(s.total * 9 / 10), true})
	}
	slices.SortFunc(s.steps, func(a, b step) int { return a.at - b.at })
	for range s.Forwarders {
		s.start()
	}
	s.work()
	for p := range s.forwarders {
		s.NoError(p.Stdin.Close())
	}
	for len(s.forwarders) > 0 {
		line := s.next()
		if line.Text == "" {
			s.True(line.From.State().Success(), "a forwarder's process ended with %v", line.From.State())
			delete(s.forwarders, line.From)
		}
	}
}

// publish adds messages to each stream, in turn.
func (s *Soak) publish(from, to int) {
	s.T.Helper()
	for n := from; n < to; n++ {
		messages := make([]outbox.Message, s.Streams)
		for i := range messages {
			stream := fmt.Sprint("stream ", i)
			messages[i] = outbox.Message{UUID: fmt.Sprint(stream, " message ", n), Topic: s.Job.Topic, StreamKey: stream, Payload: []byte(strconv.Itoa(n))}
		}
		_, err := s.Outbox.Outbox.Enqueue(s.T.Context(), s.DB.DB, messages...)
		s.NoError(err)
		s.total += len(messages)
	}
}

func (s *Soak) start() {
	s.T.Helper()
	s.forwarders[s.Job.Start(s.T, s.lines)] = &progress{}
}

func (s *Soak) work() {
	s.T.Helper()
	look := time.NewTicker(100 * time.Millisecond)
	defer look.Stop()
	for news := time.Now(); ; {
		select {
		case line := <-s.lines:
			news = time.Now()
			if s.hear(line) == Confirmed && len(s.steps) > 0 && s.settled >= s.steps[0].at {
				s.take(line.From)
			}
		case <-look.C:
			if s.Count(outbox.Done) < s.total {
				s.Less(time.Since(news), testoutbox.Patience, "no message has been forwarded for too long")
				continue
			}
			if len(s.steps) == 0 {
				return
			}
			more := max(1, s.Each/10) // they were quicker than the cuts and kills: there is more to do
			s.publish(s.Each, s.Each+more)
			s.Each += more
			news = time.Now()
		}
	}
}

// take takes the next step, now that a forwarder has got something through.
func (s *Soak) take(p *testprocess.Process) {
	s.T.Helper()
	if !s.steps[0].kill {
		if s.Cut() {
			s.cuts++
			s.steps = s.steps[1:]
		}
		return
	}
	if held := s.kill(p); held > 0 {
		s.held = append(s.held, held)
		s.steps = s.steps[1:]
	}
}

// kill kills a forwarder, starts another, and answers how many messages it had not acknowledged that the broker had confirmed.
func (s *Soak) kill(p *testprocess.Process) (held int) {
	s.T.Helper()
	of := s.forwarders[p]
	s.killed = p
	s.NoError(p.Kill())
	for s.killed != nil {
		s.hear(s.next())
	}
	s.start()
	return of.confirmed - of.settled
}

// hear is for what a forwarder tells, and answers what it is.
func (s *Soak) hear(line testprocess.Line) (event string) {
	s.T.Helper()
	if line.Text == "" {
		s.Same(s.killed, line.From, "a forwarder's process has ended by itself: %v", line.From.State())
		delete(s.forwarders, line.From)
		s.killed = nil
		return ""
	}
	event, number, _ := strings.Cut(line.Text, " ")
	n, err := strconv.Atoi(number)
	s.NoError(err, line.Text)
	switch event {
	case Confirmed:
		s.forwarders[line.From].confirmed += n
	case Settled:
		s.forwarders[line.From].settled += n
		s.settled += n
	}
	return event
}

func (s *Soak) next() testprocess.Line {
	s.T.Helper()
	timer := time.NewTimer(testoutbox.Patience)
	defer timer.Stop()
	select {
	case line := <-s.lines:
		return line
	case <-timer.C:
		s.FailNow("the forwarders' processes are silent")
		panic("not reached")
	}
}

// Check is for what has arrived.
func (s *Soak) Check(arrived *Order, took time.Duration) {
	s.T.Helper()
	for _, problem := range arrived.Problems {
		s.T.Error(problem)
	}
	s.Zero(arrived.Inversions, "inversions")
	s.Zero(arrived.Disorder, "copies out of order")
	for i := range s.Streams {
		s.Equal(s.Each, arrived.Arrived(fmt.Sprint("stream ", i)), "messages of stream %d", i)
	}
	s.Zero(s.Count(outbox.Failed))
	if s.Strict {
		s.LessOrEqual(s.Attempts(), s.Kills, "a kill spends an attempt, and a cut none")
	}
	s.T.Logf("seed %d: %d messages of %d streams, %d forwarders; %d cuts, %d kills of one that had %v messages confirmed and not acknowledged: "+
		"inversions 0, lost 0, %d arrived again, at most %d attempts; %v", s.Seed, s.total, s.Streams, s.Forwarders, s.cuts, len(s.held), s.held,
		arrived.Duplicates, s.Attempts(), took.Round(time.Millisecond))
}
