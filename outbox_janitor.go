package outbox

import (
	"context"
	"database/sql"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/incursa/watermill-outbox/internal/engine"
	"github.com/incursa/watermill-outbox/internal/field"
	"github.com/incursa/watermill-outbox/internal/flow"
	"github.com/incursa/watermill-outbox/internal/limits"
)

// JanitorConfig says how long ended messages, joins and entries are kept, by the database's clock.
type JanitorConfig struct {
	// Disabled switches the janitor off: everything stays until a call purges it. Defaults to false.
	Disabled bool

	// Done is how long messages that are done are kept, and what DeleteOnAck has not yet deleted when a process ends. Defaults to
	// 7 days; -1 keeps them for ever.
	Done time.Duration

	// Failed is how long dead letters are kept. Defaults to -1: for ever.
	Failed time.Duration

	// Log is how long the log keeps messages that every consumer group has passed; it always keeps the others.
	// Defaults to 7 days; -1 keeps them for ever.
	Log time.Duration

	// Joins is how long ended joins are kept. Defaults to 7 days; -1 keeps them for ever.
	Joins time.Duration

	// Entries is how long the entries of package inbox are kept, if this outbox is the queue of one: a message that is received
	// again after that counts as new. Failed applies to entries that have failed. Defaults to 7 days; -1 keeps them for ever.
	Entries time.Duration

	// Audit is how long the record of what operators did with package admin is kept. Defaults to 90 days; -1 keeps it for ever.
	Audit time.Duration

	// Workers is how long workers are kept that live no longer. Messages that they handled, if they are still kept, then name no
	// worker. Defaults to 30 days; -1 keeps them for ever.
	Workers time.Duration

	// Interval is the time between two rounds, give or take a half, so that workers do not run them all at once. Defaults to
	// 1 min, or to the shortest retention if that is less, but at least 1 s.
	Interval time.Duration

	// Also are other purges to run in each round. The key says what is deleted, in logs and in the result of PurgeOnce. A purge
	// deletes in batches, returns how many it deleted, and must stop when ctx ends. Defaults to none.
	Also map[string]func(ctx context.Context) (int, error)
}

// A purger is one of the purges of a round.
type purger struct {
	name  string
	purge func(ctx context.Context) (int, error)
}

const (
	defaultRetention = 7 * 24 * time.Hour
	auditRetention   = 90 * 24 * time.Hour
	defaultWorkers   = 30 * 24 * time.Hour
	roundEvery       = time.Minute
	roundAtMost      = time.Second
	longestRound     = 365 * 24 * time.Hour
)

func (c *JanitorConfig) setDefaults() {
	field.Default(&c.Done, defaultRetention)
	field.Default(&c.Failed, never)
	field.Default(&c.Log, defaultRetention)
	field.Default(&c.Joins, defaultRetention)
	field.Default(&c.Entries, defaultRetention)
	field.Default(&c.Audit, auditRetention)
	field.Default(&c.Workers, defaultWorkers)
	if c.Interval == 0 {
		shortest := roundEvery
		for _, retention := range []time.Duration{c.Done, c.Failed, c.Log, c.Joins, c.Entries, c.Audit, c.Workers} {
			if retention >= 0 {
				shortest = min(shortest, retention)
			}
		}
		c.Interval = max(shortest, roundAtMost)
	}
}

func (c *JanitorConfig) validate() error {
	for _, kept := range []struct {
		name      string
		retention time.Duration
	}{{"Done", c.Done}, {"Failed", c.Failed}, {"Log", c.Log}, {"Joins", c.Joins}, {"Entries", c.Entries}, {"Audit", c.Audit}, {"Workers", c.Workers}} {
		if kept.retention < 0 && kept.retention != never {
			return field.Bad("JanitorConfig."+kept.name, "is negative; -1 keeps everything")
		}
	}
	if c.Interval < 0 || c.Interval > longestRound {
		return field.Bad("JanitorConfig.Interval", "%v is not between 0 and %v; Disabled switches the janitor off", c.Interval, longestRound)
	}
	for name, purge := range c.Also {
		if name == "" || purge == nil {
			return field.Bad("JanitorConfig.Also", "has no name or no function at %q", name)
		}
	}
	return nil
}

// A janitor does what RunJanitor says. Each of its batches has a time limit.
type janitor struct {
	outbox *Outbox
	config JanitorConfig
	parts  string           // the query for the parts that the outbox has
	walks  map[string]*walk // by the names of purges
}

// A walk goes through everything in order, past what is kept: dead letters, events, messages that somebody has yet to read. So
// that this does not cost more and more, most rounds begin where the last one ended, and see only what has become old since.
// What is old and becomes free later waits for a round from the beginning; those take at most a hundredth of the time.
type walk struct {
	last time.Time // when the last round began
	end  int64     // where it ended

	began time.Time     // the last round from the beginning
	took  time.Duration // how long that was
}

const (
	walkShare   = 100
	walkOverlap = time.Minute // for transactions that commit what is older
)

// begin sets where a round begins.
func (w *walk) begin(arg *purgeArg, now time.Time) {
	if now.Sub(w.began) >= walkShare*w.took {
		return
	}
	arg.After = w.end
	arg.WithinMS = arg.OlderThanMS + (now.Sub(w.last) + walkOverlap).Milliseconds()
}

