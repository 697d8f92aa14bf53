package console

import (
	"encoding/hex"
	"regexp"
	"slices"
	"strings"
	"sync"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/admin"
	"github.com/incursa/watermill-outbox/inbox"
	"github.com/incursa/watermill-outbox/internal/field"
	"github.com/incursa/watermill-outbox/join"
	"github.com/incursa/watermill-outbox/stores"
)

// A place is a store with what the console needs of it.
type place struct {
	*stores.Store
	slug    string // its name in paths
	admin   *admin.Admin
	joins   *join.Coordinator
	inbox   *inbox.Inbox
	queue   *admin.Admin // of the inbox
	history history
	turns   *turns
}

func (p *place) migrateConfig() outbox.MigrateConfig {
	d := p.Database()
	return outbox.MigrateConfig{Dialect: d.Dialect, Schema: d.Schema, Table: d.Table}
}

// places are those of the stores that the provider has now.
type places struct {
	console *Console
	mu      sync.Mutex
	bySlug  map[string]*place
}

// all are in the provider's order.
func (p *places) all() []*place {
	present, _ := p.console.config.Provider.Stores()
	p.mu.Lock()
	defer p.mu.Unlock()
	list := make([]*place, 0, len(present))
	bySlug := make(map[string]*place, len(present))
	for _, s := range present {
		known := p.bySlug[slug(s.ID())]
		if known == nil || known.Store != s {
			var err error
			if known, err = p.console.open(s); err != nil {
				p.console.logger.Error("The console cannot use a store", err, map[string]any{"store": s.ID()})
				continue
			}
		}
		bySlug[known.slug] = known
		list = append(list, known)
	}
	p.bySlug = bySlug
	return list
}

func (p *places) named(slug string) *place {
	all := p.all()
	if i := slices.IndexFunc(all, func(p *place) bool { return p.slug == slug }); i >= 0 {
		return all[i]
	}
	return nil
}

func (c *Console) open(s *stores.Store) (p *place, err error) {
	d := s.Database()
	p = &place{Store: s, slug: slug(s.ID()), turns: newTurns()}
	if p.admin, err = admin.New(s.Outbox()); err != nil {
		return nil, err
	}
	if p.joins, err = stores.Coordinator(s, join.Config{}, nil); err != nil {
		return nil, err
	}
	if p.inbox, err = inbox.New(s.DB(), inbox.Config{Dialect: d.Dialect, Schema: d.Schema, Table: c.config.InboxTable, Store: s.ID()}, nil); err != nil {
		return nil, field.Rename("Config.Table", "Config.InboxTable", err)
	}
	p.queue, err = admin.New(p.inbox.Queue())
	return p, err
}

var plain = regexp.MustCompile(`^[A-Za-z0-9_-]+$`)

// slug is a store's id where that is plain, and else its bytes in hexadecimal: paths give a meaning to dots and slashes.
func slug(id string) string {
	if id == "" || strings.HasPrefix(id, "x_") || !plain.MatchString(id) {
		return "x_" + hex.EncodeToString([]byte(id))
	}
	return id
}
