package faults_test

import (
	"context"
	"database/sql"
	"errors"
	"slices"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/inbox"
	"github.com/incursa/watermill-outbox/internal/base"
	"github.com/incursa/watermill-outbox/internal/conformance/suite"
	"github.com/incursa/watermill-outbox/internal/seam"
)

// The log and the inbox, for the test under faults.

// cursorsUnderFaults read the whole log by hand, and do what they do in the transaction that moves them on.
var cursorsUnderFaults = []string{"first cursor", "second cursor"}

func (op *faultOperation) readLog(ctx context.Context) {
	group := one(op, cursorsUnderFaults...)
	c, err := seam.NewCursor[outbox.LogMessage](op.queue, seam.CursorConfig{Group: group, Lease: leaseUnderFaults})
	op.NoError(err)
	position, err := c.Acquire(ctx)
	if op.called("Acquire", err) != isDone {
		return
	}
	messages, err := c.Read(ctx, position, 20)
	op.called("Read", err)
	if err == nil && len(messages) > 0 {
		op.called("Renew of a cursor", c.Renew(ctx))
		err = outbox.InTx(ctx, op.pool, func(ctx context.Context, tx *sql.Tx) error {
			return op.moveOn(ctx, tx, c, group, position, messages)
		})
		op.called("Advance", err)
	}
	op.called("Release", c.Release(ctx))
}

// moveOn has an effect for each message.
func (r *faultRun) moveOn(ctx context.Context, tx *sql.Tx, c seam.Cursor[outbox.LogMessage], group string, from int64, messages []outbox.LogMessage) error {
	for _, m := range messages {
		r.book.place(m.Position, m.UUID)
		if err := r.effect(ctx, tx, group, m.UUID); err != nil {
			return err
		}
	}
	return c.Advance(ctx, tx, from, messages[len(messages)-1].Position)
}

// readToTheEnd reads what is left, without faults, and returns how much that was.
func (r *faultRun) readToTheEnd() (n int) {
	for _, group := range cursorsUnderFaults {
		c, err := seam.NewCursor[outbox.LogMessage](r.Outbox, seam.CursorConfig{Group: group, Lease: leaseUnderFaults})
		r.NoError(err)
		position, err := c.Acquire(r.Context())
		if errors.Is(err, base.ErrLeaseHeld) {
			n++ // its reader did not give it back; it runs out
			continue
		}
		r.NoError(err)
		messages, err := c.Read(r.Context(), position, 100)
		r.NoError(err)
		if n += len(messages); len(messages) > 0 {
			r.NoError(outbox.InTx(r.Context(), r.DB.DB, func(ctx context.Context, tx *sql.Tx) error {
				return r.moveOn(ctx, tx, c, group, position, messages)
			}))
		}
		r.NoError(c.Release(r.Context()))
	}
	return n
}

// forgetGroup makes a group of its own, and forgets it.
func (op *faultOperation) forgetGroup(ctx context.Context) {
	group := op.name("group")
	c, err := seam.NewCursor[outbox.LogMessage](op.queue, seam.CursorConfig{Group: group, Topic: "log"})
	op.NoError(err)
	_, err = c.Acquire(ctx)
	op.called("Acquire", err)
	err = op.queue.ForgetGroup(ctx, group)
	if op.called("ForgetGroup", err) == isDone {
		if err := c.Renew(ctx); op.called("Renew of a cursor", err) == isDone {
			op.book.staleWrite("renewed for the group %s, which was forgotten", group)
		}
	}
	if err := op.Outbox.ForgetGroup(op.Context(), group); err != nil { // it would keep the log from being purged
		op.book.mistake("ForgetGroup without a fault: %v", err)
	}
}

// checkLog holds the log's positions and what its readers saw against each other.
func (r *faultRun) checkLog() {
	order := make([]string, 0, len(r.book.places))
	at := map[string]int64{}
	for position := int64(1); position <= int64(len(r.book.places)); position++ {
		name, there := r.book.places[position]
		if !there {
			r.book.mistake("the log has %d messages, and none at position %d", len(r.book.places), position)
			continue
		}
		if again, twice := at[name]; twice {
			r.book.mistake("%s is in the log at %d and at %d", name, again, position)
		}
		at[name] = position
		order = append(order, name)
	}
	for _, group := range groupsUnderFaults {
		for _, topic := range []string{"log", "ack"} {
			var want []string
			for _, name := range order {
				if thing := r.book.things[name]; thing != nil && thing.topic == topic {
					want = append(want, name)
				}
			}
			saw := r.book.saw[group+" of "+topic]
			if !slices.Equal(saw, want) {
				r.book.mistake("the %s saw %d messages of %s, first other than in the log at %s; the log has %d",
					group, len(saw), topic, firstDifference(saw, want), len(want))
			}
		}
	}
}

func firstDifference(a, b []string) string {
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return a[i] + " instead of " + b[i]
		}
	}
	return "the end"
}

// receive puts a message into the inbox, and the same again.
func (op *faultOperation) receive(ctx context.Context) {
	thing := &faultThing{name: op.name("received"), topic: suite.Identity.Handler, effect: "received", inInbox: true}
	op.book.expect(thing)
	received := inbox.Received{Key: suite.KeyOf(thing.name), Message: outbox.Message{UUID: thing.name, Payload: []byte(thing.name)}}
	_, first := op.inbox.Enqueue(ctx, nil, received)
	known := op.called("Enqueue into the inbox", first)
	ids, second := op.inbox.Enqueue(ctx, nil, received)
	again := op.called("Enqueue into the inbox", second)
	op.book.answered(known.either(again), errors.Join(first, second), thing)
	if known == isDone && again == isDone && ids[0] != (outbox.MessageID{}) {
		op.book.mistake("%s was received twice", thing.name)
	}
	entries, err := op.inbox.Get(ctx, suite.KeyOf(thing.name))
	op.called("Get from the inbox", err)
	if err == nil && len(entries) == 0 && known.either(again) == isDone {
		op.book.mistake("%s has no entry", thing.name)
	}
	_, err = op.inbox.Requeue(ctx, suite.KeyOf(thing.name))
	op.called("Requeue", err)
}

// begin has an effect once, although it is tried twice.
func (op *faultOperation) begin(ctx context.Context) {
	thing := &faultThing{name: op.name("begun"), effect: "begun"}
	op.book.expect(thing)
	known, problems := notDone, error(nil)
	for range 2 {
		err := outbox.InTx(ctx, op.pool, func(ctx context.Context, tx *sql.Tx) error {
			entry, err := op.inbox.Begin(ctx, tx, suite.KeyOf(thing.name), inbox.HashOf(nil))
			if err != nil || !entry.First() {
				return err
			}
			if err := op.effect(ctx, tx, thing.effect, thing.name); err != nil {
				return err
			}
			return op.inbox.SaveResult(ctx, tx, suite.KeyOf(thing.name), []byte("result"))
		})
		known, problems = known.either(op.called("Begin", err)), errors.Join(problems, err)
	}
	op.book.answered(known, problems, thing)
}
