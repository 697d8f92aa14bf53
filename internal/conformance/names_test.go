package conformance

import (
	"strings"
	"testing"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/internal/testdb"
)

// Names that break out of a quote, a literal, a comment, a format or a parameter, wherever they are put in unquoted.
var nastyNames = []string{
	`]`, `]]`, `[`, `"`, `""`, `'`, `''`, "`", `a.b`, `two words`, `dash-ed`, `x]; DROP TABLE y; --`, `x'; DROP TABLE y; --`,
	`x"; DROP TABLE y; --`, `/* comment */`, `-- comment`, `$1 $2`, `?1 ?2`, `@p1 @Arg`, `:name`, `%s %d`, `\`, `a\b`, `$x$`,
	`Grüße 🙂`, `ılgaz İ`, `select`, `outbox_outbox`, `Outbox`, `OUTBOX`, `public`, `dbo`, `main`, `outbox`, `GO`, `1`, `#not_temporary`,
}

func TestTrap_NamesOfAnyKind(t *testing.T) {
	namesWork(t, []string{`]"'`, "` a.b-c", `x]]; DROP TABLE y; --`, `/* comment */ $x$`, `?1 $1 @p1 :name %s`, `\ Grüße 🙂`, `select`, `Outbox`})
}

func TestLong_NamesOfAnyKind(t *testing.T) { namesWork(t, nastyNames) }

func namesWork(t *testing.T, names []string) {
	t.Helper()
	forEachEmpty(t, func(t *testing.T, f *fixture) {
		for _, name := range names {
			if f.db.Name == testdb.SQLServer && strings.HasPrefix(name, "#") {
				name = "_" + name // the mark of temporary tables there
			}
			t.Run(name, func(t *testing.T) {
				g := newFixture(t, f.db, name)
				g.needs(named("", name))
				g.works()
				if g.db.Name == testdb.SQLServer {
					g.dropObjects() // the names are not for everyone
				}
			})
		}
	})
}

func TestTrap_SchemaNamesOfAnyKind(t *testing.T) {
	forEachEmpty(t, func(t *testing.T, f *fixture) {
		if f.config.Dialect.Traits().FixedSchema {
			f.skip("schemas", "there are none to choose")
		}
		for _, name := range []string{`x]y`, `x"y`, `x'y`, `two words`, `a.b`, `outbox`, `$1 @p1 ?1`, `Grüße`} {
			t.Run(name, func(t *testing.T) {
				g := newFixture(t, f.db, "its own table")
				name += " " + f.config.Schema
				g.needs(named(name, "its own table"))
				g.inSchema(name)
				g.works()
			})
		}
	})
}

// works goes once through everything that an outbox can do.
func (f *fixture) works() {
	f.t.Helper()
	f.migrate()
	f.migrate()
	ids := f.enqueueN("orders", 4)
	claimed := f.claim("orders")
	f.Equal(ids, messageIDs(claimed))
	refused, err := f.outbox.Renew(f.ctx(), 1e9, claimed[0].Receipt)
	f.NoError(err)
	f.Empty(refused)
	f.Empty(f.settle(append(settled(outbox.Ack, claimed[0]), append(settled(outbox.Fail, claimed[1]), settled(outbox.Release, claimed[2])...)...)...))
	f.expireLeases()
	n, err := f.outbox.ReapExpired(f.ctx())
	f.NoError(err)
	f.Equal(1, n)
	n, err = f.outbox.Requeue(f.ctx(), outbox.RequeueParams{All: true})
	f.NoError(err)
	f.Equal(1, n)
	f.exec("UPDATE {outbox} SET {created_at} = {past}")
	f.exec("UPDATE {outbox_state} SET {processed_at} = {past} WHERE {status} = 2")
	n, err = f.outbox.Purge(f.ctx(), outbox.PurgeParams{})
	f.NoError(err)
	f.Equal(1, n)
	topics, err := f.outbox.Topics(f.ctx())
	f.NoError(err)
	f.Len(topics, 1)
	records, err := f.outbox.Get(f.ctx(), ids...)
	f.NoError(err)
	f.Len(records, 3)
	deleting := f.newOutbox(f.db.DB, func(c *outbox.Config) { c.DeleteOnAck = true })
	claimed = f.claim("orders")
	f.Len(claimed, 3)
	_, err = deleting.Settle(f.ctx(), f.db.DB, settled(outbox.Ack, claimed...))
	f.NoError(err)
	f.Equal(0, f.count())
	if !f.withoutJoins {
		f.joinsWork()
	}
}

