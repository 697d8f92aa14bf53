package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"

	"github.com/ThreeDotsLabs/watermill/message"
	_ "modernc.org/sqlite"

	outbox "github.com/incursa/watermill-outbox"
)

// A shop has the stream, and sees where it arrives.
type shop struct {
	db, warehouse *sql.DB
	publisher     *outbox.Publisher
	placed        int
}

// open opens a database file as an outbox needs it.
func open(file string) (*sql.DB, error) {
	name := url.URL{Path: filepath.ToSlash(file)}
	return outbox.OpenSQLite("sqlite", "file:"+name.EscapedPath()+"?_pragma=busy_timeout(10000)&_pragma=journal_mode(WAL)&_txlock=immediate")
}

func openShop(ctx context.Context, todo job) (*shop, error) {
	db, err := open(todo.Shop)
	if err != nil {
		return nil, err
	}
	warehouse, err := open(todo.Warehouse)
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	s := &shop{db: db, warehouse: warehouse}
	err = errors.Join(
		outbox.Migrate(ctx, db, outbox.MigrateConfig{Dialect: dialect}), outbox.Migrate(ctx, warehouse, outbox.MigrateConfig{Dialect: dialect}))
	if err == nil {
		// LogOnly: nothing claims the stream itself, the policies read it.
		s.publisher, err = outbox.NewPublisher(db, outbox.PublisherConfig{Dialect: dialect, Log: outbox.LogOnly}, nil)
	}
	if err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}

func (s *shop) close() error { return errors.Join(s.db.Close(), s.warehouse.Close()) }

func orderName(n int) string { return fmt.Sprintf("order-%03d", n) }

var tenants = []string{"acme", "globex"}

// place places orders, of each tenant in turn.
func (s *shop) place(ctx context.Context, orders int) error {
	for range orders {
		s.placed++
		msg := message.NewMessage(orderName(s.placed), fmt.Appendf(nil, `{"order": %d}`, s.placed))
		msg.Metadata.Set("tenant", tenants[s.placed%len(tenants)])
		err := outbox.InTx(ctx, s.db, func(ctx context.Context, _ *sql.Tx) error {
			msg.SetContext(ctx)
			return s.publisher.Publish("orders.placed", msg)
		})
		if err != nil {
			return fmt.Errorf("place %s: %w", msg.UUID, err)
		}
	}
	return nil
}

// A count is what has arrived at a destination.
type count struct {
	destination             string
	expected, arrived       int
	lost, doubled, unsorted int
}

// count looks into the queues of all destinations.
func (s *shop) count(ctx context.Context) (counts []count, err error) {
	for _, d := range []struct {
		db           *sql.DB
		topic, label string
		tenant       string // empty for all
	}{
		{s.db, "billing", "billing", ""},
		{s.db, "shipping", "shipping", ""},
		{s.db, "analytics", "analytics", ""},
		{s.db, "acme.audit", "acme.audit", "acme"},
		{s.db, "summary", "summary", ""},
		{s.warehouse, "picking", "picking, in the warehouse's database", ""},
	} {
		var want []string
		for n := 1; n <= s.placed; n++ {
			if d.tenant == "" || tenants[n%len(tenants)] == d.tenant {
				want = append(want, orderName(n))
			}
		}
		got, err := arrived(ctx, d.db, d.topic)
		if err != nil {
			return nil, err
		}
		counts = append(counts, compare(d.label, want, got))
	}
	return counts, nil
}

// compare says what is missing, and what came more than once or too late.
func compare(destination string, want, got []string) count {
	c := count{destination: destination, expected: len(want), arrived: len(got)}
	times := map[string]int{}
	last := ""
	for _, name := range got {
		if times[name]++; times[name] > 1 {
			c.doubled++
		}
		if name < last {
			c.unsorted++
		}
		last = name
	}
	for _, name := range want {
		if times[name] == 0 {
			c.lost++
		}
	}
	return c
}

// arrived are the orders in the queue of a topic, in its order.
func arrived(ctx context.Context, db *sql.DB, topic string) (names []string, err error) {
	rows, err := db.QueryContext(ctx, arrivedListSQL, topic)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		var name string
		if err := rows.Scan(&name); err != nil {
			return nil, err
		}
		names = append(names, name)
	}
	return names, rows.Err()
}
