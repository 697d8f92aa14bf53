package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/ThreeDotsLabs/watermill"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/inbox"
	"github.com/incursa/watermill-outbox/join"
	"github.com/incursa/watermill-outbox/stores"
)

// A shop publishes into its own database.
type shop struct {
	store *stores.Store
	joins *join.Coordinator
	log   *outbox.Outbox
	n     int
	pace  int // orders a round

	readers []*outbox.Subscriber
	logger  watermill.LoggerAdapter
}

func openShop(ctx context.Context, folder, name string, logger watermill.LoggerAdapter) (*shop, error) {
	db, err := outbox.OpenSQLite("sqlite", dsn(folder, name))
	if err != nil {
		return nil, err
	}
	s := &shop{pace: len(name) - 5, logger: logger}
	s.store, err = stores.New(db, stores.Database{ID: name, Dialect: outbox.SQLite{}}, outbox.Config{}, logger)
	if err == nil {
		err = s.install(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return s, nil
}

func (s *shop) install(ctx context.Context) (err error) {
	if err := outbox.Migrate(ctx, s.store.DB(), outbox.MigrateConfig{Dialect: outbox.SQLite{}}); err != nil {
		return err
	}
	config := inbox.Config{Dialect: outbox.SQLite{}}
	if err := inbox.Migrate(ctx, s.store.DB(), config); err != nil {
		return err
	}
	in, err := inbox.New(s.store.DB(), config, s.logger)
	if err != nil {
		return err
	}
	if err := received(ctx, in); err != nil {
		return err
	}
	if s.log, err = outbox.New(s.store.DB(), outbox.Config{Dialect: outbox.SQLite{}, Store: s.store.ID(), Log: outbox.LogOnly}, s.logger); err != nil {
		return err
	}
	if s.joins, err = stores.Coordinator(s.store, join.Config{}, s.logger); err != nil {
		return err
	}
	return s.importCatalogue(ctx)
}

// importCatalogue is a join whose steps are parts, of which one fails and one is yet to come, and another join.
func (s *shop) importCatalogue(ctx context.Context) error {
	whole, err := s.joins.Start(ctx, nil, join.StartParams{GroupingKey: "import-2026-11", ExpectedSteps: 7, Metadata: `{"file":"catalogue.csv"}`})
	if err != nil {
		return err
	}
	for part := range 4 {
		if _, err := s.joins.Enqueue(ctx, nil, whole, s.message("import.part", fmt.Sprintf(`{"part":%d}`, part+1))); err != nil {
			return err
		}
	}
	late := s.message("import.part", `{"part":5}`)
	late.Delay = 2 * time.Hour
	if _, err := s.joins.Enqueue(ctx, nil, whole, late); err != nil {
		return err
	}
	pictures, err := s.joins.Start(ctx, nil, join.StartParams{GroupingKey: "pictures", ExpectedSteps: 2})
	if err != nil {
		return err
	}
	if _, err := s.joins.Enqueue(ctx, nil, pictures, s.message("import.part", `{"part":"front"}`), late); err != nil {
		return err
	}
	if err := s.joins.AttachJoin(ctx, nil, whole, pictures); err != nil {
		return err
	}
	_, err = s.joins.EnqueueWait(ctx, nil, join.Wait{Join: whole, OnComplete: join.Continuation{Topic: "import.done"}, OnFail: &join.Continuation{Topic: "import.done"}})
	return err
}

func (s *shop) message(topic, payload string) outbox.Message {
	s.n++
	return outbox.Message{Topic: topic, UUID: watermill.NewUUID(), Payload: []byte(payload), CorrelationID: fmt.Sprintf("order-%d", s.n/4),
		Headers: map[string]string{"n": fmt.Sprint(s.n), "source": "till " + fmt.Sprint(s.n%3+1)}}
}

// run publishes, and reads the log, until ctx ends.
func (s *shop) run(ctx context.Context) (err error) {
	defer func() {
		for _, r := range s.readers {
			err = errors.Join(err, r.Close())
		}
	}()
	for _, group := range []string{"search-index", "statistics"} {
		if err := s.read(ctx, group); err != nil {
			return err
		}
	}
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	for round := 0; ; round++ {
		orders := s.pace
		if round%60 < 4 {
			orders *= 8 // a rush
		}
		for range orders {
			if err := s.order(ctx); err != nil {
				return ended(ctx, err)
			}
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// order is what one order sends.
func (s *shop) order(ctx context.Context) error {
	placed := s.message("orders.placed", fmt.Sprintf(`{"order":%d,"items":[{"sku":"A-%d","quantity":2}],"total":%d}`, s.n, s.n%50, 900+s.n%400))
	paid := s.message("payments.captured", fmt.Sprintf(`{"order":%d,"card":"4929 1234 5678 %04d","amount":%d}`, s.n, s.n%10000, 900+s.n%400))
	mail := s.message("mail.confirmation", fmt.Sprintf(`{"order":%d,"to":"customer-%d@example.com"}`, s.n, s.n))
	parcel := s.message("parcels.tracked", fmt.Sprintf(`{"parcel":%d,"depot":"N%d"}`, s.n, s.n%9))
	parcel.StreamKey = fmt.Sprintf("parcel-%d", s.n%60)
	return outbox.InTx(ctx, s.store.DB(), func(ctx context.Context, tx *sql.Tx) error {
		if _, err := s.store.Outbox().Enqueue(ctx, tx, placed, paid, mail, parcel); err != nil {
			return err
		}
		placed.Topic = "orders"
		_, err := s.log.Enqueue(ctx, tx, placed)
		return err
	})
}

// read has a consumer group read the log.
func (s *shop) read(ctx context.Context, group string) error {
	config := s.store.SubscriberConfig(outbox.SubscriberConfig{ConsumerGroup: group, MaxAttempts: 2})
	reader, err := outbox.NewSubscriber(s.store.DB(), config, s.logger)
	if err != nil {
		return err
	}
	s.readers = append(s.readers, reader)
	messages, err := reader.Subscribe(ctx, "orders")
	if err != nil {
		return err
	}
	go func() {
		for msg := range messages {
			if group == "search-index" && count(msg)%211 == 0 {
				if delivery, ok := outbox.DeliveryFrom(msg.Context()); ok {
					delivery.SetErr(outbox.Permanent(errors.New("index: mapping conflict in field \"total\"")))
				}
				msg.Nack()
				continue
			}
			msg.Ack()
		}
	}()
	return nil
}

func ended(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}
