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
	"time"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/fanout"
	"github.com/incursa/watermill-outbox/join"
)

// A dispatcher is a process of its own, this program started again with dispatcherFlag. It reads its job as one line of
// JSON, tells news on its output, a line each, and ends when its input does, so that it never outlives who started it.
const dispatcherFlag = "-dispatcher"

type job struct {
	Shop, Warehouse string // the files
	HangAt          string // the order in whose transaction to hang; empty for none
}

// News is what a dispatcher has done.
type news struct {
	Policy   string
	Matched  int
	Position int64
	Hangs    bool
}

var policyNames = []string{"orders", "acme", "summary", "warehouse"}

// policies are what this is about.
func policies(warehouse *outbox.Outbox, beforeCommit func(source outbox.LogMessage)) []fanout.Policy {
	return []fanout.Policy{
		{
			Name: "orders", Topics: "orders.*",
			Destinations: []fanout.Destination{fanout.ToTopic("billing"), fanout.ToTopic("shipping"), fanout.ToTopic("analytics")},
			// Here the copies could become steps of a join. This program uses that it runs inside the transaction.
			Join: func(_ context.Context, _ outbox.Executor, source outbox.LogMessage) (id join.ID, ok bool, err error) {
				beforeCommit(source)
				return id, false, nil
			},
		},
		{
			Name: "acme", Topics: "orders.*",
			Tenant:       fanout.Tenant{Header: "tenant", Value: "acme"},
			Destinations: []fanout.Destination{fanout.ToTopic("acme.audit")},
		},
		{
			Name: "summary", Topics: "orders.*",
			Cadence:      fanout.Cadence{Every: time.Second},
			Destinations: []fanout.Destination{fanout.ToTopic("summary")},
		},
		{
			Name: "warehouse", Topics: "orders.placed",
			Destinations: []fanout.Destination{fanout.ToStore("warehouse", warehouse, "picking")},
		},
	}
}

// dispatcherMain is the life of a dispatcher process.
func dispatcherMain(in io.Reader, out, errOut io.Writer) int {
	signal.Ignore(os.Interrupt) // a Ctrl-C reaches both processes; the one that started this one decides
	if err := dispatch(bufio.NewReader(in), out); err != nil {
		fmt.Fprintln(errOut, "dispatcher:", err)
		return 1
	}
	return 0
}

func dispatch(in *bufio.Reader, out io.Writer) (err error) {
	line, err := in.ReadBytes('\n')
	if err != nil {
		return fmt.Errorf("read the job: %w", err)
	}
	var todo job
	if err := json.Unmarshal(line, &todo); err != nil {
		return fmt.Errorf("read the job: %w", err)
	}
	db, err := open(todo.Shop)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	warehouseDB, err := open(todo.Warehouse)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, warehouseDB.Close()) }()
	warehouse, err := outbox.New(warehouseDB, outbox.Config{Dialect: dialect}, nil)
	if err != nil {
		return err
	}

	var mu sync.Mutex
	encoder := json.NewEncoder(out)
	tell := func(n news) {
		mu.Lock()
		defer mu.Unlock()
		_ = encoder.Encode(n) // nobody to tell: who started this process is gone, and stdin says so
	}
	beforeCommit := func(source outbox.LogMessage) {
		if source.UUID == todo.HangAt {
			tell(news{Policy: "orders", Hangs: true})
			select {} // until it is killed
		}
	}

	// The sequencer gives the orders their positions; the dispatcher reads by them.
	sequencer, err := outbox.NewSequencer(db, outbox.SequencerConfig{Dialect: dialect}, nil)
	if err != nil {
		return err
	}
	dispatcher, err := fanout.NewDispatcher(db, fanout.Config{
		Dialect: dialect, Policies: policies(warehouse, beforeCommit), BatchSize: 10, LeaseDuration: time.Second,
		OnDispatch: func(e fanout.DispatchEvent) {
			if e.Err == nil {
				tell(news{Policy: e.Policy, Matched: e.Matched, Position: e.Position})
			}
		},
	}, nil)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var running sync.WaitGroup
	running.Go(func() {
		_, _ = io.Copy(io.Discard, in) // its end is what counts, however it comes
		cancel()
	})
	var stamping error
	running.Go(func() { stamping = sequencer.Run(ctx) })
	err = dispatcher.Run(ctx)
	running.Wait()
	return errors.Join(err, stamping)
}
