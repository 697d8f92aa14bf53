package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"runtime"
	"runtime/pprof"
	"slices"
	"time"

	outbox "github.com/incursa/watermill-outbox"
)

const (
	// poolSize is the most connections of the pool. Bare draining takes two, the Subscriber up to five, and publishing
	// one a publisher.
	poolSize = 64

	// mostPayload is how many bytes of payload a figure has in the table, at most, before -scale: of large messages it takes
	// fewer.
	mostPayload = 1 << 30
)

// A bench is a table and how it is measured.
type bench struct {
	*table
	amqp    string // the URL of a RabbitMQ
	kafka   string // the brokers of a Kafka; empty for a fake one
	payload []byte // of each message
	runs    int
	scale   float64
	profile string
	log     io.Writer

	noCheckpoint bool // this user may not
}

// newPayload returns bytes that no database can store as fewer.
func newPayload(size int) []byte {
	random := rand.New(rand.NewPCG(1, 2))
	payload := make([]byte, size)
	for i := range payload {
		payload[i] = byte(random.Uint32())
	}
	return payload
}

// count scales a number of messages.
func (b *bench) count(n int) int {
	return max(1, int(float64(min(n, mostPayload/len(b.payload)))*b.scale))
}

// duration scales a duration.
func (b *bench) duration(d time.Duration) time.Duration {
	return time.Duration(float64(d) * b.scale)
}

// A side is one of the two that are compared. It returns one value for each that it measures.
type side func(context.Context) ([]float64, error)

// compare runs both sides in turn, so that what else the machine does meets both, and returns the medians of each.
// Before each run, prepare makes the table what it was before all others.
func (b *bench) compare(ctx context.Context, prepare func(context.Context) error, bare, product side) (bares, products []float64, err error) {
	sides := []struct {
		name    string
		run     side
		results [][]float64
	}{{name: "bare", run: bare}, {name: "product", run: product}}
	for range b.runs {
		for i := range sides {
			s := &sides[i]
			if err := prepare(ctx); err != nil {
				return nil, nil, fmt.Errorf("prepare the table: %w", err)
			}
			runtime.GC()
			values, err := b.profiled(s.name == "product", func() ([]float64, error) { return s.run(ctx) })
			if err != nil {
				return nil, nil, fmt.Errorf("%s: %w", s.name, err)
			}
			s.results = append(s.results, values)
			fmt.Fprintf(b.log, "  %-8s %.4g\n", s.name, values)
		}
	}
	return medians(sides[0].results), medians(sides[1].results), nil
}

// profiled writes a CPU profile of a run of the product, over that of the run before.
func (b *bench) profiled(product bool, run func() ([]float64, error)) (values []float64, err error) {
	if !product || b.profile == "" {
		return run()
	}
	file, err := os.Create(b.profile)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	if err := pprof.StartCPUProfile(file); err != nil {
		return nil, err
	}
	defer pprof.StopCPUProfile()
	return run()
}

// fill makes the table hold n new messages and nothing else, over so many topics, with its statistics up to date.
// Where later is true, every hundredth is due in an hour.
func (b *bench) fill(ctx context.Context, n, topics int, later bool) error {
	if err := b.clear(ctx); err != nil {
		return err
	}
	if !b.noCheckpoint {
		if err := b.execute(ctx, "checkpoint"); err != nil {
			b.noCheckpoint = true
			fmt.Fprintf(b.log, "without a checkpoint before each run, so that they vary more: %v\n", err)
		}
	}
	if err := b.seed(ctx, 0, n, topics, later); err != nil {
		return err
	}
	return b.execute(ctx, "analyze")
}

// seedBatch is how many messages one statement adds: a server may want an end to its transactions.
const seedBatch = 100_000

// seed adds n messages, the first with the number from.
func (b *bench) seed(ctx context.Context, from, n, topics int, later bool) error {
	topicKeys := make([]int64, topics)
	for i := range topicKeys {
		topicKeys[i] = topicKey(fmt.Sprintf("bench-%d", i))
	}
	keys, err := b.keys(topicKeys)
	if err != nil {
		return err
	}
	for end := from + n; from < end; from += seedBatch {
		if err := b.execute(ctx, "seed", from, min(seedBatch, end-from), topics, later, b.payload, keys); err != nil {
			return err
		}
	}
	return nil
}

func topicName(n int) string { return fmt.Sprintf("bench-%d", n) }

// states counts the messages by their state.
func (b *bench) states(ctx context.Context) (map[outbox.Status]int, error) {
	states := map[outbox.Status]int{}
	err := b.query(ctx, "count", func(rows *sql.Rows) error {
		var status outbox.Status
		var count int
		err := rows.Scan(&status, &count)
		states[status] = count
		return err
	})
	return states, err
}

// medians are those of each value over all runs.
func medians(runs [][]float64) []float64 {
	middle := make([]float64, len(runs[0]))
	for i := range middle {
		var values []float64
		for _, run := range runs {
			values = append(values, run[i])
		}
		middle[i] = quantile(values, 0.5)
	}
	return middle
}

// quantile sorts values and returns the one below which the fraction q of them lies.
func quantile(values []float64, q float64) float64 {
	if len(values) == 0 {
		return 0
	}
	slices.Sort(values)
	return values[min(int(q*float64(len(values))), len(values)-1)]
}

func milliseconds(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e6 }
