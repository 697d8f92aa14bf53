package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	outbox "github.com/incursa/watermill-outbox"
	wakepgx "github.com/incursa/watermill-outbox/wake/pgx"
)

// The publisher of the figure latency is a process of its own: this program, started again with publisherFlag. It reads
// its job as JSON and prints, for each message, the UUID and the time at which the commit had returned.
const publisherFlag = "-publisher"

type publisherJob struct {
	Backend, DSN, Prefix string
	Bare, Notify         bool
	Messages, Payload    int
	Pause                time.Duration
}

// startPublisher runs a publisher to its end and returns the time of each commit, by UUID.
func startPublisher(ctx context.Context, job publisherJob) (map[string]time.Time, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this program: %w", err)
	}
	text, err := json.Marshal(job)
	if err != nil {
		return nil, err
	}
	var out, errOut bytes.Buffer
	command := exec.CommandContext(ctx, self, publisherFlag)
	command.Stdin, command.Stdout, command.Stderr = bytes.NewReader(text), &out, &errOut
	if err := command.Run(); err != nil {
		return nil, fmt.Errorf("the publishing process: %w: %s", err, strings.TrimSpace(errOut.String()))
	}
	committed := map[string]time.Time{}
	lines := bufio.NewScanner(&out)
	for lines.Scan() {
		uuid, at, _ := strings.Cut(lines.Text(), " ")
		nanoseconds, err := strconv.ParseInt(at, 10, 64)
		if err != nil {
			return nil, fmt.Errorf("read what the publishing process says: %w", err)
		}
		committed[uuid] = time.Unix(0, nanoseconds)
	}
	return committed, lines.Err()
}

// publisherMain is the life of the process. It returns the exit code.
func publisherMain(in io.Reader, out, errOut io.Writer) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := publishJob(ctx, in, out); err != nil {
		fmt.Fprintln(errOut, err)
		return 1
	}
	return 0
}

func publishJob(ctx context.Context, in io.Reader, out io.Writer) (err error) {
	var job publisherJob
	if err := json.NewDecoder(in).Decode(&job); err != nil {
		return fmt.Errorf("read the job: %w", err)
	}
	table, err := openTable(ctx, job.Backend, job.DSN, job.Prefix)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, table.Close()) }()
	publish, stop, err := job.publisher(&bench{table: table, payload: newPayload(job.Payload)})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()
	buffered := bufio.NewWriter(out)
	for range job.Messages {
		// Uneven pauses, so that publishing and polling do not fall into step.
		select {
		case <-time.After(job.Pause/2 + rand.N(job.Pause)):
		case <-ctx.Done():
			return ctx.Err()
		}
		uuid := watermill.NewUUID()
		if err := publish(ctx, uuid); err != nil {
			return err
		}
		fmt.Fprintln(buffered, uuid, time.Now().UnixNano())
	}
	return buffered.Flush()
}

// publisher returns what publishes one message, on the product's side together with what wakes the other process.
func (job publisherJob) publisher(b *bench) (publish func(ctx context.Context, uuid string) error, stop func() error, err error) {
	nothing := func() error { return nil }
	if job.Bare {
		inserts, err := b.inserts(1)
		if err != nil {
			return nil, nil, err
		}
		return func(ctx context.Context, uuid string) error {
			r, err := b.newRow(topicName(0))
			if err != nil {
				return err
			}
			r.uuid = uuid
			_, err = b.ExecContext(ctx, inserts[0].text, inserts[0].arguments([]row{r})...)
			return err
		}, nothing, nil
	}
	publisher, err := outbox.NewPublisher(b.DB, outbox.PublisherConfig{Dialect: b.dialect, Table: b.tableName()}, nil)
	if err != nil {
		return nil, nil, err
	}
	stop = nothing
	if job.Notify {
		notifier, err := wakepgx.NewNotifier(b.DB, wakepgx.NotifierConfig{Channel: b.prefix}, nil)
		if err != nil {
			return nil, nil, err
		}
		stop = notifier.Close
	}
	return func(ctx context.Context, uuid string) error {
		return publisher.Publish(topicName(0), message.NewMessageWithContext(ctx, uuid, b.payload))
	}, stop, nil
}
