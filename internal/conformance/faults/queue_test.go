package faults_test

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/internal/base"
	"github.com/incursa/watermill-outbox/internal/conformance/suite"
)

// The operations of publishers and of the queue, for the test under faults.

// topicsUnderFaults say what their handler does; see faultRun.answer.
var topicsUnderFaults = []string{"ack", "ack", "ack", "ack", "nack", "nack", "tx", "tx", "tx", "tx undone", "slow", "hang", "poison", "manual", "manual"}

// queued are new things for the queue.
func (op *faultOperation) queued(n int) []*faultThing {
	things := make([]*faultThing, n)
	for i := range things {
		topic := one(op, topicsUnderFaults...)
		things[i] = &faultThing{name: op.name("message"), topic: topic, queued: true}
		if topic == "tx" {
			things[i].effect = "handled"
		}
	}
	return things
}

func (t *faultThing) message() outbox.Message {
	return outbox.Message{ID: t.id, UUID: t.name, Topic: t.topic, Payload: []byte(t.name)}
}

func (t *faultThing) watermill(ctx context.Context) *message.Message {
	msg := message.NewMessage(t.name, []byte(t.name))
	msg.SetContext(ctx)
	return msg
}

func messagesOf(things []*faultThing) (list []outbox.Message) {
	for _, thing := range things {
		list = append(list, thing.message())
	}
	return list
}

func (op *faultOperation) enqueue(ctx context.Context) {
	things := op.queued(1 + op.random.IntN(3))
	op.book.expect(things...)
	_, err := op.queue.Enqueue(ctx, op.pool, messagesOf(things)...)
	op.book.answered(op.called("Enqueue", err), err, things...)
}

func (op *faultOperation) publish(ctx context.Context) {
	things := op.queued(1 + op.random.IntN(3))
	for _, thing := range things {
		thing.topic, thing.effect = things[0].topic, things[0].effect
	}
	op.book.expect(things...)
	err := op.publishOn(ctx, op.plain, things...)
	op.book.answered(op.called("Publish", err), err, things...)
}

func (op *faultOperation) publishOn(ctx context.Context, p *outbox.Publisher, things ...*faultThing) error {
	var messages []*message.Message
	for _, thing := range things {
		messages = append(messages, thing.watermill(ctx))
	}
	return p.Publish(things[0].topic, messages...)
}

var errChangedMind = errors.New("the caller has changed his mind")

// publishInTx publishes twice beside a row of the application, all or nothing.
func (op *faultOperation) publishInTx(ctx context.Context) {
	things := append(op.queued(2), &faultThing{name: op.name("order"), effect: "order"})
	op.book.expect(things...)
	undo := op.random.IntN(10) == 0
	err := outbox.InTx(ctx, op.pool, func(ctx context.Context, tx *sql.Tx) error {
		if err := op.effect(ctx, tx, "order", things[2].name); err != nil {
			return err
		}
		if err := op.publishOn(ctx, op.plain, things[0]); err != nil {
			return err
		}
		if err := op.publishOn(ctx, op.plain, things[1]); err != nil {
			return err
		}
		if undo {
			return errChangedMind
		}
		return nil
	})
	op.book.answered(op.called("InTx", err), err, things...)
}

// publishWithTx does so in a transaction of the application's own.
func (op *faultOperation) publishWithTx(ctx context.Context) {
	things := append(op.queued(1), &faultThing{name: op.name("order"), effect: "order"})
	op.book.expect(things...)
	undo := op.random.IntN(10) == 0
	known, err := op.inOwnTx(ctx, func(tx *sql.Tx) error {
		if err := op.effect(ctx, tx, "order", things[1].name); err != nil {
			return err
		}
		err := op.publishOn(outbox.WithTx(ctx, tx), op.plain, things[0])
		if op.called("Publish in a transaction", err) == maybeDone {
			op.book.mistake("publishing in a caller's transaction: %v", err) // whose end is the caller's
		}
		if err == nil && undo {
			return errChangedMind
		}
		return err
	})
	op.book.answered(known, err, things...)
}

