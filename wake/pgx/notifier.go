package wakepgx

import (
	"context"
	"database/sql"
	_ "embed"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/internal/base"
	"github.com/incursa/watermill-outbox/internal/field"
	"github.com/incursa/watermill-outbox/internal/flow"
	"github.com/incursa/watermill-outbox/internal/quiet"
)

//go:embed notify.sql
var notifySQL string

// NotifierConfig configures a Notifier.
type NotifierConfig struct {
	// Channel is the NOTIFY channel, at most 63 bytes. Defaults to "outbox".
	Channel string

	// Store limits it to one of several outboxes in the process: the Store of PublisherConfig. Defaults to all.
	Store string

	// Interval is the shortest time between two NOTIFYs: each takes a lock that all commits with a NOTIFY share. Defaults to
	// 5 ms.
	Interval time.Duration
}

// A Notifier sends the wake-ups of this process (outbox.Wake, outbox.InTx, a Publisher's own commits) to the Listeners of
// other processes.
type Notifier struct {
	db       *sql.DB
	config   NotifierConfig
	troubles *quiet.Troubles

	mu     sync.Mutex
	topics map[string]struct{}
	note   chan struct{}

	stopListening func()
	cancel        context.CancelFunc
	done          chan struct{}
}

// NewNotifier starts a Notifier on a pool of the outbox's database. Close it before the pool. It returns an error if db is nil, or
// an *outbox.FieldError that names a bad field.
func NewNotifier(db *sql.DB, config NotifierConfig, logger watermill.LoggerAdapter) (*Notifier, error) {
	if db == nil {
		return nil, base.ErrNilDB
	}
	if config.Interval < 0 {
		return nil, field.Bad("NotifierConfig.Interval", "is negative")
	}
	field.Default(&config.Channel, defaultChannel)
	if err := validateChannel("NotifierConfig.Channel", config.Channel); err != nil {
		return nil, err
	}
	field.Default(&config.Interval, 5*time.Millisecond)
	if logger == nil {
		logger = watermill.NopLogger{}
	}
	ctx, cancel := context.WithCancel(context.Background())
	n := &Notifier{
		db: db, config: config, troubles: quiet.New(logger), topics: map[string]struct{}{},
		note: flow.NewNote(), cancel: cancel, done: make(chan struct{}),
	}
	n.stopListening = outbox.OnWake(config.Store, n.remember)
	go n.run(ctx)
	return n, nil
}

// Close stops the Notifier. Hints that were not sent are dropped: polling finds the messages.
func (n *Notifier) Close() error {
	n.stopListening()
	n.cancel()
	<-n.done
	return nil
}

func (n *Notifier) remember(topics []string) {
	n.mu.Lock()
	for _, topic := range topics {
		n.topics[topic] = struct{}{}
	}
	if len(topics) == 0 {
		n.topics[""] = struct{}{} // all
	}
	n.mu.Unlock()
	flow.Notify(n.note)
}

const cannotNotify = "Cannot notify other processes; they poll"

// run sends at once after a quiet interval, and then at most once per interval.
func (n *Notifier) run(ctx context.Context) {
	defer close(n.done)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-n.note:
		}
		if err := n.send(ctx); err != nil && ctx.Err() == nil {
			n.troubles.Error(cannotNotify, err, nil)
		} else if err == nil {
			n.troubles.Over(cannotNotify)
		}
		timer.Reset(n.config.Interval)
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
	}
}

func (n *Notifier) send(ctx context.Context) error {
	n.mu.Lock()
	topics := make([]string, 0, len(n.topics))
	for topic := range n.topics {
		topics = append(topics, topic)
	}
	clear(n.topics)
	n.mu.Unlock()
	if len(topics) == 0 {
		return nil
	}
	slices.Sort(topics)
	list, err := json.Marshal(topics)
	if err != nil {
		return fmt.Errorf("encode the topics: %w", err)
	}
	if _, err := n.db.ExecContext(ctx, notifySQL, n.config.Channel, string(list)); err != nil {
		return fmt.Errorf("notify: %w", err)
	}
	return nil
}
