package eventstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/ThreeDotsLabs/watermill"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/internal/base"
	"github.com/incursa/watermill-outbox/internal/field"
	"github.com/incursa/watermill-outbox/internal/seam"
)

// Config configures a Store.
type Config struct {
	// Dialect is the database: outbox.SQLServer{}, outbox.Postgres{} or outbox.SQLite{}. Required.
	Dialect outbox.Dialect

	// Schema and Table name the outbox. Default to dbo and Outbox on SQL Server,
	// public and outbox on PostgreSQL, and outbox on SQLite, where Schema must be empty.
	Schema, Table string

	// Store names this outbox among several, as in outbox.Config. Defaults to none.
	Store string

	// Topic is that of events without one of their own. Defaults to "events".
	Topic string

	// Hooks are called as things happen. Defaults to none.
	Hooks outbox.Hooks
}

// A Store appends events to streams, and reads them. It is safe for concurrent use; it holds no connection and need not be
// closed. Any call may return outbox.ErrSchema, and in the caller's transaction an error for which outbox.IsRetryable is true.
type Store struct {
	db     *sql.DB
	outbox *outbox.Outbox
	inside seam.Operations
	config Config
}

// New returns the event store of an outbox. It does not touch the database. A nil logger logs nothing. It returns
// an error if db is nil, or an *outbox.FieldError that names a bad field.
func New(db *sql.DB, config Config, logger watermill.LoggerAdapter) (*Store, error) {
	field.Default(&config.Topic, "events")
	if err := field.Key("Config.Topic", config.Topic); err != nil {
		return nil, err
	}
	o, err := outbox.New(db, outbox.Config{
		Dialect: config.Dialect, Schema: config.Schema, Table: config.Table, Store: config.Store, Log: outbox.LogOnly, Hooks: config.Hooks}, logger)
	if err != nil {
		return nil, err
	}
	return &Store{db: db, outbox: o, inside: seam.Outbox(o), config: config}, nil
}

// Appended are the versions that an append gave to its events. Repeated says that they were there already: nothing was
// written, and the versions are those of the first time.
type Appended struct {
	First, Last int64
	Repeated    bool
}

// Append appends events to a stream that has the expected version, in order, all or none. x is your transaction, or a
// *sql.Conn on which you have begun one; nil is that of the context (outbox.InTx, outbox.WithTx), or else a transaction of its
// own, as with a *sql.DB. If InTx began that of the context on another *sql.DB, Append returns an *outbox.FieldError. The
// stream stays locked for other appends until the transaction ends.
//
// It returns a *VersionError, ErrArchived, ErrDuplicate, or an *outbox.FieldError for a bad name or event. In all these cases
// nothing was written, and your transaction can go on. outbox.ErrUnknownOutcome means that the answer to its own commit was lost:
// with Event.IDs, append the events again.
func (s *Store) Append(ctx context.Context, x outbox.Executor, stream string, expected Expected, events ...Event) (Appended, error) {
	if err := expected.validate(); err != nil {
		return Appended{}, err
	}
	list := make([]base.Event, len(events))
	for i := range events {
		list[i] = s.stored(&events[i])
	}
	done, err := s.inside.AppendEvents(ctx, x, stream, expected.version, list)
	return Appended(done), refused(stream, expected, err)
}

// StreamEvents are events for one of several streams.
type StreamEvents struct {
	Stream   string
	Expected Expected
	Events   []Event
}

