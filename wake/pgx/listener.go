package wakepgx

import (
	"context"
	"fmt"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/jackc/pgx/v5"

	"github.com/incursa/watermill-outbox/internal/field"
	"github.com/incursa/watermill-outbox/internal/flow"
	"github.com/incursa/watermill-outbox/internal/quiet"
)

// ListenerConfig configures a Listener.
type ListenerConfig struct {
	// DSN is the database of the outbox, in pgx's format. Required. The Listener keeps one connection of its own; behind a
	// pooler in transaction mode, such as PgBouncer, use the server's own address.
	DSN string

	// Channel is the NOTIFY channel, at most 63 bytes. Defaults to "outbox".
	Channel string
}

// Pauses before reconnecting.
const (
	reconnectMin = 100 * time.Millisecond
	reconnectMax = 10 * time.Second
)

// A Listener receives the wake-ups of Notifiers in other processes. Whenever it has connected it wakes all topics, because it
// cannot know what it has missed.
type Listener struct {
	config   *pgx.ConnConfig
	channel  string
	troubles *quiet.Troubles
	wakeups  chan string

	cancel context.CancelFunc
	done   chan struct{}
}

// NewListener starts a Listener. It connects in the background, and reconnects when the connection is lost. It returns an
// *outbox.FieldError that names a bad field.
func NewListener(config ListenerConfig, logger watermill.LoggerAdapter) (*Listener, error) {
	if config.DSN == "" { // which pgx takes for the settings of the environment
		return nil, field.Bad("ListenerConfig.DSN", "is empty; name the database of the outbox")
	}
	connConfig, err := pgx.ParseConfig(config.DSN)
	if err != nil {
		return nil, field.Bad("ListenerConfig.DSN", "is not a PostgreSQL DSN: %v", err)
	}
	field.Default(&config.Channel, defaultChannel)
	if err := validateChannel("ListenerConfig.Channel", config.Channel); err != nil {
		return nil, err
	}
	if logger == nil {
		logger = watermill.NopLogger{}
	}
	ctx, cancel := context.WithCancel(context.Background())
	l := &Listener{
		config: connConfig, channel: config.Channel, troubles: quiet.New(logger),
		wakeups: make(chan string, 256), cancel: cancel, done: make(chan struct{}),
	}
	go l.run(ctx)
	return l, nil
}

// Wakeups is for SubscriberConfig.Wakeups; it is never closed. A channel has one reader, so each Subscriber needs its own
// Listener.
func (l *Listener) Wakeups() <-chan string { return l.wakeups }

// Close stops the Listener and closes its connection.
func (l *Listener) Close() error {
	l.cancel()
	<-l.done
	return nil
}

func (l *Listener) run(ctx context.Context) {
	defer close(l.done)
	pauses := flow.Pauses{Shortest: reconnectMin, Longest: reconnectMax}
	for {
		listening, err := l.listen(ctx)
		if ctx.Err() != nil {
			return
		}
		if listening {
			pauses.Reset()
		}
		l.troubles.Error(notListening, err, nil)
		if flow.Pause(ctx, pauses.Next()) != nil {
			return
		}
	}
}

const notListening = "Lost the connection that listens for wake-ups; polling goes on meanwhile"

// listen returns when the connection is lost or ctx ends. It reports whether it was listening.
func (l *Listener) listen(ctx context.Context) (listening bool, err error) {
	conn, err := pgx.ConnectConfig(ctx, l.config)
	if err != nil {
		return false, fmt.Errorf("connect: %w", err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }() // the error at hand says why it ends
	if _, err := conn.Exec(ctx, "LISTEN "+pgx.Identifier{l.channel}.Sanitize()); err != nil {
		return false, fmt.Errorf("listen: %w", err)
	}
	l.troubles.Over(notListening)
	l.wake("") // all topics: nobody knows what was told meanwhile
	for {
		notification, err := conn.WaitForNotification(ctx)
		if err != nil {
			return true, fmt.Errorf("wait for a notification: %w", err)
		}
		l.wake(notification.Payload)
	}
}

func (l *Listener) wake(topic string) {
	select {
	case l.wakeups <- topic:
	default: // a full channel wakes its reader anyway
	}
}

// maxChannel is how many bytes PostgreSQL keeps of a name. LISTEN cuts off the rest, and NOTIFY refuses it.
const maxChannel = 63

func validateChannel(name, channel string) error {
	if len(channel) > maxChannel {
		return field.Bad(name, "has %d bytes; PostgreSQL takes %d", len(channel), maxChannel)
	}
	return nil
}
