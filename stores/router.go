package stores

import (
	"fmt"
	"sync/atomic"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/google/uuid"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/internal/field"
	"github.com/incursa/watermill-outbox/internal/flow"
)

// RouterConfig configures a Router.
type RouterConfig struct {
	// Publisher configures the publishers that the Router makes, as in Store.Publisher. Defaults to its defaults.
	Publisher outbox.PublisherConfig
}

// A Router finds the outbox of a tenant: the key is the identifier of the store. It queries no database, and returns the
// same outbox as long as the store does not change. Look it up for each use, because the pool of a store that was removed or
// changed is closed. It is safe for concurrent use.
type Router struct {
	provider Provider
	config   RouterConfig
	logger   watermill.LoggerAdapter
	index    atomic.Pointer[index]
}

// An index holds the stores by key, until they change.
type index struct {
	changed <-chan struct{}
	byKey   map[string]*Store
	byUUID  map[uuid.UUID]*Store
}

func (c *RouterConfig) validate() error {
	_, err := trial.Publisher(c.Publisher, nil) // which starts nothing before it publishes
	return field.Rename("PublisherConfig", "RouterConfig.Publisher", err)
}

// NewRouter returns a router over the stores of a provider. A nil logger logs nothing. It returns an *outbox.FieldError that
// names a bad field.
func NewRouter(provider Provider, config RouterConfig, logger watermill.LoggerAdapter) (*Router, error) {
	if provider == nil {
		return nil, field.Bad("provider", "is nil; pass what NewStatic or NewDynamic returns")
	}
	if err := config.validate(); err != nil {
		return nil, err
	}
	return &Router{provider: provider, config: config, logger: logger}, nil
}

// Store returns the store with a key, or ErrUnknownStore with the key.
func (r *Router) Store(key string) (*Store, error) {
	return found(r.current().byKey[key], key)
}

// StoreUUID does the same for a store whose identifier is a UUID, in any notation.
func (r *Router) StoreUUID(key uuid.UUID) (*Store, error) {
	return found(r.current().byUUID[key], key.String())
}

func found(s *Store, key string) (*Store, error) {
	if s == nil {
		return nil, fmt.Errorf("%w: %q", ErrUnknownStore, key)
	}
	return s, nil
}

// Outbox returns the outbox of the store with a key, or ErrUnknownStore with the key.
func (r *Router) Outbox(key string) (*outbox.Outbox, error) {
	s, err := r.Store(key)
	if err != nil {
		return nil, err
	}
	return s.Outbox(), nil
}

// OutboxUUID does the same for a store whose identifier is a UUID, in any notation.
func (r *Router) OutboxUUID(key uuid.UUID) (*outbox.Outbox, error) {
	s, err := r.StoreUUID(key)
	if err != nil {
		return nil, err
	}
	return s.Outbox(), nil
}

// Publisher returns the publisher of the store with a key, always the same one, or ErrUnknownStore with the key. Do not
// close it: it is shared.
func (r *Router) Publisher(key string) (*outbox.Publisher, error) {
	s, err := r.Store(key)
	if err != nil {
		return nil, err
	}
	return partOf(s, r, func(s *Store) (*outbox.Publisher, error) { return s.Publisher(r.config.Publisher, r.logger) })
}

// current is the index of the current stores.
func (r *Router) current() *index {
	if known := r.index.Load(); known != nil && !flow.IsClosed(known.changed) {
		return known
	}
	stores, changed := r.provider.Stores()
	next := &index{changed: changed, byKey: make(map[string]*Store, len(stores)), byUUID: map[uuid.UUID]*Store{}}
	for _, s := range stores {
		next.byKey[s.ID()] = s
		if id, err := uuid.Parse(s.ID()); err == nil && (next.byUUID[id] == nil || s.ID() == id.String()) {
			next.byUUID[id] = s
		}
	}
	r.index.Store(next)
	return next
}