// AppendAll appends to several streams, all or none, and returns the versions in the order of its arguments. It takes the
// streams in order of their names, so that two calls never wait for each other; a stream may occur once. It returns the same
// errors as Append.
func (s *Store) AppendAll(ctx context.Context, x outbox.Executor, streams ...StreamEvents) ([]Appended, error) {
	order := make([]int, len(streams))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return strings.Compare(streams[a].Stream, streams[b].Stream) })
	for i := range order[min(1, len(order)):] {
		if name := streams[order[i]].Stream; name == streams[order[i+1]].Stream {
			return nil, field.Bad("Stream", "%q occurs twice; put its events into one", name)
		}
	}
	appended := make([]Appended, len(streams))
	err := s.inside.InTx(ctx, x, func(ctx context.Context, x outbox.Executor) (err error) {
		for _, i := range order {
			if appended[i], err = s.Append(ctx, x, streams[i].Stream, streams[i].Expected, streams[i].Events...); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return appended, nil
}

func refused(stream string, expected Expected, err error) error {
	var refusal *base.VersionRefusal
	if errors.As(err, &refusal) {
		return &VersionError{Stream: stream, Expected: expected, Actual: refusal.Actual}
	}
	return err
}

// Archive closes a stream that has the expected version: it takes no more events, and Read returns its events only if asked
// to. Events keep their place in the log. x is as in Append. It returns a *VersionError, also if the stream has no events.
func (s *Store) Archive(ctx context.Context, x outbox.Executor, stream string, expected Expected) error {
	return s.change(ctx, x, "archive", stream, expected)
}

// Delete hides the events of a stream that has the expected version: it then counts as having none, and events appended later
// continue with the next version. Events keep their place in the log. x is as in Append. It returns a *VersionError, also if the
// stream has no events.
func (s *Store) Delete(ctx context.Context, x outbox.Executor, stream string, expected Expected) error {
	return s.change(ctx, x, "delete", stream, expected)
}

// Restore undoes Archive and Delete, except for what was purged. x is as in Append. It returns a *VersionError if there never
// was such a stream.
func (s *Store) Restore(ctx context.Context, x outbox.Executor, stream string) error {
	return s.change(ctx, x, "restore", stream, Any)
}

func (s *Store) change(ctx context.Context, x outbox.Executor, change, stream string, expected Expected) error {
	if err := validateStream(stream); err != nil {
		return err
	}
	if err := expected.validate(); err != nil {
		return err
	}
	if expected == NoStream {
		return field.Bad("Expected", "is NoStream; there is nothing to %s", change)
	}
	var kind int
	var actual int64
	arg := struct {
		Change   string `json:"change"`
		Stream   string `json:"stream"`
		Expected int64  `json:"expected"`
	}{change, stream, expected.version}
	if err := s.inside.Run(ctx, x, "outbox_event_change", arg, func(rows *sql.Rows) error { return rows.Scan(&kind, &actual) }); err != nil {
		return fmt.Errorf("%s the stream %q: %w", change, stream, err)
	}
	if kind != changed {
		return &VersionError{Stream: stream, Expected: expected, Actual: actual}
	}
	return nil
}

// changed is what the operation answers if it did something.
const changed = 1

// Purge deletes the events of an archived stream, or those of one that were deleted, for good, in small batches, and returns
// how many. The stream's version stays, so that no version is ever given twice. It returns ErrNotPassed if events are left that
// are still to be read; call it again later.
func (s *Store) Purge(ctx context.Context, stream string) (purged int, err error) {
	if err := validateStream(stream); err != nil {
		return 0, err
	}
	arg := struct {
		Stream string `json:"stream"`
		Limit  int    `json:"limit"`
	}{stream, pageEvents}
	for {
		var n, left int
		if err := s.inside.Run(ctx, s.db, "outbox_event_purge", arg, func(rows *sql.Rows) error { return rows.Scan(&n, &left) }); err != nil {
			return purged, fmt.Errorf("purge the stream %q: %w", stream, err)
		}
		purged += n
		switch {
		case left == 0:
			return purged, nil
		case n == 0:
			return purged, fmt.Errorf("purge the stream %q, of which %d events are left: %w", stream, left, ErrNotPassed)
		}
	}
}

func validateStream(stream string) error {
	if stream == "" {
		return field.Bad("Stream", "is empty; name the stream")
	}
	return field.Key("Stream", stream)
}
