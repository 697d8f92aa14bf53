package cli

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"

	outbox "github.com/incursa/watermill-outbox"
)

// A source is an entry of the file of stores.
type source struct {
	Name string `yaml:"name"`
	DSN  string `yaml:"dsn"`
}

// storesAtOnce is how many stores are worked on at a time.
const storesAtOnce = 8

// stores are the flags of what works on many databases.
type stores struct {
	app  *app
	file string
}

// A storeRow is what has come of one store.
type storeRow struct {
	Store    string `json:"store"`
	Database string `json:"database,omitempty"`
	State    string `json:"state,omitempty"`
	*storeCounts
	Problem string `json:"problem,omitempty"`

	bad bool
}

// storeCounts are of a store that has been asked, and was up.
type storeCounts struct {
	Waiting       int     `json:"waiting"`
	WaitingCapped bool    `json:"waiting_capped,omitempty"` // there may be more
	Age           float64 `json:"age_seconds"`
	Failed        int     `json:"failed"`
	Paused        int     `json:"paused_topics"`

	age time.Duration
}

func (r storeRow) cells() []string {
	counts := make([]string, 4)
	if c := r.storeCounts; c != nil {
		age := ""
		if c.Waiting > 0 {
			age = span(c.age)
		}
		counts = []string{upTo(c.Waiting), age, upTo(c.Failed), number(c.Paused)}
	}
	return slices.Concat([]string{r.Store, r.Database, r.State}, counts, []string{short(r.Problem)})
}

// A storeResult is a storeRow without what was not asked.
type storeResult struct{ storeRow }

func (r storeResult) cells() []string {
	return []string{r.Store, r.Database, r.State, short(r.Problem)}
}

func (a *app) storesCommand() *cobra.Command {
	s := &stores{app: a}
	const about = `.

The file is a list in YAML or JSON:

  - {name: acme, dsn: "postgres://user:password@host/acme"}
  - {name: umbra, dsn: "sqlite:umbra.db"}

A store that cannot be reached is a row that says so; the exit code is then 1.`
	command := func(use, short string, with func(ctx context.Context, sources []source) error) *cobra.Command {
		c := &cobra.Command{Use: use, Short: short, Long: short + about, Args: arguments(cobra.NoArgs)}
		c.RunE = func(c *cobra.Command, _ []string) error { return s.run(c, with) }
		c.Flags().StringVar(&s.file, "stores", "", "the file of the stores, or - for the input; defaults to OUTBOX_STORES")
		return c
	}
	p := &parts{}
	migrate := command("migrate", "Create, update or repair the tables in all stores", func(ctx context.Context, sources []source) error {
		return s.showResults(s.each(ctx, sources, true, func(ctx context.Context, db *database, r *storeRow) error { return s.migrate(ctx, db, p, r) }))
	})
	migrate.Annotations = map[string]string{dryRuns: "yes"}
	p.add(migrate)
	return group("stores", "Look after many databases at once",
		command("list", "List the stores of the file", func(_ context.Context, sources []source) error { return s.list(sources) }),
		command("status", "Say of each store whether it is up, installed, and served", func(ctx context.Context, sources []source) error {
			return s.showStatus(s.each(ctx, sources, false, s.status))
		}), migrate)
}

func (s *stores) run(c *cobra.Command, with func(ctx context.Context, sources []source) error) error {
	a := s.app
	if a.dryRun && c.Annotations[dryRuns] == "" {
		return usage("%s has no --dry-run", c.CommandPath())
	}
	sources, err := s.read(c.Context())
	if err != nil {
		return err
	}
	ctx := c.Context()
	if a.timeout.duration > 0 {
		limited, cancel := context.WithTimeout(ctx, a.timeout.duration)
		defer cancel()
		ctx = limited
	}
	a.ran = true
	if err := with(ctx, sources); err != nil {
		return err
	}
	return c.Context().Err()
}

func (s *stores) read(ctx context.Context) (sources []source, err error) {
	file := s.file
	if file == "" {
		file = s.app.Env("OUTBOX_STORES")
	}
	if file == "" {
		return nil, usage("name the file of the stores with --stores or OUTBOX_STORES")
	}
	text, err := s.app.readAll(ctx, "the file of the stores", file)
	if err != nil {
		return nil, err
	}
	if err := yaml.Unmarshal(text, &sources); err != nil { // JSON is YAML
		return nil, usage("%s is no list of stores, each with a name and a dsn", file)
	}
	known := map[string]bool{}
	for i, one := range sources {
		switch {
		case one.Name == "" || one.DSN == "":
			return nil, usage("store %d of %s has no name or no dsn", i+1, file)
		case known[one.Name]:
			return nil, usage("the store %q is in %s twice", one.Name, file)
		}
		known[one.Name] = true
	}
	if len(sources) == 0 {
		return nil, usage("%s names no store", file)
	}
	return sources, nil
}