// Where the database takes names for the same that differ in case only, so does the library.
func TestTrap_NamesWithoutCase(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		if f.db.Name != testdb.SQLite {
			f.skip("names without case", "quoted names have case, or the collation decides")
		}
		other := newFixture(t, f.db, "OUTBOX")
		f.NoError(outbox.Check(f.ctx(), f.db.DB, other.migrateConfig()))
		f.enqueueN("orders", 1)
		f.Len(other.claim("orders"), 1)
		f.clear()
		other.joinsWork()
	})
}

func TestTrap_TheLongestName(t *testing.T) {
	forEachEmpty(t, func(t *testing.T, f *fixture) {
		f.needs(longNames)
		longest := f.longestTable("t")
		t.Logf("%s allows %d characters for a table", f.db.Name, len(longest))
		f.Greater(len(longest), 30)
		t.Run("plain", func(t *testing.T) { newFixture(t, f.db, longest).works() })
		t.Run("all to be quoted", func(t *testing.T) { newFixture(t, f.db, f.longestTable("]")).works() })

		_, err := outbox.New(f.db.DB, outbox.Config{Dialect: f.config.Dialect, Schema: f.config.Schema, Table: longest + "t"}, nil)
		f.requireField(err, "Table")
		if !f.config.Dialect.Traits().FixedSchema {
			_, err = outbox.New(f.db.DB, outbox.Config{Dialect: f.config.Dialect, Schema: strings.Repeat("s", f.config.Dialect.Traits().MaxName+1)}, nil)
			f.requireField(err, "Schema")
			longSchema := newFixture(t, f.db, longest)
			longSchema.inSchema(strings.Repeat("s", f.config.Dialect.Traits().MaxName))
			longSchema.works()
		}
	})
}

// longestTable is the longest name of one character that is not refused.
func (f *fixture) longestTable(character string) string {
	f.t.Helper()
	for n := f.config.Dialect.Traits().MaxName; n > 0; n-- {
		name := strings.Repeat(character, n)
		if _, err := outbox.New(f.db.DB, outbox.Config{Dialect: f.config.Dialect, Schema: f.config.Schema, Table: name}, nil); err == nil {
			return name
		}
	}
	f.Fail("no name is allowed")
	return ""
}

func TestTrap_NamesThatAreRefused(t *testing.T) {
	forEachEmpty(t, func(t *testing.T, f *fixture) {
		for _, name := range []string{" x", "x ", "x\t", "a\nb", "a\x00b", "\xff", "a\x7fb", strings.Repeat("x", 1000)} {
			_, err := outbox.New(f.db.DB, outbox.Config{Dialect: f.config.Dialect, Schema: f.config.Schema, Table: name}, nil)
			f.requireField(err, "Table")
			config := f.migrateConfig()
			config.Table = name
			f.requireField(outbox.Migrate(f.ctx(), f.db.DB, config), "Table")
			_, err = outbox.NewPublisher(f.db.DB, outbox.PublisherConfig{Dialect: f.config.Dialect, Schema: f.config.Schema, Table: name}, nil)
			f.requireField(err, "PublisherConfig.Table")
			_, err = outbox.NewSequencer(f.db.DB, outbox.SequencerConfig{Dialect: f.config.Dialect, Schema: name}, nil)
			f.requireField(err, "SequencerConfig.Schema")
			_, err = outbox.New(f.db.DB, outbox.Config{Dialect: f.config.Dialect, Schema: name}, nil)
			f.requireField(err, "Schema")
			_, err = outbox.MigrationSQL(outbox.MigrateConfig{Dialect: f.config.Dialect, Schema: name})
			f.requireField(err, "Schema")
		}
		_, err := outbox.New(f.db.DB, outbox.Config{}, nil)
		f.requireField(err, "Dialect")
		_, err = outbox.New(f.db.DB, outbox.Config{Dialect: f.config.Dialect, Schema: f.config.Schema, WorkerName: strings.Repeat("w", 101)}, nil)
		f.requireField(err, "WorkerName")
		f.Empty(f.names("table"))
	})
}

func TestTrap_TwoOutboxesInOneSchema(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		other := newFixture(t, f.db, "second")
		other.migrate()
		f.enqueueN("orders", 2)
		other.enqueueN("orders", 3)
		f.Len(f.claim("orders"), 2)
		f.Len(other.claim("orders"), 3)
	})
}