// inOwnTx commits a transaction as an application does. The error of a commit leaves open what is done.
func (op *faultOperation) inOwnTx(ctx context.Context, f func(tx *sql.Tx) error) (outcomeKnown, error) {
	tx, err := op.pool.BeginTx(ctx, nil)
	if err != nil {
		return notDone, err
	}
	if err := f(tx); err != nil {
		_ = tx.Rollback() // the connection may have gone, which does it too
		return notDone, err
	}
	if err := tx.Commit(); err != nil {
		return maybeDone, err
	}
	return isDone, nil
}

func (op *faultOperation) publishLog(ctx context.Context) {
	p := op.toLog
	things := []*faultThing{{name: op.name("logged"), topic: "log", inLog: true}, {name: op.name("logged"), topic: "log", inLog: true}}
	if op.random.IntN(3) == 0 {
		p = op.toBoth
		things = []*faultThing{{name: op.name("both"), topic: "ack", inLog: true, queued: true}}
	}
	op.book.expect(things...)
	var err error
	if op.random.IntN(2) == 0 {
		err = op.publishOn(ctx, p, things...)
	} else {
		err = outbox.InTx(ctx, op.pool, func(ctx context.Context, _ *sql.Tx) error { return op.publishOn(ctx, p, things...) })
	}
	op.book.answered(op.called("Publish to the log", err), err, things...)
}

// byHand is the lease of what is claimed by hand; what it is looked at for happens in a small part of it.
const byHand = 3 * time.Second

// workByHand claims, renews and settles.
func (op *faultOperation) workByHand(ctx context.Context) {
	owner, started := base.NewOwnerToken(), time.Now()
	claimed, err := op.queue.Claim(ctx, outbox.ClaimParams{Topics: suite.Quotas("manual"), Limit: 3, Lease: byHand, Owner: owner, GiveBack: one(op, -1, 0)})
	op.called("Claim", err)
	for _, c := range claimed {
		op.book.handled(c.UUID, c.ID)
	}
	if len(claimed) == 0 {
		return
	}
	refused, err := op.queue.Renew(ctx, byHand, receiptsOf(claimed)...)
	op.called("Renew", err)
	held := func() bool { return time.Since(started) < byHand/2 }
	if err == nil && len(refused) > 0 && held() {
		op.book.mistake("renewing refused %v of %v, which are held", refused, suite.Seqs(claimed))
	}
	settlements := suite.Settled(one(op, outbox.Ack, outbox.Retry, outbox.Release), claimed...)
	for i := range settlements {
		settlements[i].Delay = -1
	}
	if settlements[0].Outcome == outbox.Ack {
		settlements[0].Delay = 0
	}
	var known outcomeKnown
	if op.random.IntN(2) == 0 {
		refused, err = op.queue.Settle(ctx, op.pool, settlements)
		known = op.called("Settle", err)
	} else {
		known, err = op.inOwnTx(ctx, func(tx *sql.Tx) (err error) {
			refused, err = op.queue.Settle(ctx, tx, settlements)
			op.called("Settle in a transaction", err)
			return err
		})
	}
	if !held() {
		return
	}
	if known == isDone && len(refused) > 0 {
		op.book.mistake("settling refused %v of %v, which are held", refused, suite.Seqs(claimed))
	}
	op.checkHeld(claimed, owner, known, err)
}

// checkHeld looks at what was settled through a connection that is well.
func (op *faultOperation) checkHeld(claimed []outbox.Claimed, owner outbox.OwnerToken, known outcomeKnown, err error) {
	records, lookErr := op.Outbox.Get(op.Context(), suite.MessageIDs(claimed)...)
	if lookErr != nil {
		op.book.mistake("Get without a fault: %v", lookErr)
		return
	}
	held := 0
	for _, r := range records {
		if r.Owner == owner {
			held++
		}
	}
	switch {
	case known == isDone && held > 0:
		op.book.mistake("%d of %d messages are held after they were settled", held, len(claimed))
	case known == notDone && held < len(claimed):
		op.book.mistake("%d of %d messages are no longer held, although settling said that it did nothing: %v", len(claimed)-held, len(claimed), err)
	case known == maybeDone && held > 0 && held < len(claimed):
		op.book.mistake("%d of %d messages are held: one transaction did a part", held, len(claimed))
	}
}

