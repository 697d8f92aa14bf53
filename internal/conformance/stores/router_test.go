package stores_test

import (
	"strings"
	"sync"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/google/uuid"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/internal/conformance/suite"
	"github.com/incursa/watermill-outbox/stores"
)

func (f *fixture) router(p stores.Provider, logger *suite.LogBook) *stores.Router {
	f.T.Helper()
	r, err := stores.NewRouter(p, stores.RouterConfig{}, logger)
	f.NoError(err)
	return r
}

func TestOBX066_TheRouterReturnsTheOutboxOfAKey(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		tenants := f.tenants("a", "b")
		r := f.router(f.static(tenants...), suite.NewLogBook())
		for _, x := range tenants {
			o, err := r.Outbox(x.id)
			f.NoError(err)
			_, err = o.Enqueue(f.Context(), o.DB(), outbox.Message{Topic: x.id})
			f.NoError(err)
			p, err := r.Publisher(x.id)
			f.NoError(err)
			f.NoError(p.Publish(x.id, message.NewMessage("1", nil)))
			f.Equal(2, x.Count())
			f.EqualValues(2, x.Number("SELECT COUNT(*) FROM {all} WHERE {topic} = '%s'", x.id))
		}
	})
}

func TestOBX067_TheRouterRefusesAnUnknownKey(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		x := f.tenants("a")[0]
		d := &directory{}
		d.set(x.database())
		p := f.dynamic(d, nil)
		r := f.router(p, suite.NewLogBook())
		_, err := r.Outbox("nobody")
		f.ErrorIs(err, stores.ErrUnknownStore)
		f.ErrorContains(err, `"nobody"`)
		_, err = r.Publisher("A")
		f.ErrorIs(err, stores.ErrUnknownStore, "keys that differ in case differ")
		key := uuid.New()
		_, err = r.OutboxUUID(key)
		f.ErrorIs(err, stores.ErrUnknownStore)
		f.ErrorContains(err, key.String())

		_, err = r.Outbox("a")
		f.NoError(err)
		d.set()
		f.NoError(p.Refresh(f.Context()))
		_, err = r.Outbox("a")
		f.ErrorIs(err, stores.ErrUnknownStore, "of a store that is gone")
		d.set(x.database())
		f.NoError(p.Refresh(f.Context()))
		_, err = r.Outbox("a")
		f.NoError(err, "of a store that is back")
	})
}

func TestOBX068_KeysAreStringsOrUUIDs(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		lower, upper := uuid.New(), uuid.New() // SQL Server writes them in capitals
		tenants := f.tenants(lower.String(), strings.ToUpper(upper.String()), "a name")
		r := f.router(f.static(tenants...), suite.NewLogBook())
		for i, key := range []uuid.UUID{lower, upper} {
			byUUID, err := r.OutboxUUID(key)
			f.NoError(err)
			byString, err := r.Outbox(tenants[i].id)
			f.NoError(err)
			f.Same(byString, byUUID)
			f.Same(tenants[i].DB.DB, byUUID.DB())
		}
		o, err := r.Outbox("a name")
		f.NoError(err)
		f.Same(tenants[2].DB.DB, o.DB())
	})
}

func TestOBX115_OutboxesAreCached(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		x := f.tenants("a")[0]
		d := &directory{}
		d.set(x.database())
		p := f.dynamic(d, nil)
		r := f.router(p, suite.NewLogBook())
		o, err := r.Outbox("a")
		f.NoError(err)
		pub, err := r.Publisher("a")
		f.NoError(err)
		var callers sync.WaitGroup
		for range 8 {
			callers.Go(func() {
				for range 100 {
					again, err := r.Outbox("a")
					samePub, err2 := r.Publisher("a")
					if again != o || samePub != pub || err != nil || err2 != nil {
						t.Errorf("another outbox or publisher: %v, %v", err, err2)
					}
				}
			})
		}
		for range 20 {
			f.NoError(p.Refresh(f.Context()))
		}
		callers.Wait()
	})
}
