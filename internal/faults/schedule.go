package faults

import (
	"context"
	"fmt"
	"hash/fnv"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// A Schedule chooses faults by a seed: what happens to the third statement of the hundredth operation is a function of these
// numbers, whatever else is going on. Statements of no operation, such as those of a Subscriber, are numbered by pool.
type Schedule struct {
	backend string
	config  ScheduleConfig

	stop    chan struct{}
	stopped sync.Once

	mu       sync.Mutex
	injected map[Kind]int
}

// ScheduleConfig configures a Schedule.
type ScheduleConfig struct {
	Seed uint64

	// Rate is the part of the statements of operations that meet a fault, and Beside that of all others. What ends a
	// transaction meets three times as many.
	Rate, Beside float64

	// Hang is the longest that anything hangs in an operation; a statement of none hangs for HangBeside.
	Hang, HangBeside time.Duration

	// Delay is the longest delay.
	Delay time.Duration

	// Broken is called with errors that a driver should not return. Defaults to nothing.
	Broken func(error)
}

// NewSchedule returns a schedule for a backend of testdb.
func NewSchedule(backend string, config ScheduleConfig) *Schedule {
	return &Schedule{
		backend: backend, config: config, stop: make(chan struct{}), injected: map[Kind]int{},
	}
}

// Stop ends all faults, those that hang too.
func (s *Schedule) Stop() { s.stopped.Do(func() { close(s.stop) }) }

// Hooks are for one pool. Pools with different names have different faults.
func (s *Schedule) Hooks(pool string) Hooks {
	hash := fnv.New64a()
	_, _ = hash.Write([]byte(pool)) // never fails
	beside, numbered := hash.Sum64(), &atomic.Uint64{}
	return Hooks{
		Release: s.stop,
		Broken:  s.config.Broken,
		Fault: func(ctx context.Context, statement Statement) Fault {
			select {
			case <-s.stop:
				return Fault{}
			default:
			}
			stream, number, rate, hang := beside, numbered, s.config.Beside, s.config.HangBeside
			if op, ok := ctx.Value(operationKey{}).(*scheduled); ok {
				stream, number, rate, hang = op.index, &op.statements, s.config.Rate, s.config.Hang
			}
			fault := s.draw(rand.New(rand.NewPCG(s.config.Seed^stream*0x9e3779b97f4a7c15, number.Add(1))), statement, rate, hang)
			s.count(fault.Kind)
			return fault
		},
	}
}

type operationKey struct{}

type scheduled struct {
	index      uint64
	statements atomic.Uint64
}

// Operation numbers the statements under the context that it returns by themselves, as those of an operation.
func Operation(ctx context.Context, index uint64) context.Context {
	return context.WithValue(ctx, operationKey{}, &scheduled{index: index})
}

// weights are how often each kind is chosen. What hangs costs the time of a whole test, and so is rare.
var weights = [numberKind]int{Delay: 16, Hang: 2, HangAfter: 2, Deaf: 1, BadConn: 12, Cut: 18, CutAfter: 18, CutWithin: 12, Refuse: 24, End: 8}

func (s *Schedule) draw(random *rand.Rand, statement Statement, rate float64, hang time.Duration) Fault {
	ends := statement.Text == Commit || statement.Text == Rollback
	if ends {
		rate *= 3
	}
	if random.Float64() >= rate {
		return Fault{}
	}
	f := Fault{Kind: choose(random), Abort: aborts[s.backend]}
	if strings.HasPrefix(statement.Text, Rollback) && f.Kind == Refuse {
		f.Kind = Cut // no database refuses to roll back
	}
	switch f.Kind {
	case Delay:
		f.For = time.Duration(1 + random.Int64N(int64(s.config.Delay)))
	case Hang, HangAfter, Deaf:
		f.For = time.Duration(1 + random.Int64N(int64(hang)))
	case Refuse:
		f.Err = pick(random, refusals[s.backend])
	case End:
		f.Err = pick(random, endings[s.backend])
	}
	return f
}

func choose(random *rand.Rand) Kind {
	total := 0
	for _, w := range weights {
		total += w
	}
	n := random.IntN(total)
	for kind, w := range weights {
		if n -= w; n < 0 {
			return Kind(kind)
		}
	}
	return None
}

func pick(random *rand.Rand, list []*Error) *Error { return list[random.IntN(len(list))] }

func (s *Schedule) count(kind Kind) {
	if kind == None {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.injected[kind]++
}

// Injected is how many faults there were, and of which kinds.
func (s *Schedule) Injected() (total int, kinds string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var list []string
	for _, kind := range slices.Sorted(maps.Keys(s.injected)) {
		total += s.injected[kind]
		list = append(list, fmt.Sprintf("%v %d", kind, s.injected[kind]))
	}
	return total, strings.Join(list, ", ")
}
