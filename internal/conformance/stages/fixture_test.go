package stages_test

import (
	"context"
	"database/sql"
	"fmt"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/internal/testdb"
	"github.com/incursa/watermill-outbox/internal/testoutbox"
	"github.com/incursa/watermill-outbox/middleware"
)

// The stages of these tests.
const (
	first = middleware.OwnStage << iota
	second
	third
)

// A fixture is an outbox, and a table of what stages have done.
type fixture struct{ *testoutbox.Outbox }

func forEach(t *testing.T, test func(t *testing.T, f fixture)) {
	t.Helper()
	testoutbox.ForEach(t, func(t *testing.T, o *testoutbox.Outbox) {
		f := fixture{o}
		f.Exec("CREATE TABLE %s (stage INT NOT NULL, message VARCHAR(40) NOT NULL)", f.effects())
		test(t, f)
	})
}

func (f fixture) effects() string { return f.Table("effects") }

// affect is what a stage does for a message, in the transaction that the context carries, or at once.
func affect(db *sql.DB, table string, stage int, msg *message.Message) error {
	x := outbox.Executor(db)
	if tx, ok := outbox.TxFrom(msg.Context()); ok {
		x = tx
	}
	_, err := x.ExecContext(msg.Context(), fmt.Sprintf("INSERT INTO %s (stage, message) VALUES (%d, '%s')", table, stage, msg.UUID))
	return err
}

func (f fixture) affected(stage int) int {
	f.T.Helper()
	return f.Number("SELECT COUNT(*) FROM %s WHERE stage = %d", f.effects(), stage)
}

func (f fixture) add(messages ...outbox.Message) []outbox.MessageID {
	f.T.Helper()
	ids, err := f.Outbox.Outbox.Enqueue(f.T.Context(), f.DB.DB, messages...)
	f.NoError(err)
	return ids
}

// claim takes the one message of a topic.
func (f fixture) claim(topic string) outbox.Claimed {
	f.T.Helper()
	claimed := f.claimAll(topic, time.Minute)
	f.Len(claimed, 1)
	return claimed[0]
}

func (f fixture) claimAll(topic string, lease time.Duration) (claimed []outbox.Claimed) {
	f.T.Helper()
	params := outbox.ClaimParams{Topics: []outbox.TopicQuota{{Topic: topic}}, Lease: lease, GiveBack: -1}
	f.Eventually(func() bool {
		var err error
		claimed, err = f.Claim(f.T.Context(), params)
		f.NoError(err)
		return len(claimed) > 0
	}, testoutbox.Patience, time.Millisecond, "nothing of %s is due", topic)
	return claimed
}

func (f fixture) settle(settlements ...outbox.Settlement) (refused []outbox.WorkItemID) {
	f.T.Helper()
	refused, err := f.Settle(f.T.Context(), f.DB.DB, settlements)
	f.NoError(err)
	return refused
}

// record is the message of a uuid, as it stands.
func (f fixture) record(id outbox.MessageID) outbox.Record {
	f.T.Helper()
	records, err := f.Get(f.T.Context(), id)
	f.NoError(err)
	f.Len(records, 1)
	return records[0]
}

// shown is what the view says of the stages of a message.
func (f fixture) shown(c outbox.Claimed) (names string) {
	f.T.Helper()
	view := f.Table(testdb.Part(f.DB.Name, testoutbox.Dialect(f.DB.Name).Traits().Table, "view"))
	query := f.SQL("SELECT {stages} FROM %s WHERE {seq} = %d", view, c.Receipt.Seq)
	f.NoError(f.DB.QueryRowContext(f.T.Context(), query).Scan(&names))
	return names
}

// expire ends every lease.
func (f fixture) expire() {
	f.T.Helper()
	long := "'2000-01-01'"
	if f.DB.Name == testdb.SQLite {
		long = "1"
	}
	f.Exec("UPDATE {outbox_lease} SET {locked_until} = %s", long)
}

// serve handles the messages of a topic until the test ends.
func (f fixture) serve(topic string, handler message.NoPublishHandlerFunc, options ...func(*outbox.SubscriberConfig)) {
	f.T.Helper()
	config := f.Subscriber()
	for _, option := range options {
		option(&config)
	}
	subscriber, err := outbox.NewSubscriber(f.DB.DB, config, nil)
	f.NoError(err)
	messages, err := subscriber.Subscribe(context.WithoutCancel(f.T.Context()), topic)
	f.NoError(err)
	handle := middleware.Outcome(func(msg *message.Message) ([]*message.Message, error) { return nil, handler(msg) })
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for msg := range messages {
			if err := recovered(handle, msg); err != nil {
				msg.Nack()
			} else {
				msg.Ack()
			}
		}
	}()
	f.T.Cleanup(func() {
		if err := subscriber.Close(); err != nil {
			f.T.Errorf("closing the subscriber: %v", err)
		}
		<-ended
	})
}

// handler is middleware.Stages.
func (f fixture) handler(stages ...middleware.Stage) message.NoPublishHandlerFunc {
	f.T.Helper()
	handler, err := middleware.Stages(stages...)
	f.NoError(err)
	return handler
}

func delivery(msg *message.Message) *outbox.Delivery {
	d, ok := outbox.DeliveryFrom(msg.Context())
	if !ok {
		panic("the message is of no outbox")
	}
	return d
}

// recovered calls a handler as a router does: a panic is an error.
func recovered(handle message.HandlerFunc, msg *message.Message) (err error) {
	defer func() {
		if reason := recover(); reason != nil {
			err = fmt.Errorf("panic: %v", reason)
		}
	}()
	_, err = handle(msg)
	return err
}
