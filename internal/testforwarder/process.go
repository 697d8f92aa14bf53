// Package testforwarder runs forwarders as processes that a test can kill, and looks at the order in which streams arrive.
package testforwarder

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/forwarder"
	"github.com/incursa/watermill-outbox/internal/testoutbox"
	"github.com/incursa/watermill-outbox/internal/testprocess"
)

// variable makes the test program a forwarder. Its value is the job.
const variable = "OUTBOX_TEST_FORWARDER"

// A Job is what a forwarder's process does.
type Job struct {
	Backend, Driver, DSN, Schema string

	Topic  string
	Broker string // where it is, as the publisher wants to know it
	Lease  time.Duration
	Batch  int
	Hang   bool // after the first confirmation, before the acknowledgement
}

// What the process tells, a line each, followed by how many messages it is.
const (
	Confirmed = "confirmed" // the broker has them, and they are not acknowledged yet
	Settled   = "settled"   // they are acknowledged in the outbox
)

// HeaderCall names the call of Publish that has sent a copy of a message.
const HeaderCall = "test_call"

// For is a job on a test's outbox.
func For(o *testoutbox.Outbox, topic, broker string) Job {
	return Job{Backend: o.DB.Name, Driver: o.DB.DriverName, DSN: o.DB.DSN, Schema: o.DB.Schema, Topic: topic, Broker: broker}
}

// Start starts a process with a job, which ends with the test at the latest.
func (job Job) Start(t *testing.T, lines chan<- testprocess.Line) *testprocess.Process {
	t.Helper()
	return testprocess.Start(t, variable, job, lines)
}

// Run is the process, for TestMain, on a publisher to the job's broker.
func Run(publisher func(Job) (message.Publisher, error)) {
	testprocess.Run(variable, func(job Job) error { return job.run(publisher) })
}

func (job Job) run(publisher func(Job) (message.Publisher, error)) (err error) {
	db, err := sql.Open(job.Driver, job.DSN)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	p, err := publisher(job)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.Close()) }()
	told := &toldPublisher{Publisher: p, hang: job.Hang, process: rand.Text()[:8]}
	fw, err := forwarder.New(db, told, forwarder.Config{
		Topics: []string{job.Topic}, BatchSize: job.Batch, RetryMin: 5 * time.Millisecond, RetryMax: 200 * time.Millisecond,
		Subscriber: outbox.SubscriberConfig{
			Dialect: testoutbox.Dialect(job.Backend), Schema: job.Schema, LeaseDuration: job.Lease, MaxAttempts: 100, HandlerLog: outbox.LogOff,
			Hooks: outbox.Hooks{OnSettle: func(e outbox.SettleEvent) { told.tell(Settled, e.Outcomes[outbox.Ack]) }},
		},
	}, nil)
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin) // its end is the end of the job, however it comes
		stop()
	}()
	return fw.Run(ctx)
}

// A toldPublisher marks what it publishes with its call, and tells when the broker has confirmed.
type toldPublisher struct {
	message.Publisher
	hang    bool
	process string // its name in those of calls

	mu    sync.Mutex
	calls int
}

func (p *toldPublisher) Publish(topic string, messages ...*message.Message) error {
	call := p.next()
	for _, msg := range messages {
		msg.Metadata.Set(HeaderCall, call)
	}
	err := p.Publisher.Publish(topic, messages...)
	var batch *forwarder.BatchError
	exact := errors.As(err, &batch)
	confirmed := 0
	for i := range messages {
		if err == nil || exact && batch.Errs[i] == nil {
			confirmed++
		}
	}
	if confirmed > 0 {
		p.tell(Confirmed, confirmed)
	}
	if p.hang && confirmed > 0 {
		select {}
	}
	return err
}

// next names a call.
func (p *toldPublisher) next() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.calls++
	return fmt.Sprint(p.process, " ", p.calls)
}

func (p *toldPublisher) tell(event string, n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	fmt.Fprintln(os.Stdout, event, n)
}
