package schema_test

import (
	"strings"
	"testing"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/internal/conformance/suite"
	"github.com/incursa/watermill-outbox/internal/testdb"
)

// Names that break out of a quote, a literal, a comment, a format or a parameter, wherever they are put in unquoted.
var nastyNames = []string{
	`]`, `]]`, `[`, `"`, `""`, `'`, `''`, "`", `a.b`, `two words`, `dash-ed`, `x]; DROP TABLE y; --`, `x'; DROP TABLE y; --`,
	`x"; DROP TABLE y; --`, `/* comment */`, `-- comment`, `$1 $2`, `?1 ?2`, `@p1 @Arg`, `:name`, `%s %d`, `\`, `a\b`, `$x$`,
	`Grüße 🙂`, `ılgaz İ`, `select`, `outbox_outbox`, `Outbox`, `OUTBOX`, `public`, `dbo`, `main`, `outbox`, `GO`, `1`, `#not_temporary`,
}

// Each name holds as many of the characters of nastyNames as it can.
func TestTrap_NamesOfAnyKind(t *testing.T) {
	namesWork(t, []string{`]"'`, "` a.b-c /* x */ $x$", `x]]; DROP TABLE y; --`, `?1 $1 @p1 :n %s \Grüße🙂`, `select`})
}

func TestLong_NamesOfAnyKind(t *testing.T) { namesWork(t, nastyNames) }

func namesWork(t *testing.T, names []string) {
	t.Helper()
	forEachEmpty(t, func(t *testing.T, f *fixture) {
		for _, name := range names {
			if f.DB.Name == testdb.SQLServer && strings.HasPrefix(name, "#") {
				name = "_" + name // the mark of temporary tables there
			}
			t.Run(name, func(t *testing.T) {
				g := suite.New(t, f.DB, name)
				g.Needs(suite.Named("", name))
				g.Works()
				if g.DB.Name == testdb.SQLServer {
					g.DropObjects() // the names are not for everyone
				}
			})
		}
	})
}

func TestTrap_SchemaNamesOfAnyKind(t *testing.T) {
	forEachEmpty(t, func(t *testing.T, f *fixture) {
		if f.Config.Dialect.Traits().FixedSchema {
			f.Skip("schemas", "there are none to choose")
		}
		for _, name := range []string{`x]y"z'`, `two words a.b`, `$1 @p1 ?1 Grüße`, `outbox`} {
			t.Run(name, func(t *testing.T) {
				g := suite.New(t, f.DB, "its own table")
				name += " " + f.Config.Schema
				g.Needs(suite.Named(name, "its own table"))
				g.InSchema(name)
				g.Works()
			})
		}
	})
}

// Where the database takes names for the same that differ in case only, so does the library.
func TestTrap_NamesWithoutCase(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		if f.DB.Name != testdb.SQLite {
			f.Skip("names without case", "quoted names have case, or the collation decides")
		}
		other := suite.New(t, f.DB, "OUTBOX")
		f.NoError(outbox.Check(f.Context(), f.DB.DB, other.MigrateConfig()))
		f.EnqueueN("orders", 1)
		f.Len(other.Claim("orders"), 1)
		f.Clear()
		other.JoinsWork()
	})
}

func TestTrap_TheLongestName(t *testing.T) {
	forEachEmpty(t, func(t *testing.T, f *fixture) {
		f.Needs(suite.LongNames)
		longest := f.longestTable("t")
		t.Logf("%s allows %d characters for a table", f.DB.Name, len(longest))
		f.Greater(len(longest), 30)
		t.Run("plain", func(t *testing.T) { suite.New(t, f.DB, longest).Works() })
		t.Run("all to be quoted", func(t *testing.T) { suite.New(t, f.DB, f.longestTable("]")).Works() })

		_, err := outbox.New(f.DB.DB, outbox.Config{Dialect: f.Config.Dialect, Schema: f.Config.Schema, Table: longest + "t"}, nil)
		f.RequireField(err, "Config.Table")
		if !f.Config.Dialect.Traits().FixedSchema {
			_, err = outbox.New(f.DB.DB, outbox.Config{Dialect: f.Config.Dialect, Schema: strings.Repeat("s", f.Config.Dialect.Traits().MaxName+1)}, nil)
			f.RequireField(err, "Config.Schema")
			longSchema := suite.New(t, f.DB, longest)
			longSchema.InSchema(strings.Repeat("s", f.Config.Dialect.Traits().MaxName))
			longSchema.Works()
		}
	})
}

