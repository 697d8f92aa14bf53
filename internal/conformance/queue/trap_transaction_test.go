package queue_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	wmmiddleware "github.com/ThreeDotsLabs/watermill/message/router/middleware"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/internal/conformance/suite"
	"github.com/incursa/watermill-outbox/internal/faults"
	"github.com/incursa/watermill-outbox/internal/testdb"
	"github.com/incursa/watermill-outbox/join"
	"github.com/incursa/watermill-outbox/middleware"
)

// transaction is middleware.Transaction on a pool.
func (f *fixture) transaction(pool *sql.DB) message.HandlerMiddleware {
	f.T.Helper()
	t, err := middleware.Transaction(pool, middleware.TransactionConfig{
		Publisher: f.Publisher(pool, func(c *outbox.PublisherConfig) { c.RequireTx = true })})
	f.NoError(err)
	return t
}

// shop runs a handler of orders whose messages go to next, until the test ends.
func (f *fixture) shop(publisher message.Publisher, handler message.HandlerFunc, middlewares ...message.HandlerMiddleware) *message.Router {
	f.T.Helper()
	router, err := message.NewRouter(message.RouterConfig{CloseTimeout: suite.Patience}, nil)
	f.NoError(err)
	router.AddMiddleware(middlewares...)
	router.AddHandler("shop", "orders", f.Subscriber(), "next", publisher, handler)
	return router
}

func (f *fixture) open(router *message.Router) {
	f.T.Helper()
	stopped := make(chan error, 1)
	go func() { stopped <- router.Run(context.WithoutCancel(f.Context())) }()
	suite.Take(f.T, router.Running(), "the router")
	f.T.Cleanup(func() { f.NoError(errors.Join(router.Close(), <-stopped)) })
}

// ordering writes an effect in the transaction of the message and returns a message, after what fail says.
func (f *fixture) ordering(fail func(msg *message.Message) error) message.HandlerFunc {
	effects := f.Publisher(nil, func(c *outbox.PublisherConfig) { c.RequireTx = true })
	return func(msg *message.Message) ([]*message.Message, error) {
		effect := message.NewMessage(msg.UUID, nil)
		effect.SetContext(msg.Context())
		if err := effects.Publish("effects", effect); err != nil {
			return nil, err
		}
		return []*message.Message{message.NewMessage(msg.UUID, nil)}, fail(msg)
	}
}

// happensOnce asserts that a message has been done, its effect is there once, and so is what its handler returned.
func (f *fixture) happensOnce(id outbox.MessageID, uuid string) {
	f.T.Helper()
	f.Becomes(id, outbox.Done)
	f.Len(f.Rows("{topic} = 'effects' AND {uuid} = '%s'", uuid), 1)
	f.Len(f.Rows("{topic} = 'next' AND {uuid} = '%s'", uuid), 1)
}

func TestTrap_AHandlerInATransaction(t *testing.T) {
	retry := wmmiddleware.Retry{MaxRetries: 3, InitialInterval: time.Millisecond, ResetContextOnRetry: true}.Middleware
	plainRetry := wmmiddleware.Retry{MaxRetries: 3, InitialInterval: time.Millisecond}.Middleware
	timeout := wmmiddleware.Timeout(suite.Patience)
	for name, outer := range map[string][]message.HandlerMiddleware{
		"alone":     nil,
		"outcome":   {middleware.Outcome},
		"retry":     {middleware.Outcome, plainRetry},
		"timeout":   {middleware.Outcome, timeout},
		"recoverer": {middleware.Outcome, wmmiddleware.Recoverer},
		"all":       {middleware.Outcome, retry, timeout, wmmiddleware.Recoverer},
	} {
		t.Run(name, func(t *testing.T) {
			forEach(t, func(t *testing.T, f *fixture) {
				var calls atomic.Int32
				handler := f.ordering(func(msg *message.Message) error {
					switch calls.Add(1) {
					case 1:
						return errors.New("rolled back")
					case 2:
						panic("rolled back")
					}
					_, ok := outbox.TxFrom(msg.Context())
					f.True(ok)
					return nil
				})
				restored := func(next message.HandlerFunc) message.HandlerFunc {
					return func(msg *message.Message) ([]*message.Message, error) {
						received := msg.Context()
						defer func() { f.Equal(received, msg.Context()) }()
						return next(msg)
					}
				}
				chain := append(append([]message.HandlerMiddleware(nil), outer...), restored, f.transaction(f.DB.DB), wmmiddleware.CorrelationID)
				router := f.shop(f.Publisher(f.DB.DB), handler, chain...)
				f.open(router)
				ids := f.Enqueue(
					outbox.Message{UUID: "1", Topic: "orders", CorrelationID: "c"},
					outbox.Message{UUID: "2", Topic: "orders", CorrelationID: "c"})
				f.happensOnce(ids[0], "1")
				f.happensOnce(ids[1], "2")
				f.Len(f.Rows("{topic} = 'next' AND {correlation_id} = 'c'"), 2)
				f.EqualValues(4, calls.Load())
			})
		})
	}
}

