package stages_test

import (
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/inbox"
	"github.com/incursa/watermill-outbox/internal/seam"
	"github.com/incursa/watermill-outbox/internal/testoutbox"
	"github.com/incursa/watermill-outbox/middleware"
)

func nothing(*message.Message) error { return nil }

func TestStages_RefuseBadFields(t *testing.T) {
	good := middleware.Stage{Bit: middleware.ReceptorProcessed, Run: nothing}
	for field, stages := range map[string][]middleware.Stage{
		"stages":    nil,
		"Stage.Bit": {{Run: nothing}},
		"Stage.Run": {{Bit: first}},
	} {
		_, err := middleware.Stages(stages...)
		var bad *outbox.FieldError
		require.ErrorAs(t, err, &bad)
		require.Equal(t, field, bad.Field)
	}
	for _, bit := range []middleware.StageSet{middleware.Stored, first | second, 1 << 5, middleware.OwnStage << 16, good.Bit} {
		_, err := middleware.Stages(good, middleware.Stage{Bit: bit, Run: nothing})
		var bad *outbox.FieldError
		require.ErrorAs(t, err, &bad, "%#x", uint32(bit))
		require.Equal(t, "Stage.Bit", bad.Field)
	}
	_, err := middleware.Stages(good, middleware.Stage{Bit: middleware.OwnStage << 15, Run: nothing})
	require.NoError(t, err)
}

func TestStages_RefuseOtherMessages(t *testing.T) {
	handler, err := middleware.Stages(middleware.Stage{Bit: first, Run: nothing})
	require.NoError(t, err)
	require.True(t, outbox.IsPermanent(handler(message.NewMessage("1", nil))))
}

// A rollback of the transaction around them would undo stages that are saved as done.
func TestStages_RefuseATransaction(t *testing.T) {
	forEach(t, func(t *testing.T, f fixture) {
		transaction, err := middleware.Transaction(f.DB.DB, middleware.TransactionConfig{})
		f.NoError(err)
		r := f.newRun(firstFails)
		handler := f.handler(r.stage("a", 0, nil))
		inside := transaction(func(msg *message.Message) ([]*message.Message, error) { return nil, handler(msg) })
		f.Enqueue("orders", 1, 1)
		f.serve("orders", func(msg *message.Message) error { _, err := inside(msg); return err })
		f.Becomes(outbox.Failed, 1)
		f.Contains(f.Rows()[0].LastError, "TransactionConfig.Exempt")
		f.Empty(r.ran())
	})
}

func TestStages_RefuseTheInbox(t *testing.T) {
	forEach(t, func(t *testing.T, f fixture) {
		config := inbox.Config{Dialect: testoutbox.Dialect(f.DB.Name), Schema: f.DB.Schema}
		f.NoError(inbox.Migrate(t.Context(), f.DB.DB, config))
		in, err := inbox.New(f.DB.DB, config, nil)
		f.NoError(err)
		once, err := middleware.Inbox(in, inbox.Identity{Source: "shop", Handler: "ship"})
		f.NoError(err)
		r := f.newRun(firstFails)
		handler := f.handler(r.stage("a", 0, nil))
		inside := once(func(msg *message.Message) ([]*message.Message, error) { return nil, handler(msg) })
		f.Enqueue("orders", 1, 1)
		f.serve("orders", func(msg *message.Message) error { _, err := inside(msg); return err })
		f.Becomes(outbox.Failed, 1)
		f.Contains(f.Rows()[0].LastError, "that middleware.Inbox exempts")
		f.Empty(r.ran())
	})
}

func TestStages_RefuseAConsumerGroup(t *testing.T) {
	forEach(t, func(t *testing.T, f fixture) {
		log, err := outbox.New(f.DB.DB, outbox.Config{Dialect: testoutbox.Dialect(f.DB.Name), Schema: f.DB.Schema, Log: outbox.LogOnly}, nil)
		f.NoError(err)
		_, err = log.Enqueue(t.Context(), f.DB.DB, outbox.Message{UUID: "1", Topic: "orders"})
		f.NoError(err)
		sequencer, err := outbox.NewSequencer(f.DB.DB, outbox.SequencerConfig{Dialect: testoutbox.Dialect(f.DB.Name), Schema: f.DB.Schema}, nil)
		f.NoError(err)
		_, err = seam.Sequencer(sequencer).Stamp(t.Context())
		f.NoError(err)
		r := f.newRun(firstFails)
		refused := make(chan error, 1)
		handler := f.handler(r.stage("a", 0, nil))
		f.serve("orders", func(msg *message.Message) error {
			refused <- handler(msg)
			return nil
		}, func(c *outbox.SubscriberConfig) { c.ConsumerGroup = "billing" })
		f.ErrorContains(<-refused, "a message of the queue")
		f.Empty(r.ran())
	})
}

func TestStages_RefuseBitsThatAreNone(t *testing.T) {
	forEach(t, func(_ *testing.T, f fixture) {
		for _, bits := range []middleware.StageSet{1 << 5, 1 << 24, 1 << 31} {
			_, err := f.Settle(f.T.Context(), f.DB.DB, []outbox.Settlement{{Stages: bits}})
			var bad *outbox.FieldError
			f.ErrorAs(err, &bad)
			f.Equal("Settlement.Stages", bad.Field)
		}
	})
}
