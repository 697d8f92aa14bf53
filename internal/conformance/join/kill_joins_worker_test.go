package join_test

import (
	"context"
	"database/sql"
	"errors"
	"io"
	"os"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/internal/conformance/suite"
	"github.com/incursa/watermill-outbox/internal/seam"
	"github.com/incursa/watermill-outbox/join"
	"github.com/incursa/watermill-outbox/middleware"
	wakepgx "github.com/incursa/watermill-outbox/wake/pgx"
)

// joinJob is what a worker process does besides: it handles the waits of joins, and what follows on the topic next.
type joinJob struct {
	Recheck time.Duration // how often it looks at a join; 0 for a worker without joins
	Poll    time.Duration // the pause between claims, unless it is woken; 0 for the kill test's
	Channel string        // of the wake-ups of other processes; empty for none
	Mark    string        // the topics of waits and of what follows end with this, so that no other test wakes the worker
}

// workOnJoins is the life of such a worker: steps, waits and what follows, on one router.
func (job killJob) workOnJoins(db *sql.DB, config outbox.SubscriberConfig, tell func(event string, value any)) (err error) {
	if job.Joins.Poll > 0 {
		config.PollInterval, config.MaxPollInterval = job.Joins.Poll, job.Joins.Poll
	}
	if job.Joins.Channel != "" {
		listener, err := wakepgx.NewListener(wakepgx.ListenerConfig{DSN: job.DSN, Channel: job.Joins.Channel}, nil)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, listener.Close()) }()
		config.Wakeups = listener.Wakeups()
	}
	sub, err := outbox.NewSubscriber(db, config, nil)
	if err != nil {
		return err
	}
	c, err := join.NewCoordinator(db, join.Config{
		Dialect: config.Dialect, Schema: job.Schema, Table: job.Table, RecheckInterval: job.Joins.Recheck,
		WaitTopic: join.DefaultWaitTopic + job.Joins.Mark}, nil)
	if err != nil {
		return err
	}
	router, err := message.NewRouter(message.RouterConfig{CloseTimeout: 30 * time.Second}, nil)
	if err != nil {
		return err
	}
	router.AddMiddleware(middleware.Outcome)
	router.AddConsumerHandler("work", "work", sub, func(msg *message.Message) error { return job.record(db, msg, tell) })
	router.AddConsumerHandler("next", "next"+job.Joins.Mark, sub, func(msg *message.Message) error {
		tell(killFollowed, string(msg.Payload))
		return nil
	})
	c.AddWaitHandler(router, sub).AddMiddleware(func(next message.HandlerFunc) message.HandlerFunc {
		return func(msg *message.Message) ([]*message.Message, error) {
			_, owner := seam.Delivery(suite.DeliveryOf(msg)).Claim()
			tell(killTaken, owner)
			produced, err := next(msg)
			tell(killContinued, "")
			return produced, err
		}
	})
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin) // its end is the end of the job
		_ = router.Close()                   // whether all is settled is for the test to see
	}()
	return errors.Join(router.Run(context.Background()), sub.Close())
}