// staleHolder loses a lease to another, and then settles and renews.
func (op *faultOperation) staleHolder(ctx context.Context) {
	topic := op.name("stale")
	thing := &faultThing{name: op.name("message"), topic: topic, queued: true}
	op.book.expect(thing)
	_, err := op.queue.Enqueue(ctx, op.pool, thing.message())
	known := op.called("Enqueue", err)
	op.book.answered(known, err, thing)
	op.book.staleTopic(topic)
	if known != isDone {
		return
	}
	first := op.claimUntil(ctx, thing, time.Millisecond)
	second := op.claimUntil(ctx, thing, byHand)
	if first == nil || second == nil || first.Receipt.Owner == second.Receipt.Owner {
		return
	}
	refused, err := op.queue.Renew(ctx, byHand, first.Receipt)
	if op.called("Renew", err) == isDone && !slices.Contains(refused, first.Receipt.Seq) {
		op.book.staleWrite("renewed by the first holder of %s", thing.name)
	}
	refused, err = op.queue.Settle(ctx, op.pool, []outbox.Settlement{{Receipt: first.Receipt, Outcome: outbox.Fail, Err: errStale}})
	if op.called("Settle", err) == isDone && !slices.Contains(refused, first.Receipt.Seq) {
		op.book.staleWrite("settled by the first holder of %s", thing.name)
	}
	op.called("Abandon", op.queue.Abandon(ctx, first.Receipt.Owner, errStale, first.Receipt.Seq))
	op.called("Ack", op.queue.Ack(ctx, second.Receipt.Owner, second.Receipt.Seq))
}

var errStale = errors.New("stale: of a holder that has lost its lease")

// claimUntil claims a message again and again, until it is there or the context ends.
func (op *faultOperation) claimUntil(ctx context.Context, thing *faultThing, lease time.Duration) *outbox.Claimed {
	ticker := time.NewTicker(5 * time.Millisecond)
	defer ticker.Stop()
	for {
		claimed, err := op.queue.Claim(ctx, outbox.ClaimParams{Topics: suite.Quotas(thing.topic), Limit: 1, Lease: lease})
		op.called("Claim", err)
		if len(claimed) == 1 {
			op.book.handled(thing.name, claimed[0].ID)
			return &claimed[0]
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

// look reads what the queue says of itself.
func (op *faultOperation) look(ctx context.Context) {
	_, err := op.queue.Topics(ctx)
	op.called("Topics", err)
	failed, err := op.queue.Failed(ctx, outbox.ListParams{Limit: 10})
	op.called("Failed", err)
	for _, r := range failed {
		if r.Status != outbox.Failed {
			op.book.mistake("Failed lists a message that is %v", r.Status)
		}
		again, err := op.queue.Get(ctx, r.ID)
		op.called("Get", err)
		if err == nil && len(again) > 1 {
			op.book.mistake("Get answers with %d messages of one id", len(again))
		}
	}
}

func (op *faultOperation) reap(ctx context.Context) {
	_, err := op.queue.ReapExpired(ctx)
	op.called("ReapExpired", err)
}

func (op *faultOperation) requeue(ctx context.Context) {
	_, err := op.queue.Requeue(ctx, outbox.RequeueParams{Topic: "poison"})
	op.called("Requeue", err)
}

func (op *faultOperation) purge(ctx context.Context) {
	_, err := op.queue.Purge(ctx, outbox.PurgeParams{})
	op.called("Purge", err)
	_, err = op.queue.Purge(ctx, outbox.PurgeParams{Log: true})
	op.called("Purge of the log", err)
	_, err = op.joins.Purge(ctx, time.Hour)
	op.called("Purge of joins", err)
	_, err = op.inbox.Purge(ctx, outbox.PurgeParams{OlderThan: time.Hour})
	op.called("Purge of the inbox", err)
}

func receiptsOf(claimed []outbox.Claimed) (receipts []outbox.Receipt) {
	for _, c := range claimed {
		receipts = append(receipts, c.Receipt)
	}
	return receipts
}
