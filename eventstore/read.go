package eventstore

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"iter"
	"math"
	"slices"
	"time"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/internal/field"
)

// What one round trip fetches at most, except for an event that is larger alone.
const (
	pageEvents = 1000
	pageBytes  = 8 << 20
)

// ReadParams say which events of a stream to read. The zero value is all of them, from the first on.
type ReadParams struct {
	// From is the version to begin with. Defaults to the first, and to the last if Backwards is set.
	From int64

	// Backwards reads from the newest event to the oldest. Defaults to false.
	Backwards bool

	// Limit is the most events to read. Defaults to all.
	Limit int

	// Archived also reads a stream that is archived. Defaults to false, which makes that ErrArchived.
	Archived bool
}

// Read reads the events of a stream in order of their versions; a stream that does not exist has none. Up to 1,000 are fetched
// at a time, and no connection is held between: the loop may take its time, and end at any point. What is appended while it
// runs may be part of it. x is as in Append.
//
// An error ends the loop. It is ErrArchived for an archived stream, or an *outbox.FieldError for bad parameters.
func (s *Store) Read(ctx context.Context, x outbox.Executor, stream string, params ReadParams) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		if err := s.read(ctx, x, stream, params, yield); err != nil {
			yield(Event{}, err)
		}
	}
}

type readArg struct {
	Stream    string `json:"stream"`
	From      int64  `json:"from"`
	Limit     int    `json:"limit"`
	Bytes     int    `json:"bytes"`
	Backwards bool   `json:"backwards"`
	Archived  bool   `json:"archived"`
}

func (s *Store) read(ctx context.Context, x outbox.Executor, stream string, params ReadParams, yield func(Event, error) bool) error {
	if err := validateStream(stream); err != nil {
		return err
	}
	if params.From < 0 || params.Limit < 0 {
		return field.Bad("ReadParams.From", "and Limit must not be negative")
	}
	arg := readArg{Stream: stream, From: params.From, Bytes: pageBytes, Backwards: params.Backwards, Archived: params.Archived}
	step := int64(1)
	if params.Backwards {
		step = -1
		field.Default(&arg.From, math.MaxInt64)
	}
	left := cmp.Or(params.Limit, math.MaxInt)
	for {
		arg.Limit = min(left, pageEvents)
		var page []Event
		var last int64
		err := s.inside.Run(ctx, x, "outbox_event_read", arg, func(rows *sql.Rows) (err error) {
			var e Event
			last, err = e.scan(rows)
			page = append(page, e)
			return err
		})
		if err != nil {
			return fmt.Errorf("read the stream %q: %w", stream, err)
		}
		if len(page) == 1 && page[0].Version < 0 {
			return fmt.Errorf("read the stream %q: %w", stream, ErrArchived)
		}
		slices.SortFunc(page, func(a, b Event) int { return int(step) * cmp.Compare(a.Version, b.Version) })
		for i := range page {
			if !yield(page[i], nil) {
				return nil
			}
		}
		left -= len(page)
		if len(page) == 0 || left == 0 || page[len(page)-1].Version == last {
			return nil
		}
		arg.From = page[len(page)-1].Version + step
	}
}

// ReadAllParams say which events to read by their positions. The zero value is all that there are.
type ReadAllParams struct {
	// After is the position before the first event. Defaults to the beginning.
	After int64

	// To is the position of the last event. Defaults to the end of the log.
	To int64

	// Follow goes on with what comes later, until ctx ends. Defaults to false.
	Follow bool
}

// How often a reader that has caught up looks for more; a wake-up of this process ends the pause.
const (
	pauseMin = 5 * time.Millisecond
	pauseMax = 500 * time.Millisecond
)

// ReadAll reads the events of all streams in the order of their positions, each once. The order never changes: whoever goes on
// after the last position that they have seen misses nothing. With Follow, it catches up and then waits for more. Connections
// are used as in Read.
//
// An error ends the loop, and with Follow the end of ctx is one. It is an *outbox.FieldError for bad parameters.
func (s *Store) ReadAll(ctx context.Context, params ReadAllParams) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		if err := s.readAll(ctx, params, yield); err != nil {
			yield(Event{}, err)
		}
	}
}

func (s *Store) readAll(ctx context.Context, params ReadAllParams, yield func(Event, error) bool) error {
	if params.After < 0 || params.To < 0 {
		return field.Bad("ReadAllParams.After", "and To must not be negative")
	}
	field.Default(&params.To, math.MaxInt64)
	waiter := s.newWaiter()
	defer waiter.stop()
	for params.After < params.To {
		page, reached, err := s.page(ctx, params, pageEvents)
		if err != nil {
			return err
		}
		for i := range page {
			if !yield(page[i], nil) {
				return nil
			}
		}
		switch {
		case reached > params.After:
			params.After = reached
			waiter.busy()
		case !params.Follow:
			return nil
		default:
			if err := waiter.wait(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}

// page reads the events of the next positions, and returns the last of those positions, or where it began if there are none.
func (s *Store) page(ctx context.Context, params ReadAllParams, limit int) (page []Event, reached int64, err error) {
	arg := struct {
		After int64 `json:"after"`
		To    int64 `json:"to"`
		Limit int   `json:"limit"`
		Bytes int   `json:"bytes"`
	}{params.After, params.To, limit, pageBytes}
	reached = params.After
	err = s.inside.Run(ctx, s.db, "outbox_event_read_all", arg, func(rows *sql.Rows) error {
		var e Event
		_, err := e.scan(rows)
		reached = max(reached, e.Position)
		if e.Version > 0 {
			page = append(page, e)
		}
		return err
	})
	if err != nil {
		return nil, params.After, fmt.Errorf("read events: %w", err)
	}
	slices.SortFunc(page, func(a, b Event) int { return cmp.Compare(a.Position, b.Position) })
	return page, reached, nil
}
