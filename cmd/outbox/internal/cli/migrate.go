package cli

import (
	"cmp"
	"context"
	"embed"
	"errors"
	"fmt"
	"runtime/debug"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/spf13/cobra"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/inbox"
)

// parts are the flags that say what to install.
type parts struct {
	withoutJoins, inbox bool
	role, dialect       string

	logger watermill.LoggerAdapter // of MigrateConfig; none unless the command sets it
}

func (p *parts) add(commands ...*cobra.Command) {
	for _, c := range commands {
		c.Flags().BoolVar(&p.withoutJoins, "without-joins", false, "leave out the tables of joins")
		c.Flags().BoolVar(&p.inbox, "inbox", false, "an inbox instead of an outbox; its table is named Inbox or inbox by default")
		c.MarkFlagsMutuallyExclusive("inbox", "without-joins") // it has none
	}
}

func (p *parts) config(a *app, dialect outbox.Dialect) outbox.MigrateConfig {
	return outbox.MigrateConfig{Dialect: dialect, Schema: a.schema, Table: a.table, Role: p.role, WithoutJoins: p.withoutJoins, Logger: p.logger}
}

func (p *parts) inboxConfig(a *app, dialect outbox.Dialect) inbox.Config {
	return inbox.Config{Dialect: dialect, Schema: a.schema, Table: a.table}
}

func (p *parts) check(ctx context.Context, db *database) error {
	if p.inbox {
		return inbox.Check(ctx, db.DB, p.inboxConfig(db.app, db.dialect))
	}
	return outbox.Check(ctx, db.DB, p.config(db.app, db.dialect))
}

func (p *parts) migrate(ctx context.Context, db *database) error {
	if p.inbox {
		return inbox.Migrate(ctx, db.DB, p.inboxConfig(db.app, db.dialect))
	}
	return outbox.Migrate(ctx, db.DB, p.config(db.app, db.dialect))
}

func (a *app) migrateCommand() *cobra.Command {
	p := &parts{}
	up := a.action(&cobra.Command{Use: "up", Short: "Create, update or repair the tables", Args: arguments(cobra.NoArgs),
		Annotations: map[string]string{dryRuns: "yes", creates: "yes"}},
		func(ctx context.Context, db *database, _ []string) error {
			if a.dryRun {
				return a.report(p.check(ctx, db), "Nothing is to be done.")
			}
			return a.migrateUp(ctx, db, p)
		})
	status := a.action(&cobra.Command{Use: "status", Short: "Say what is missing or out of date", Args: arguments(cobra.NoArgs)},
		func(ctx context.Context, db *database, _ []string) error {
			return a.report(p.check(ctx, db), "The outbox is installed and up to date.")
		})
	script := &cobra.Command{Use: "sql", Short: "Print the script that 'migrate up' stands for", Args: arguments(cobra.NoArgs),
		RunE: func(*cobra.Command, []string) error {
			return a.script(p, func(d outbox.Dialect) (string, error) {
				if p.inbox {
					return inbox.MigrationSQL(p.inboxConfig(a, d))
				}
				return outbox.MigrationSQL(p.config(a, d))
			})
		}}
	role := &cobra.Command{Use: "role", Short: "Print the script of a role with the least rights", Args: arguments(cobra.NoArgs),
		RunE: func(*cobra.Command, []string) error {
			return a.script(p, func(d outbox.Dialect) (string, error) {
				if p.inbox {
					return inbox.RoleSQL(p.inboxConfig(a, d))
				}
				return outbox.RoleSQL(p.config(a, d))
			})
		}}
	p.add(up, status, script, role)
	role.Flags().StringVar(&p.role, "role", "", "the name of the role")
	role.MarkFlagsMutuallyExclusive("inbox", "role") // an inbox's is named after schema and table
	for _, c := range []*cobra.Command{script, role} {
		c.Flags().StringVar(&p.dialect, "dialect", "", "sqlserver, postgres or sqlite; defaults to that of the DSN")
	}
	return group("migrate", "Install the tables and procedures, or print their SQL", up, status, script, role)
}

// A migrated says which tables were looked after, and whether they were changed.
type migrated struct {
	Database string `json:"database"`
	Table    string `json:"table"`
	Changed  bool   `json:"changed"`
}