// longestTable is the longest name of one character that is not refused.
func (f *fixture) longestTable(character string) string {
	f.T.Helper()
	for n := f.Config.Dialect.Traits().MaxName; n > 0; n-- {
		name := strings.Repeat(character, n)
		if _, err := outbox.New(f.DB.DB, outbox.Config{Dialect: f.Config.Dialect, Schema: f.Config.Schema, Table: name}, nil); err == nil {
			return name
		}
	}
	f.Fail("no name is allowed")
	return ""
}

func TestTrap_NamesThatAreRefused(t *testing.T) {
	forEachEmpty(t, func(t *testing.T, f *fixture) {
		for _, name := range []string{" x", "x ", "x\t", "a\nb", "a\x00b", "\xff", "a\x7fb", strings.Repeat("x", 1000)} {
			_, err := outbox.New(f.DB.DB, outbox.Config{Dialect: f.Config.Dialect, Schema: f.Config.Schema, Table: name}, nil)
			f.RequireField(err, "Config.Table")
			config := f.MigrateConfig()
			config.Table = name
			f.RequireField(outbox.Migrate(f.Context(), f.DB.DB, config), "MigrateConfig.Table")
			_, err = outbox.NewPublisher(f.DB.DB, outbox.PublisherConfig{Dialect: f.Config.Dialect, Schema: f.Config.Schema, Table: name}, nil)
			f.RequireField(err, "PublisherConfig.Table")
			_, err = outbox.NewSequencer(f.DB.DB, outbox.SequencerConfig{Dialect: f.Config.Dialect, Schema: name}, nil)
			f.RequireField(err, "SequencerConfig.Schema")
			_, err = outbox.New(f.DB.DB, outbox.Config{Dialect: f.Config.Dialect, Schema: name}, nil)
			f.RequireField(err, "Config.Schema")
			_, err = outbox.MigrationSQL(outbox.MigrateConfig{Dialect: f.Config.Dialect, Schema: name})
			f.RequireField(err, "MigrateConfig.Schema")
		}
		_, err := outbox.New(f.DB.DB, outbox.Config{}, nil)
		f.RequireField(err, "Config.Dialect")
		_, err = outbox.New(f.DB.DB, outbox.Config{Dialect: f.Config.Dialect, Schema: f.Config.Schema, WorkerName: strings.Repeat("w", 101)}, nil)
		f.RequireField(err, "Config.WorkerName")
		f.Empty(f.Names("table"))
	})
}

func TestTrap_TwoOutboxesInOneSchema(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		other := suite.New(t, f.DB, "second")
		other.Migrate()
		f.EnqueueN("orders", 2)
		other.EnqueueN("orders", 3)
		f.Len(f.Claim("orders"), 2)
		f.Len(other.Claim("orders"), 3)
	})
}

// SQLite keeps names for its own tables, and would refuse only the first statement of a migration.
func TestTrap_ATableWithAReservedNameIsRefusedByItsField(t *testing.T) {
	forEachEmpty(t, func(_ *testing.T, f *fixture) {
		if f.DB.Name != testdb.SQLite {
			return
		}
		for _, table := range []string{"sqlite_q", "SQLite_"} {
			_, err := outbox.New(f.DB.DB, outbox.Config{Dialect: f.Config.Dialect, Table: table}, nil)
			f.RequireField(err, "Config.Table")
		}
	})
}

// What a crash can tear is reported for a file, whatever the mode is good for in memory.
func TestTrap_CheckRefusesAJournalInMemory(t *testing.T) {
	forEach(t, func(_ *testing.T, f *fixture) {
		if f.DB.Name != testdb.SQLite {
			return
		}
		f.DB.SetMaxOpenConns(1)
		_, err := f.DB.ExecContext(f.Context(), "PRAGMA journal_mode = DELETE")
		f.NoError(err)
		_, err = f.DB.ExecContext(f.Context(), "PRAGMA journal_mode = MEMORY")
		f.NoError(err)
		f.ErrorContains(outbox.Check(f.Context(), f.DB.DB, f.MigrateConfig()), "journal_mode is memory")
	})
}
