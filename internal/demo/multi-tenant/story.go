package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/incursa/watermill-outbox/internal/demo/stage"
	"github.com/incursa/watermill-outbox/stores"
)

var tenants = []string{
	"acme", "cyberdyne", "globex", "hooli", "initech", "soylent", "stark", "tyrell", "umbrella", "vandelay", "wayne", "wonka"}

const (
	notes = "notes"         // a text file that somebody left in the folder, as notes.db
	late  = "pied-piper"    // comes while the shop is open
	early = "hooli"         // leaves
	busy  = "initech"       // has a backlog
	away  = "globex"        // is locked for a moment
	each  = 3               // orders of each tenant to begin with
	heap  = 400             // orders that are the backlog
	bulk  = 20              // orders that are imported while the database is locked
	limit = 3 * time.Minute // for anything that is waited for; all of it takes seconds
	pause = 25 * time.Millisecond
)

// story is what you see.
func story(ctx context.Context, out io.Writer, logger watermill.LoggerAdapter) (err error) {
	path, err := os.MkdirTemp("", "multi-tenant-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(path)) }()
	files := folder(path)
	if err := errors.Join(files.add(tenants...), os.WriteFile(files.file(notes+".db"), []byte("buy milk\n"), 0o600)); err != nil {
		return err
	}
	screen := stage.NewScreen(out)
	screen.Say("a folder of SQLite files, one for each tenant: %s", path)

	// 1. Find the tenants, and install the outbox in each. A file is no database, which harms no other.
	shop, err := openShop(ctx, files, screen, logger)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, shop.provider.Close()) }()
	if err := migrate(ctx, shop.provider, screen, out); err != nil {
		return err
	}

	// 2. One subscriber and one Watermill router serve all. Each act leaves nothing on its way.
	closeShop, err := shop.open(ctx)
	if err != nil {
		return err
	}
	for _, act := range []func(context.Context, folder) error{
		shop.orders, shop.unknown, shop.backlog, shop.comes, shop.leaves, shop.locked} {
		if err == nil {
			err = act(ctx, files)
		}
	}
	if err = errors.Join(err, closeShop()); err != nil {
		return err
	}

	// 3. Count, from what the databases say.
	result, err := shop.audit(ctx, files)
	if err != nil {
		return err
	}
	return result.print(screen)
}

// orders has everybody place some.
func (s *shop) orders(ctx context.Context, _ folder) error {
	for _, tenant := range tenants {
		for range each {
			if err := s.place(ctx, batch{tenant: tenant, orders: 1}); err != nil {
				return err
			}
		}
	}
	if err := s.until(ctx, "the first orders", func() bool { return s.waiting(tenants...) == 0 }); err != nil {
		return err
	}
	s.Say("%d orders of each of %d tenants are placed by key, and shipped; one router serves all", each, len(tenants))
	return s.until(ctx, "the breaker of "+notes, func() bool { return s.status(notes).State == stores.Open })
}

// unknown asks for tenants that are not there.
func (s *shop) unknown(ctx context.Context, _ folder) error {
	s.Say("%s, which is no database, is left alone, and tried again from time to time: %v", notes, s.status(notes).LastError)
	err := s.place(ctx, batch{tenant: "acmee", orders: 1})
	if !errors.Is(err, stores.ErrUnknownStore) {
		return fmt.Errorf("an unknown tenant: %w", err)
	}
	s.Say("an order with a key that is misspelt is refused: %v", err)
	return nil
}

// backlog gives one tenant much more to do than all the others.
func (s *shop) backlog(ctx context.Context, _ folder) error {
	if err := s.place(ctx, batch{tenant: busy, orders: heap}); err != nil {
		return err
	}
	s.Say("%s places %d orders at once; then the others place one each", busy, heap)
	others := slices.DeleteFunc(slices.Clone(tenants), func(tenant string) bool { return tenant == busy })
	started := time.Now()
	for _, tenant := range others {
		if err := s.place(ctx, batch{tenant: tenant, orders: 1}); err != nil {
			return err
		}
	}
	if err := s.until(ctx, "the orders of the others", func() bool { return s.waiting(others...) == 0 }); err != nil {
		return err
	}
	s.Say("    those of the others are shipped after %v, while %d of %s wait", time.Since(started).Round(time.Millisecond), s.waiting(busy), busy)
	if err := s.until(ctx, "the backlog", func() bool { return s.waiting(busy) == 0 }); err != nil {
		return err
	}
	s.Say("    the backlog is shipped")
	return nil
}