// ended notes a round, also one that has not come to the end.
func (w *walk) ended(arg *purgeArg, began, now time.Time) {
	if arg.WithinMS == 0 {
		w.began, w.took = began, now.Sub(began)
	}
	w.last, w.end = began, arg.After
}

// RunJanitor deletes what has ended and is older than its retention: positions of the log, joins, messages, entries of an
// inbox, and workers. It does a round every JanitorConfig.Interval until ctx ends, and then returns nil; if Disabled is set, it
// returns at once. Errors of the database are logged. It returns a *FieldError that names a bad field.
//
// It works in small batches that skip locked rows: any number of janitors may run at once, and nothing waits for them. Each
// Subscriber has one; run one yourself if there are only publishers.
func (o *Outbox) RunJanitor(ctx context.Context, config JanitorConfig) error {
	j, err := o.janitor(config)
	if err != nil {
		return err
	}
	j.run(ctx, func() bool { return false })
	return nil
}

// PurgeOnce runs one round of RunJanitor, for a scheduled job. It returns how many rows it deleted, by name: "log",
// "joins", "entries", "failed entries", "messages", "failed messages", "audit", "workers", and the keys of
// JanitorConfig.Also. When ctx ends, or a purge fails, it returns what it has deleted so far and the error. It returns a
// *FieldError that names a bad field.
func (o *Outbox) PurgeOnce(ctx context.Context, config JanitorConfig) (map[string]int, error) {
	j, err := o.janitor(config)
	if err != nil {
		return nil, err
	}
	return j.purge(ctx)
}

func (o *Outbox) janitor(config JanitorConfig) (*janitor, error) {
	config.setDefaults()
	if err := config.validate(); err != nil {
		return nil, err
	}
	text, err := fs.ReadFile(o.engine.Dialect.Files(), "setup/parts.sql")
	if err != nil {
		return nil, fmt.Errorf("read the schema files: %w", err)
	}
	return &janitor{outbox: o, config: config, parts: o.engine.Names.Apply(string(text)), walks: map[string]*walk{}}, nil
}

const cannotPurge = "Cannot purge old rows, trying again"

// run skips rounds while the database is known to be down.
func (j *janitor) run(ctx context.Context, away func() bool) {
	if j.config.Disabled {
		return
	}
	for flow.Pause(ctx, j.config.Interval/2+rand.N(j.config.Interval)) == nil {
		if away() {
			continue
		}
		if _, err := j.purge(ctx); err == nil {
			j.outbox.troubles.Over(cannotPurge)
		} else if ctx.Err() == nil {
			j.outbox.troubles.Error(cannotPurge, err, nil)
		}
	}
}

// purge does one round.
func (j *janitor) purge(ctx context.Context) (map[string]int, error) {
	purged := map[string]int{}
	purgers, err := j.round(ctx)
	if err != nil {
		return purged, err
	}
	for _, p := range purgers {
		n, err := p.purge(ctx)
		if n > 0 {
			purged[p.name] = n
			j.outbox.logger.Info("Purged old rows", watermill.LogFields{"what": p.name, "count": n})
		}
		if err != nil {
			return purged, fmt.Errorf("purge %s: %w", p.name, err)
		}
	}
	return purged, nil
}

// round returns the purges to run. The log and the joins come first: they refer to messages.
func (j *janitor) round(ctx context.Context) (purgers []purger, err error) {
	has := map[string]bool{}
	limited, cancel := context.WithTimeout(ctx, limits.Upkeep(limits.DefaultLease))
	defer cancel()
	err = engine.Query(limited, j.outbox.db, j.parts, nil, func(rows *sql.Rows) error {
		var part string
		err := rows.Scan(&part)
		has[part] = true
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("look for the parts of the outbox: %w", err)
	}
	add := func(name string, wanted bool, olderThan time.Duration, op operation, status Status) {
		if wanted && olderThan >= 0 {
			purgers = append(purgers, purger{name, func(ctx context.Context) (int, error) {
				return j.delete(ctx, name, op, &purgeArg{Status: status, OlderThanMS: olderThan.Milliseconds()})
			}})
		}
	}
	add("log", true, j.config.Log, opLogPurge, 0)
	add("joins", has["joins"], j.config.Joins, opJoinPurge, 0)
	add("entries", has["inbox"], j.config.Entries, opEntryPurge, Done)
	add("failed entries", has["inbox"], j.config.Failed, opEntryPurge, Failed)
	add("messages", true, j.config.Done, opPurge, Done)
	add("failed messages", !has["inbox"], j.config.Failed, opPurge, Failed) // without its message an entry counts as done
	add("audit", true, j.config.Audit, opAuditPurge, 0)
	add("workers", true, j.config.Workers, opWorkerPurge, 0)
	for _, name := range slices.Sorted(maps.Keys(j.config.Also)) {
		purgers = append(purgers, purger{name, j.config.Also[name]})
	}
	return purgers, nil
}

// delete runs a purge from where its walk says.
func (j *janitor) delete(ctx context.Context, name string, op operation, arg *purgeArg) (int, error) {
	if j.walks[name] == nil {
		j.walks[name] = &walk{}
	}
	began := time.Now()
	j.walks[name].begin(arg, began)
	n, err := j.outbox.purge(ctx, op, arg, limits.Upkeep(limits.DefaultLease))
	j.walks[name].ended(arg, began, time.Now())
	return n, err
}
