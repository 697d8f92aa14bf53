package main

import (
	"context"
	"database/sql"
	"errors"

	"github.com/incursa/watermill-outbox/inbox"
)

// sent is what the upstream has sent, each once or more.
var (
	orders  = []string{"order-1", "order-2", "order-3"}
	parcels = []string{"parcel-1", "parcel-2", "parcel-3"}
)

// duplicates is how often the inbox has met what it knew. It is asked before the worker starts, which takes from the inbox too.
func (a *app) duplicates(ctx context.Context) (n int, err error) {
	var keys []inbox.Key
	for _, id := range orders {
		keys = append(keys, inbox.Key{Source: paymentIdentity.Source, MessageID: id, Handler: paymentIdentity.Handler})
	}
	for _, id := range parcels {
		keys = append(keys, parcelKey(id))
	}
	entries, err := a.inbox.Get(ctx, keys...)
	for _, e := range entries {
		n += e.Seen - 1
	}
	return n, err
}

// printBalance compares what was received with what the tables say was done. That something is missing, or there twice, is
// an error.
func (a *app) printBalance(ctx context.Context, duplicates int) error {
	payments, err := a.effects(ctx, paymentListSQL)
	if err != nil {
		return err
	}
	shipments, err := a.effects(ctx, shipmentListSQL)
	if err != nil {
		return err
	}
	paid, shipped := compare(orders, payments), compare(parcels, shipments)
	handled, doubled, lost := paid.handled+shipped.handled, paid.doubled+shipped.doubled, paid.lost+shipped.lost
	a.Print("\n%d payments booked, %d parcels shipped; %d was rolled back and came again, %d was refused",
		paid.handled, shipped.handled, a.rolledBack.Load(), a.refused.Load())
	a.Print("received %d, handled %d, duplicates %d, effects doubled %d, lost %d", a.received.Load(), handled, duplicates, doubled, lost)
	if doubled+lost > 0 {
		return errors.New("each message should have its effect once")
	}
	if int(a.received.Load()) != handled+duplicates+int(a.rolledBack.Load())+int(a.refused.Load()) {
		return errors.New("what was received should be handled, known, rolled back or refused")
	}
	return nil
}

// effects reads what handlers have done, a message each.
func (a *app) effects(ctx context.Context, statement string) (of []string, err error) {
	err = a.Query(ctx, func(rows *sql.Rows) error {
		var id string
		err := rows.Scan(&id)
		of = append(of, id)
		return err
	}, statement)
	return of, err
}

type comparison struct{ handled, doubled, lost int }

// compare compares effects with the messages that should have one each.
func compare(messages, effects []string) (c comparison) {
	times := map[string]int{}
	for _, id := range effects {
		times[id]++
	}
	for _, id := range messages {
		switch times[id] {
		case 0:
			c.lost++
		case 1:
			c.handled++
		default:
			c.handled++
			c.doubled++
		}
	}
	return c
}