// The worker's connection is lost at each statement of the transaction in turn, before it and after it.
func TestTrap_ATransactionThatIsCut(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		for _, kind := range []faults.Kind{faults.Cut, faults.CutAfter} {
			var at, n atomic.Int64
			var fired atomic.Bool
			hooks := faults.Hooks{Fault: func(context.Context, faults.Statement) faults.Fault {
				if n.Add(1) != at.Load() {
					return faults.Fault{}
				}
				fired.Store(true)
				return faults.Fault{Kind: kind}
			}}
			router := f.shop(f.Publisher(f.DB.DB), f.ordering(func(*message.Message) error { return nil }),
				middleware.Outcome, f.transaction(faults.Open(t, f.DB, hooks)))
			f.open(router)
			for fired.Store(true); fired.Load(); {
				uuid := fmt.Sprint(kind, at.Add(1))
				fired.Store(false)
				n.Store(0)
				f.happensOnce(f.Enqueue(outbox.Message{UUID: uuid, Topic: "orders"})[0], uuid)
			}
			f.Greater(at.Load(), int64(4))
			f.NoError(router.Close())
		}
	})
}

func TestTrap_WaitsMakeTransactionsOfTheirOwn(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		c := f.Joins()
		router, err := message.NewRouter(message.RouterConfig{CloseTimeout: suite.Patience}, nil)
		f.NoError(err)
		router.AddMiddleware(middleware.Outcome, f.transaction(f.DB.DB))
		c.AddWaitHandler(router, f.Subscriber())
		f.open(router)
		id := f.Start(c, join.StartParams{ExpectedSteps: 1})
		wait := f.Wait(c, suite.Waits(id, "next", ""))
		f.NoError(c.AttachByReport(f.Context(), nil, id, outbox.MessageID{1}))
		f.NoError(c.ReportStepCompleted(f.Context(), nil, id, outbox.MessageID{1}))
		f.Continues(wait, "next")
	})
}

type brokenPublisher struct{ err error }

func (p brokenPublisher) Publish(string, ...*message.Message) error { return p.err }
func (p brokenPublisher) Close() error                              { return nil }

func TestTrap_ThePublisherOfTheRouterFails(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		for _, decorated := range []bool{false, true} {
			var broken message.Publisher = brokenPublisher{errors.New("the broker is away")}
			handler := func(msg *message.Message) ([]*message.Message, error) {
				return []*message.Message{message.NewMessage("1", nil)}, nil
			}
			router := f.shop(broken, handler, middleware.Outcome)
			if decorated {
				router.AddPublisherDecorators(middleware.PublishOutcome)
			}
			f.open(router)
			id := f.EnqueueN("orders", 1)[0]
			f.Eventually(func() bool { return f.Row(id).HasError }, suite.Patience, time.Millisecond)
			lastError := f.Row(id).LastError
			f.NotContains(lastError, "put middleware.Outcome first")
			if decorated {
				f.Contains(lastError, "the broker is away")
			} else {
				f.Contains(lastError, "the handler succeeded")
			}
			f.NoError(router.Close())
			f.Clear()
		}
	})
}

func TestTrap_APanicWithAPermanentError(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		router := f.shop(f.Publisher(f.DB.DB), func(*message.Message) ([]*message.Message, error) {
			panic(outbox.Permanent(errors.New("the order is void")))
		}, middleware.Outcome)
		f.open(router)
		id := f.EnqueueN("orders", 1)[0]
		r := f.Becomes(id, outbox.Failed)
		f.Contains(r.LastError, "the order is void")
		f.LessOrEqual(r.Retries, 1)
	})
}

// A statement whose error nobody has returned dooms the transaction on PostgreSQL, and its COMMIT rolls back. That is certain.
func TestTrap_ACommitOfATransactionThatHasFailed(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		work := func(ctx context.Context, tx *sql.Tx) error {
			f.ExecOn(tx, "CREATE TABLE %s (n INT)", f.Object("half"))
			_, err := tx.ExecContext(ctx, "SELECT no_such_column")
			f.Error(err)
			return nil
		}
		handle := f.transaction(f.DB.DB)(func(msg *message.Message) ([]*message.Message, error) {
			tx, ok := outbox.TxFrom(msg.Context())
			f.True(ok)
			return nil, work(msg.Context(), tx)
		})
		for name, do := range map[string]func() error{
			"InTx": func() error { return outbox.InTx(f.Context(), f.DB.DB, work) },
			"Transaction": func() error {
				_, err := handle(message.NewMessage("of another subscriber", nil))
				return err
			},
		} {
			err := do()
			if f.DB.Name != testdb.Postgres {
				f.NotErrorIs(err, outbox.ErrUnknownOutcome, name)
				f.Exec("DROP TABLE IF EXISTS %s", f.Object("half"))
				continue
			}
			f.ErrorContains(err, "return the error of that statement", name)
			f.NotErrorIs(err, outbox.ErrUnknownOutcome, name)
			_, err = f.DB.ExecContext(f.Context(), "SELECT * FROM "+f.Object("half"))
			f.Error(err, "%s: rolled back", name)
		}
	})
}
