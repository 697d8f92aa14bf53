package stores

import (
	"context"
	"database/sql"
	"reflect"
	"sync"
	"sync/atomic"

	"github.com/ThreeDotsLabs/watermill"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/internal/field"
)

// A Store is one of many outboxes, with the connection pool of its database. It is constructed once and kept as long as its
// configuration does not change. It is safe for concurrent use.
type Store struct {
	database Database
	weight   atomic.Int64
	db       *sql.DB
	owned    bool // whether db is closed with the store
	outbox   *outbox.Outbox
	log      outbox.LogMode
	hooks    outbox.Hooks
	parts    parts

	mu      sync.Mutex
	users   int  // that must let go before the pool is closed
	retired bool // nobody new may use it
}

// trial is a store on which the settings that all stores share are tried, so that a mistake is an error at once, and not one in
// each store later. Its database is never touched.
var trial = &Store{database: Database{ID: "trial", Dialect: outbox.SQLite{}, Weight: 1}, db: new(sql.DB)}

// New returns the store of an open database. It touches nothing, and the caller closes the pool. Dialect, Schema, Table and
// Store in config are replaced by those of the database. A nil logger logs nothing. It returns an error if db is nil, or an
// *outbox.FieldError that names a bad field.
func New(db *sql.DB, database Database, config outbox.Config, logger watermill.LoggerAdapter) (*Store, error) {
	database.setDefaults()
	if err := database.validate(); err != nil {
		return nil, err
	}
	config.Dialect, config.Schema, config.Table, config.Store = database.Dialect, database.Schema, database.Table, database.ID
	o, err := outbox.New(db, config, logger)
	if err != nil {
		for _, name := range []string{"Dialect", "Schema", "Table"} {
			err = field.Rename("Config."+name, "Database."+name, err)
		}
		return nil, err
	}
	s := &Store{database: database, db: db, outbox: o, log: config.Log, hooks: config.Hooks}
	s.weight.Store(int64(database.Weight))
	return s, nil
}

// ID is the store's identifier.
func (s *Store) ID() string { return s.database.ID }

// Database is the description from which the store was made.
func (s *Store) Database() Database { return s.database }

// Weight is the store's share of the work under the strategy Fair.
func (s *Store) Weight() int { return int(s.weight.Load()) }

// DB is the connection pool of the store's database.
func (s *Store) DB() *sql.DB { return s.db }

// Outbox is the store's outbox, always the same.
func (s *Store) Outbox() *outbox.Outbox { return s.outbox }

// Publisher returns a publisher to the store. Dialect, Schema, Table and Store in config are replaced by the store's; Log
// and Hooks default to those of the store's outbox. It returns what outbox.NewPublisher returns.
func (s *Store) Publisher(config outbox.PublisherConfig, logger watermill.LoggerAdapter) (*outbox.Publisher, error) {
	config.Dialect, config.Schema, config.Table, config.Store = s.database.Dialect, s.database.Schema, s.database.Table, s.ID()
	field.Default(&config.Log, s.log)
	if reflect.ValueOf(config.Hooks).IsZero() {
		config.Hooks = s.hooks
	}
	return outbox.NewPublisher(s.db, config, logger)
}

// SubscriberConfig returns config for a Subscriber or a forwarder of this store: with the store's Dialect, Schema, Table and
// Store.
func (s *Store) SubscriberConfig(config outbox.SubscriberConfig) outbox.SubscriberConfig {
	config.Dialect, config.Schema, config.Table, config.Store = s.database.Dialect, s.database.Schema, s.database.Table, s.ID()
	return config
}

// use keeps the pool open until letGo. It returns false if the store is retired.
func (s *Store) use() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.retired {
		return false
	}
	s.users++
	return true
}

func (s *Store) letGo() error {
	s.mu.Lock()
	s.users--
	last := s.retired && s.users == 0
	s.mu.Unlock()
	if last {
		return s.close()
	}
	return nil
}

// retire closes the pool, if the store owns it, once it is no longer used.
func (s *Store) retire() error {
	s.mu.Lock()
	first := !s.retired
	s.retired = true
	unused := s.users == 0
	s.mu.Unlock()
	if first && unused {
		return s.close()
	}
	return nil
}

func (s *Store) close() error {
	if !s.owned {
		return nil
	}
	return s.db.Close()
}

type storeKey struct{}

// FromContext returns the store of a message from the context of the message, if a Subscriber of this package delivered it.
func FromContext(ctx context.Context) (*Store, bool) {
	s, ok := ctx.Value(storeKey{}).(*Store)
	return s, ok
}

func withStore(ctx context.Context, s *Store) context.Context {
	return context.WithValue(ctx, storeKey{}, s)
}
