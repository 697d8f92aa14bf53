package main

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"

	outbox "github.com/incursa/watermill-outbox"
)

// A result is the end of the story, counted.
type result struct {
	published int
	delivered int      // distinct messages that a handler took, byte for byte as published, and whose row is done
	failed    int      // whose row is failed
	lost      []string // all others

	failures   int      // times that the handler of the one order failed
	twice      int      // deliveries of what had been delivered before
	changed    []string // arrived with other bytes than were published
	unexpected []string // never published: the order that was rolled back
	lastError  string   // of the message that failed
}

// audit compares what was published with what handlers have seen and with the table.
func (s *shop) audit(ctx context.Context) (*result, error) {
	r := &result{published: len(s.published)}
	arrived, ids, err := s.readHandled(ctx, r)
	if err != nil {
		return nil, err
	}
	rows := map[string]outbox.Status{}
	err = s.Query(ctx, func(row *sql.Rows) error {
		var name string
		var status outbox.Status
		err := row.Scan(&name, &status)
		rows[name] = status
		return err
	}, outboxListSQL)
	if err != nil {
		return nil, err
	}
	for name := range s.published {
		switch status, there := rows[name]; {
		case there && status == outbox.Done && arrived[name] > 0:
			r.delivered++
		case there && status == outbox.Failed && arrived[name] == 0:
			r.failed++
			if err := s.readError(ctx, r, ids[name]); err != nil {
				return nil, err
			}
		default:
			r.lost = append(r.lost, name)
		}
		r.twice += max(arrived[name]-1, 0)
		delete(rows, name)
	}
	r.unexpected = append(r.unexpected, slices.Collect(maps.Keys(rows))...)
	return r, s.readOrphans(ctx, r)
}

// readHandled reads what the handlers wrote: how often each message was delivered as it was published, and its id.
func (s *shop) readHandled(ctx context.Context, r *result) (arrived map[string]int, ids map[string]string, err error) {
	arrived, ids = map[string]int{}, map[string]string{}
	err = s.Query(ctx, func(row *sql.Rows) error {
		var name, id, outcome string
		var payload []byte
		if err := row.Scan(&name, &id, &outcome, &payload); err != nil {
			return err
		}
		ids[name] = id
		o, known := s.published[name]
		switch {
		case !known:
			r.unexpected = append(r.unexpected, name)
		case !bytes.Equal(payload, o.payload):
			r.changed = append(r.changed, name)
		case outcome == delivered:
			arrived[name]++
		case outcome == failed:
			r.failures++
		}
		return nil
	}, handledListSQL)
	return arrived, ids, err
}

// readError reads why a message has failed, as anybody can from the outbox.
func (s *shop) readError(ctx context.Context, r *result, id string) error {
	if id == "" {
		return nil // no handler has seen it
	}
	var messageID outbox.MessageID
	if err := messageID.UnmarshalText([]byte(id)); err != nil {
		return err
	}
	queue, err := outbox.New(s.DB, outbox.Config{Dialect: s.Dialect, Table: s.Table()}, nil)
	if err != nil {
		return err
	}
	records, err := queue.Get(ctx, messageID)
	if err == nil && len(records) == 1 {
		r.lastError = records[0].LastError
	}
	return err
}

// readOrphans looks for orders without a message: there is none if both were written in one transaction.
func (s *shop) readOrphans(ctx context.Context, r *result) error {
	return s.Query(ctx, func(row *sql.Rows) error {
		var name string
		err := row.Scan(&name)
		if _, known := s.published[name]; !known {
			r.unexpected = append(r.unexpected, name)
		}
		return err
	}, orderListSQL)
}

// states counts the messages of the outbox by status.
func (s *shop) states(ctx context.Context) (map[outbox.Status]int, error) {
	states := map[outbox.Status]int{}
	err := s.Query(ctx, func(row *sql.Rows) error {
		var status outbox.Status
		var n int
		err := row.Scan(&status, &n)
		states[status] = n
		return err
	}, outboxCountSQL)
	return states, err
}

// hasLive says whether any message is still on its way.
func (s *shop) hasLive(ctx context.Context) (live bool, err error) {
	err = s.QueryRowContext(ctx, s.SQL(outboxLiveSQL)).Scan(&live)
	return live, err
}

// print tells the result. It is an error if anything is not as it has to be.
func (r *result) print(screen *screen) error {
	if len(r.unexpected) == 0 {
		screen.Say("the order that was rolled back: no row, no message, nothing delivered")
	}
	if len(r.changed) == 0 {
		screen.Say("the payloads that arrived: byte for byte as published")
	}
	screen.Say("the poison message is kept as failed: %s", r.lastError)
	screen.Say("delivered once more: %d, done by a worker that could not say so in time (at least once)", r.twice)
	screen.Print("published %d, delivered %d, failed %d, lost %d", r.published, r.delivered, r.failed, len(r.lost))
	switch {
	case len(r.lost) > 0:
		return fmt.Errorf("lost: %v", r.lost)
	case r.failed != 1 || r.delivered+1 != r.published:
		return errors.New("one message should have failed and all others been delivered")
	case len(r.unexpected) > 0:
		return fmt.Errorf("something is there that was rolled back: %v", r.unexpected)
	case len(r.changed) > 0:
		return fmt.Errorf("payloads have changed: %v", r.changed)
	case r.failures != 2:
		return fmt.Errorf("the handler of one order should have failed twice, it did so %d times", r.failures)
	default:
		return nil
	}
}
