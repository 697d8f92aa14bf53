package httpapi

import (
	"context"
	"encoding/json"

	"github.com/incursa/watermill-outbox/examples/event-registration/registration"
)

// A Cache keeps for a moment what is read often. It may forget anything at any time.
type Cache interface {
	Get(ctx context.Context, key string) (value []byte, found bool)

	// Put keeps a value, unless one of a higher version is there.
	Put(ctx context.Context, key string, version int64, value []byte)
}

// event returns the figures of an event, from the cache if they are there. Nothing is decided by them but who may see them.
func (s *Server) event(ctx context.Context, id string, actor registration.Actor) (e registration.Event, err error) {
	if !s.cached(ctx, id, &e) {
		if e, err = s.readEvent(ctx, id); err != nil {
			return e, err
		}
	}
	if !actor.Moderates(&e) {
		return registration.Event{}, registration.ErrForbidden
	}
	return e, nil
}

func (s *Server) cached(ctx context.Context, id string, e *registration.Event) bool {
	if s.config.Cache == nil {
		return false
	}
	value, found := s.config.Cache.Get(ctx, id)
	return found && json.Unmarshal(value, e) == nil
}

// readEvent reads an event from the database, and puts it into the cache. Each change of an event raises its version or its
// revision, so their sum says which of two is newer.
func (s *Server) readEvent(ctx context.Context, id string) (registration.Event, error) {
	e, err := s.service.Event(ctx, id)
	if err != nil || s.config.Cache == nil {
		return e, err
	}
	value, err := json.Marshal(e)
	if err != nil {
		return e, err
	}
	s.config.Cache.Put(ctx, id, e.Version+e.Revision, value)
	return e, nil
}