// comes adds a tenant, and starts a join in its database.
func (s *shop) comes(ctx context.Context, files folder) error {
	if err := files.provision(ctx, late); err != nil {
		return err
	}
	s.Say("%s signs up: its database is made, and moved into the folder", late)
	if err := s.until(ctx, "the discovery of "+late, func() bool { return s.knows(late) }); err != nil {
		return err
	}
	s.Say("    it is discovered; a join of %d orders starts there", starterKit)
	if err := s.invite(ctx, late); err != nil {
		return err
	}
	select {
	case <-s.welcomed:
		return s.until(ctx, "the orders of "+late, func() bool { return s.waiting(late) == 0 })
	case <-time.After(limit):
		return fmt.Errorf("%s has not been welcomed within %v", late, limit)
	case <-ctx.Done():
		return ctx.Err()
	}
}

// leaves removes a tenant in the middle of a handler.
func (s *shop) leaves(ctx context.Context, files folder) error {
	store, err := s.router.Store(early)
	if err != nil {
		return err
	}
	if err := s.place(ctx, batch{tenant: early, orders: 1, long: true}); err != nil {
		return err
	}
	select {
	case <-s.longBegins:
	case <-ctx.Done():
		return ctx.Err()
	}
	if err := files.remove(early); err != nil {
		return err
	}
	s.Say("%s leaves while a handler is in the middle of its last order", early)
	if err := s.until(ctx, "the end of "+early, func() bool { return !s.knows(early) }); err != nil {
		return err
	}
	s.Say("    there is no %s any more for those who publish; the handler may finish", early)
	close(s.longMayEnd)
	if err := s.until(ctx, "the pool of "+early, func() bool { return store.DB().PingContext(ctx) != nil }); err != nil {
		return err
	}
	s.Say("    it has: %d of its orders are on their way, and its connections are closed", s.waiting(early))
	return nil
}

// locked has a tenant whose database does not answer for a moment, because a long transaction has locked the file. An order
// of its becomes due just then: without one there would be nothing to claim, and a look does not need the lock.
func (s *shop) locked(ctx context.Context, _ folder) error {
	failed := s.status(away).Failures
	if err := s.place(ctx, batch{tenant: away, orders: 1, delay: 200 * time.Millisecond}); err != nil {
		return err
	}
	err := s.place(ctx, batch{tenant: away, orders: bulk, beforeCommit: func() error {
		s.Say("%s imports %d orders in a long transaction, which locks its file", away, bulk)
		if err := s.until(ctx, "the breaker of "+away, func() bool { return s.status(away).State == stores.Open }); err != nil {
			return err
		}
		s.Say("    it does not answer: its breaker opens, and it is left alone: %v", s.status(away).LastError)
		started := time.Now()
		if err := s.place(ctx, batch{tenant: "acme", orders: 1}); err != nil {
			return err
		}
		err := s.until(ctx, "an order of acme", func() bool { return s.waiting("acme") == 0 })
		s.Say("    meanwhile an order of acme takes %v", time.Since(started).Round(time.Millisecond))
		return err
	}})
	if err != nil {
		return err
	}
	if err := s.until(ctx, "the orders of "+away, func() bool { return s.waiting(away) == 0 }); err != nil {
		return err
	}
	if err := s.until(ctx, "the breaker of "+away, func() bool { return s.status(away).State == stores.Closed }); err != nil {
		return err
	}
	s.Say("    the import commits: after %d tries it answers again, and its %d orders are shipped", s.status(away).Failures-failed, bulk)
	return nil
}

// until waits for something that happens within a moment.
func (s *shop) until(ctx context.Context, what string, happened func() bool) error {
	ticker := time.NewTicker(pause)
	defer ticker.Stop()
	late := time.After(limit)
	for !happened() {
		select {
		case <-ticker.C:
			s.Progress("waiting for %s", what)
		case <-late:
			return fmt.Errorf("%s: nothing within %v", what, limit)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

func (s *shop) knows(tenant string) bool {
	_, err := s.router.Store(tenant)
	return err == nil
}

// status is how the subscriber stands with a tenant.
func (s *shop) status(tenant string) stores.StoreStatus {
	all := s.subscriber.Status()
	at := slices.IndexFunc(all, func(status stores.StoreStatus) bool { return strings.EqualFold(status.Store, tenant) })
	if at < 0 {
		return stores.StoreStatus{}
	}
	return all[at]
}
