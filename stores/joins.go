package stores

import (
	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/incursa/watermill-outbox/internal/field"
	"github.com/incursa/watermill-outbox/join"
)

// Coordinator returns a coordinator for the joins of a store. Dialect, Schema, Table and Store in config are replaced by the
// store's. A join and its steps live in one store. It returns what join.NewCoordinator returns.
func Coordinator(s *Store, config join.Config, logger watermill.LoggerAdapter) (*join.Coordinator, error) {
	d := s.Database()
	config.Dialect, config.Schema, config.Table, config.Store = d.Dialect, d.Schema, d.Table, d.ID
	return join.NewCoordinator(s.DB(), config, logger)
}

// AddWaitHandler adds the handler of join wait messages to a router, for every store of the subscriber: see
// join.Coordinator.AddWaitHandler. Dialect, Schema, Table and Store in config are replaced by those of each store. It returns an
// *outbox.FieldError that names a bad field.
func AddWaitHandler(router *message.Router, subscriber *Subscriber, config join.Config, logger watermill.LoggerAdapter) (*message.Handler, error) {
	field.Default(&config.WaitTopic, join.DefaultWaitTopic)
	if _, err := Coordinator(trial, config, nil); err != nil {
		return nil, err
	}
	handle := PerStore(func(s *Store) (message.HandlerFunc, error) {
		c, err := Coordinator(s, config, logger)
		if err != nil {
			return nil, err
		}
		return func(msg *message.Message) ([]*message.Message, error) { return nil, c.HandleWait(msg) }, nil
	})
	return router.AddConsumerHandler("outbox: "+config.WaitTopic, config.WaitTopic, subscriber, func(msg *message.Message) error {
		_, err := handle(msg)
		return err
	}), nil
}
