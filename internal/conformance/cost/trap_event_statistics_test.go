package cost_test

import (
	"database/sql"
	"fmt"
	"testing"

	"github.com/incursa/watermill-outbox/eventstore"
)

// What works on a stream of events reads little of many, whatever the database believes about its tables.
func TestLong_EachStatementOfEventsIsDrivenFromItsKeys(t *testing.T) {
	forEachEmpty(t, func(t *testing.T, f *fixture) {
		f.Needs(setsStatistics)
		f = &fixture{f.Alone()}
		f.uncounted()
		const keys = 10
		store := f.eventStore(f.DB.DB)
		fill := func(stream string, n int) {
			_, err := store.Append(f.Context(), nil, stream, eventstore.NoStream, someEvents(n)...)
			f.NoError(err)
		}
		for i := range 2000 {
			fill(fmt.Sprint("stream ", i), 1)
		}
		fill("long", 2000)
		fill("deleted", keys)
		f.NoError(store.Delete(f.Context(), nil, "deleted", eventstore.Any))

		appends := func(stream string, expected eventstore.Expected, n int) func(c *counted) error {
			return func(c *counted) error {
				_, err := c.eventStore(c.pool).Append(c.Context(), c.x, stream, expected, someEvents(n)...)
				return err
			}
		}
		reads := func(params eventstore.ReadParams) func(c *counted) error {
			return func(c *counted) error {
				for _, err := range c.eventStore(c.pool).Read(c.Context(), c.x, "long", params) {
					if err != nil {
						return err
					}
				}
				return nil
			}
		}
		f.underAllStatistics(map[string]func(c *counted) error{
			"append one":          appends("stream 7", eventstore.Exactly(1), 1),
			"append one to any":   appends("long", eventstore.Any, 1),
			"append many":         appends("stream 7", eventstore.StreamExists, keys),
			"append to no stream": appends("new", eventstore.NoStream, 1),
			"read":                reads(eventstore.ReadParams{From: 1000, Limit: keys}),
			"read backwards":      reads(eventstore.ReadParams{Backwards: true, Limit: keys}),
			"archive": func(c *counted) error {
				return c.eventStore(c.pool).Archive(c.Context(), c.x, "stream 7", eventstore.Any)
			},
			"restore": func(c *counted) error { return c.eventStore(c.pool).Restore(c.Context(), c.x, "deleted") },
		})
	})
}

func (f *fixture) eventStore(pool *sql.DB) *eventstore.Store {
	f.T.Helper()
	s, err := eventstore.New(pool, eventstore.Config{Dialect: f.Config.Dialect, Schema: f.Config.Schema, Table: f.Config.Table}, nil)
	f.NoError(err)
	return s
}

func someEvents(n int) []eventstore.Event {
	events := make([]eventstore.Event, n)
	for i := range events {
		events[i] = eventstore.Event{Type: "counted", Payload: fmt.Append(nil, i)}
	}
	return events
}
