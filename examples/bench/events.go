package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/eventstore"
)

// appending measures events a second, of many writers at once, each in streams of its own and each append a transaction.
type appending struct{ streams int }

func (a appending) measure(ctx context.Context, b *bench) ([]result, error) {
	store, err := b.eventStore()
	if err != nil {
		return nil, err
	}
	text, err := b.statement("append", 0)
	if err != nil {
		return nil, err
	}
	b.showStatements("append", text)
	var next atomic.Int64
	stream := func() string { return fmt.Sprint("stream ", next.Add(1)%int64(a.streams)) }
	product := func(ctx context.Context, _ int) error {
		_, err := store.Append(ctx, nil, stream(), eventstore.Any, eventstore.Event{Type: "happened", Payload: b.payload})
		return err
	}
	bare := func(ctx context.Context, _ int) error {
		r, err := b.newRow("events")
		if err != nil {
			return err
		}
		name := stream()
		for {
			_, err = b.ExecContext(ctx, text, r.id, r.uuid, r.topic, r.payload, topicKey(r.topic), name)
			if err == nil || !outbox.IsRetryable(err) {
				return err
			}
		}
	}
	p := publishing{batch: 1}
	prepare := func(ctx context.Context) error { return b.fill(ctx, 0, 1, false) }
	if err := prepare(ctx); err != nil {
		return nil, err
	}
	for _, f := range []publish{bare, product} {
		if _, err := p.run(ctx, b.duration(warmUpTime), f); err != nil {
			return nil, err
		}
	}
	bares, products, err := b.compare(ctx, prepare, p.side(b, bare), p.side(b, product))
	if err != nil {
		return nil, err
	}
	r := perSecond(products[0], bares[0])
	r.Publishers, r.Streams = publishers, a.streams
	return []result{r}, nil
}

// readingStream measures events a second, read from a stream by one reader that begins again and again.
type readingStream struct{ events int }

func (s readingStream) measure(ctx context.Context, b *bench) ([]result, error) {
	store, err := b.eventStore()
	if err != nil {
		return nil, err
	}
	text, err := b.statement("read_stream", 0)
	if err != nil {
		return nil, err
	}
	b.showStatements("read_stream", text)
	list := make([]eventstore.Event, s.events)
	for i := range list {
		list[i] = eventstore.Event{Type: "happened", Payload: b.payload}
	}
	prepare := func(ctx context.Context) error {
		if err := b.fill(ctx, 0, 1, false); err != nil {
			return err
		}
		if _, err := store.Append(ctx, nil, "stream", eventstore.NoStream, list...); err != nil {
			return err
		}
		return b.execute(ctx, "analyze")
	}
	product := func(ctx context.Context) (n int, err error) {
		for _, err := range store.Read(ctx, nil, "stream", eventstore.ReadParams{}) {
			if err != nil {
				return 0, err
			}
			n++
		}
		return n, nil
	}
	bare := func(ctx context.Context) (n int, err error) {
		err = b.query(ctx, "read_stream", func(rows *sql.Rows) error {
			n++
			var version int64
			var id, topic string
			var payload []byte
			var headers sql.NullString
			return rows.Scan(&version, &id, &topic, &payload, &headers)
		}, "stream")
		return n, err
	}
	bares, products, err := b.compare(ctx, prepare, s.side(b, bare), s.side(b, product))
	if err != nil {
		return nil, err
	}
	return []result{perSecond(products[0], bares[0])}, nil
}

var errShort = errors.New("the stream is shorter than it was written")

func (s readingStream) side(b *bench, read func(context.Context) (int, error)) side {
	return func(ctx context.Context) ([]float64, error) {
		started, total := time.Now(), 0
		for again := true; again; again = time.Since(started) < b.duration(publishTime) {
			n, err := read(ctx)
			if err == nil && n != s.events {
				err = errShort
			}
			if err != nil {
				return nil, err
			}
			total += n
		}
		return []float64{float64(total) / time.Since(started).Seconds()}, nil
	}
}

func (b *bench) eventStore() (*eventstore.Store, error) {
	return eventstore.New(b.DB, eventstore.Config{Dialect: b.dialect, Table: b.tableName()}, nil)
}
