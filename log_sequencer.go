package outbox

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/incursa/watermill-outbox/internal/base"
	"github.com/incursa/watermill-outbox/internal/field"
	"github.com/incursa/watermill-outbox/internal/flow"
	"github.com/incursa/watermill-outbox/internal/limits"
)

// LogMode says whether messages go to the queue, to the log, or to both.
type LogMode int

// The modes. The queue delivers each message to one of its workers; the log delivers it to every consumer group, in order.
const (
	QueueOnly   LogMode = 0
	QueueAndLog LogMode = 1
	LogOnly     LogMode = 2
)

func (m LogMode) validate(name string) error {
	if m < QueueOnly || m > LogOnly {
		return field.Bad(name, "%d is none of QueueOnly, QueueAndLog and LogOnly", int(m))
	}
	return nil
}

// SequencerConfig configures a Sequencer.
type SequencerConfig struct {
	// Dialect is the database: SQLServer{}, Postgres{} or SQLite{}. Required.
	Dialect Dialect

	// Schema and Table name the outbox. Default to dbo and Outbox on SQL Server,
	// public and outbox on PostgreSQL, and outbox on SQLite, where Schema must be empty.
	Schema, Table string

	// Store names this outbox among several, as in Config. Defaults to none.
	Store string

	// PollInterval is the pause after a poll that found nothing. It doubles each time, up to MaxPollInterval. A wake-up
	// ends it. Defaults to 5 ms.
	PollInterval time.Duration

	// MaxPollInterval is the longest pause. Defaults to 500 ms.
	MaxPollInterval time.Duration

	// Wakeups carries the wake-ups of other processes, from wake/pgx for example: what they publish then gets its position
	// at once. Wake-ups of this process need no channel. A channel must have only one reader. Defaults to none.
	Wakeups <-chan string

	// Timeout is how long one round may take, including the wait for a connection, before it fails and is tried again.
	// Defaults to 15 s.
	Timeout time.Duration
}

const cannotStamp = "Cannot give positions to messages, trying again"

// A Sequencer gives the messages of the log their positions once they are committed: the order in which consumer groups
// read them. It keeps each producer's order. A transaction that commits late holds up no one, and no one misses it.
//
// At least one must run for each outbox that has a log. Several may run at once: they take turns.
type Sequencer struct {
	outbox *Outbox
	config SequencerConfig
	pacer  *flow.Pacer
}

// NewSequencer returns a sequencer of the outbox on db. It does not touch the database. A nil logger logs nothing.
// It returns an error if db is nil, or a *FieldError that names a bad field.
func NewSequencer(db *sql.DB, config SequencerConfig, logger watermill.LoggerAdapter) (*Sequencer, error) {
	field.Default(&config.PollInterval, 5*time.Millisecond)
	field.Default(&config.MaxPollInterval, max(500*time.Millisecond, config.PollInterval))
	if config.PollInterval < 0 || config.MaxPollInterval < config.PollInterval {
		return nil, field.Bad("SequencerConfig.PollInterval", "%v is not between 0 and MaxPollInterval, %v", config.PollInterval, config.MaxPollInterval)
	}
	field.Default(&config.Timeout, limits.Stamping(limits.DefaultLease))
	if config.Timeout < 0 {
		return nil, field.Bad("SequencerConfig.Timeout", "%v is negative", config.Timeout)
	}
	if db == nil {
		return nil, base.ErrNilDB
	}
	o, err := newOutbox(db, Config{Dialect: config.Dialect, Schema: config.Schema, Table: config.Table, Store: config.Store}, logger)
	if err != nil {
		return nil, field.In("SequencerConfig", err)
	}
	return &Sequencer{outbox: o, config: config, pacer: flow.NewPacer(config.PollInterval, config.MaxPollInterval)}, nil
}

// Run gives positions until ctx ends, and then returns nil. Errors of the database are logged, and retried.
func (s *Sequencer) Run(ctx context.Context) error {
	stop := wakeOn(s.pacer, s.outbox.config.Store, s.config.Wakeups, func(string) bool { return true })
	defer stop()
	outage := flow.Outage()
	for ctx.Err() == nil {
		n, err := s.stamp(ctx)
		switch {
		case err != nil && ctx.Err() == nil:
			s.outbox.troubles.Error(cannotStamp, err, nil)
			s.pacer.Pause(outage.Next(), nil, ctx.Done())
			continue
		case err != nil: // ctx has ended
			return nil
		case n == 0:
			s.pacer.Idle(nil, ctx.Done())
		default:
			s.pacer.Busy()
		}
		s.outbox.troubles.Over(cannotStamp)
		outage.Reset()
	}
	return nil
}

// stamp gives the next positions to up to 1,000 committed messages, wakes the readers of their topics, and returns how
// many. It is one round of Run.
func (s *Sequencer) stamp(ctx context.Context) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, s.config.Timeout)
	defer cancel()
	total := 0
	var topics []string
	err := s.outbox.run(ctx, s.outbox.db, opLogStamp, struct {
		Limit int `json:"limit"`
	}{maxBatch}, nil, func(rows *sql.Rows) error {
		var topic string
		var n int
		err := rows.Scan(&topic, &n)
		total += n
		topics = append(topics, topic)
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("give positions: %w", err)
	}
	if total > 0 {
		wakeStore(s.outbox.config.Store, topics...)
	}
	return total, nil
}
