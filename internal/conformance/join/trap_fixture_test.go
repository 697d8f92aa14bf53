package join_test

import (
	"context"
	"database/sql"
	"errors"
	"sync"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/incursa/watermill-outbox/internal/conformance/suite"
	"github.com/incursa/watermill-outbox/internal/testdb"
	"github.com/incursa/watermill-outbox/join"
	"github.com/incursa/watermill-outbox/middleware"
)

// What the traps of joins have in common: the tables as they are, and workers of which it is known that they wait for a lock.

// serveWaits runs a router with the handler of waits, inside the middlewares, until stop is called, or the test ends.
func (f *fixture) serveWaits(c *join.Coordinator, s message.Subscriber, inside ...message.HandlerMiddleware) (stop func()) {
	f.T.Helper()
	router, err := message.NewRouter(message.RouterConfig{CloseTimeout: suite.Patience}, nil)
	f.NoError(err)
	router.AddMiddleware(append([]message.HandlerMiddleware{middleware.Outcome}, inside...)...)
	c.AddWaitHandler(router, s)
	stopped := make(chan error, 1)
	go func() { stopped <- router.Run(context.WithoutCancel(f.Context())) }()
	suite.Take(f.T, router.Running(), "the router")
	stop = sync.OnceFunc(func() {
		if err := errors.Join(router.Close(), <-stopped); err != nil {
			f.T.Errorf("closing the router: %v", err)
		}
	})
	f.T.Cleanup(stop)
	return stop
}

// continuations is how many messages there are on a topic, whatever became of them.
func (f *fixture) continuations(topic string) int {
	f.T.Helper()
	return int(f.Number("SELECT COUNT(*) FROM {all} WHERE {topic} = '%s'", topic))
}

// defaultLevels are isolation levels that a connection may have by default. On SQL Server the procedures choose their own.
func (f *fixture) defaultLevels() []string {
	if f.DB.Name == testdb.Postgres {
		return []string{"READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"}
	}
	return []string{""}
}

// separateProcedures: what a procedure in one transaction keeps in table variables holds up no procedure in another.
var separateProcedures = suite.NewCapability("procedures that wait for nothing but rows", func(ctx context.Context, db *testdb.DB) (string, error) {
	if db.Name != testdb.SQLServer {
		return "", nil
	}
	return suite.WithProbe(ctx, db, func(probe string, holder, other *sql.Conn) (lacks string, err error) {
		create, drop := "CREATE PROCEDURE "+probe+"_v AS BEGIN SET NOCOUNT ON; DECLARE @A TABLE (id INT NOT NULL PRIMARY KEY); INSERT INTO @A (id) VALUES (1); END",
			"DROP PROCEDURE "+probe+"_v"
		if _, err := other.ExecContext(ctx, create); err != nil {
			return "", err
		}
		defer func() {
			_, dropErr := other.ExecContext(context.WithoutCancel(ctx), drop)
			err = errors.Join(err, dropErr)
		}()
		return suite.ProbeWhileLocked(ctx, db, holder, "EXEC "+probe+"_v", func(ctx context.Context) (string, error) {
			_, err := other.ExecContext(ctx, "EXEC "+probe+"_v")
			return "", err
		})
	})
})