func (a *app) migrateUp(ctx context.Context, db *database, p *parts) error {
	before := p.check(ctx, db)
	if before != nil && !isSchema(before) {
		return before
	}
	if err := p.migrate(ctx, db); err != nil {
		return err
	}
	m := migrated{Table: p.table(db)}
	if before != nil { // what is left are settings, which migrating does not change
		after := p.check(ctx, db)
		m.Changed = after == nil || after.Error() != before.Error()
	}
	var err error
	if m.Database, err = db.name(ctx); err != nil {
		return err
	}
	what, how := "outbox", "is installed and up to date; nothing was changed"
	if p.inbox {
		what = "inbox"
	}
	if m.Changed {
		how = "was installed or brought up to date"
	}
	return a.render.result(m, escape(fmt.Sprintf("The %s %s: table %s in %s.", what, how, m.Table, m.Database), false))
}

// table is the name of the table with its schema, either of which may be the default one.
func (p *parts) table(db *database) string {
	schema, outboxTable, inboxTable := "public", "outbox", "inbox"
	switch db.dialect.(type) {
	case outbox.SQLServer:
		schema, outboxTable, inboxTable = "dbo", "Outbox", "Inbox"
	case outbox.SQLite:
		schema = "main"
	}
	table := outboxTable
	if p.inbox {
		table = inboxTable
	}
	return cmp.Or(db.app.schema, schema) + "." + cmp.Or(db.app.table, table)
}

//go:embed sql
var queries embed.FS

// name is the database as its server calls it, or the file.
func (db *database) name(ctx context.Context) (name string, err error) {
	query, err := queries.ReadFile("sql/name_" + db.dialect.Name() + ".sql")
	if err != nil {
		return "", err
	}
	err = db.QueryRowContext(ctx, string(query)).Scan(&name)
	return name, err
}

// script prints SQL, for which no database is needed.
func (a *app) script(p *parts, text func(outbox.Dialect) (string, error)) error {
	var dialect outbox.Dialect
	for _, d := range []outbox.Dialect{outbox.SQLServer{}, outbox.Postgres{}, outbox.SQLite{}} {
		if d.Name() == p.dialect {
			dialect = d
		}
	}
	switch {
	case dialect == nil && p.dialect != "":
		return usage("--dialect %q is unknown; it is sqlserver, postgres or sqlite", p.dialect)
	case dialect == nil && a.source() == "":
		return usage("name the dialect with --dialect, or the database with --dsn")
	case dialect == nil:
		var err error
		if dialect, err = dialectOf(a.source()); err != nil {
			return err
		}
	}
	script, err := text(dialect)
	if err != nil {
		return err
	}
	_, err = fmt.Fprint(a.Out, script)
	return err
}

// A problem is a line of a check.
type problem struct {
	Problem string `json:"problem"`
}

func (p problem) cells() []string { return []string{p.Problem} }

// report writes what a check has found. An error of the database is returned as it is.
func (a *app) report(err error, fine string) error {
	if err == nil {
		return a.render.say("%s", fine)
	}
	if !errors.Is(err, outbox.ErrSchema) {
		return err
	}
	if err := list(a.render, "PROBLEM", problems(err), ""); err != nil {
		return err
	}
	return errTrouble
}

// problems are what outbox.Check names.
func problems(err error) (list []problem) {
	var found interface{ Problems() []string }
	if !errors.As(err, &found) {
		return []problem{{err.Error()}}
	}
	for _, text := range found.Problems() {
		list = append(list, problem{text})
	}
	return list
}

func (a *app) checkCommand() *cobra.Command {
	p := &parts{}
	c := a.action(&cobra.Command{Use: "check", Short: "Compare the database with what this version needs", Args: arguments(cobra.NoArgs)},
		func(ctx context.Context, db *database, _ []string) error {
			return a.report(p.check(ctx, db), "All is well.")
		})
	p.add(c)
	return c
}

// A build says what this program is.
type build struct {
	Version string `json:"version"`
	Commit  string `json:"commit,omitempty"`
	Time    string `json:"time,omitempty"` // of the commit
	Go      string `json:"go"`
}

func thisBuild() build {
	if info, ok := debug.ReadBuildInfo(); ok {
		return newBuild(info)
	}
	return build{Version: "unknown"}
}

func newBuild(info *debug.BuildInfo) build {
	b := build{Version: info.Main.Version, Go: info.GoVersion}
	changed := false
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			b.Commit = s.Value
		case "vcs.time":
			b.Time = s.Value
		case "vcs.modified":
			changed = s.Value == "true"
		}
	}
	if changed {
		b.Commit += ", changed since"
	}
	return b
}

func (a *app) versionCommand() *cobra.Command {
	return &cobra.Command{Use: "version", Short: "Print the version of this program", Args: arguments(cobra.NoArgs),
		RunE: func(*cobra.Command, []string) error {
			b := thisBuild()
			return a.render.show(b, []fact{{"outbox", b.Version}, {"commit", b.Commit}, {"of", b.Time}, {"go", b.Go}})
		}}
}