// A listed is a store of the file, without its password.
type listed struct {
	Store    string `json:"store"`
	Database string `json:"database"`
	DSN      string `json:"dsn"`
}

func (l listed) cells() []string { return []string{l.Store, l.Database, l.DSN} }

func (s *stores) list(sources []source) error {
	var rows []listed
	for _, one := range sources {
		of := s.of(one)
		name := "unknown"
		if dialect, err := dialectOf(one.DSN); err == nil {
			name = dialect.Name()
		}
		rows = append(rows, listed{one.Name, name, of.redact(one.DSN)})
	}
	return list(s.app.render, "STORE, DATABASE, DSN", rows, "")
}

// of is the command's run for one store.
func (s *stores) of(one source) *app {
	of := *s.app
	of.dsn = one.DSN
	return &of
}

// each does something with all stores, several at a time, and returns a row for each, in their order.
func (s *stores) each(ctx context.Context, sources []source, create bool, do func(context.Context, *database, *storeRow) error) []storeRow {
	rows := make([]storeRow, len(sources))
	var all sync.WaitGroup
	room := make(chan struct{}, storesAtOnce)
	for i, one := range sources {
		all.Go(func() {
			room <- struct{}{}
			defer func() { <-room }()
			of := s.of(one)
			rows[i].Store = one.Name
			db, err := of.open(ctx, create)
			if err == nil {
				rows[i].Database = db.dialect.Name()
				err = errors.Join(do(ctx, db, &rows[i]), db.Close())
			}
			if err != nil {
				rows[i].State, rows[i].bad = "error", true
				if errors.Is(err, errUnreachable) {
					rows[i].State = "down"
				}
				rows[i].Problem = of.redact(strings.TrimPrefix(err.Error(), "outbox: "))
			}
		})
	}
	all.Wait()
	return rows
}

// found notes what a check has found.
func (r *storeRow) found(err error) error {
	if err == nil || !isSchema(err) {
		return err
	}
	r.State, r.bad, r.Problem = "not installed", true, problems(err)[0].Problem
	return nil
}

func (s *stores) status(ctx context.Context, db *database, r *storeRow) error {
	r.State = "ok"
	if err := r.found((&parts{}).check(ctx, db)); err != nil || r.bad {
		return err
	}
	o, err := db.outbox()
	if err != nil {
		return err
	}
	topics, err := o.Topics(ctx)
	if err != nil {
		return err
	}
	var counts storeCounts
	for _, t := range topics {
		counts.Waiting, counts.age = counts.Waiting+t.Waiting, max(counts.age, t.Age)
		counts.WaitingCapped = counts.WaitingCapped || t.Waiting >= mostCounted
	}
	counts.Age = counts.age.Seconds()
	of, err := db.admin()
	if err != nil {
		return err
	}
	paused, err := of.Paused(ctx)
	if err != nil {
		return err
	}
	health, err := of.Health(ctx)
	if err != nil {
		return err
	}
	counts.Paused, counts.Failed = len(paused), health.Failed
	r.storeCounts = &counts
	return nil
}

func (s *stores) migrate(ctx context.Context, db *database, p *parts, r *storeRow) error {
	r.State = "up to date"
	if s.app.dryRun {
		return r.found(p.check(ctx, db))
	}
	before := p.check(ctx, db)
	if before != nil && !isSchema(before) || errors.Is(before, outbox.ErrSchemaNewer) {
		return before
	}
	if before != nil {
		r.State = "migrated"
	}
	return p.migrate(ctx, db)
}

func (s *stores) showStatus(rows []storeRow) error {
	return s.trouble(rows, list(s.app.render, "STORE, DATABASE, STATE, DUE, AGE, FAILED, PAUSED TOPICS, PROBLEM", rows, ""))
}

func (s *stores) showResults(rows []storeRow) error {
	results := make([]storeResult, len(rows))
	for i, r := range rows {
		results[i] = storeResult{r}
	}
	return s.trouble(rows, list(s.app.render, "STORE, DATABASE, STATE, PROBLEM", results, ""))
}

// trouble makes the exit code 1 if a store has any.
func (s *stores) trouble(rows []storeRow, err error) error {
	for _, r := range rows {
		if r.bad && err == nil {
			return errTrouble
		}
	}
	return err
}
