package suite

import (
	"context"
	"fmt"
	"strings"

	"github.com/incursa/watermill-outbox/internal/testdb"
	"github.com/incursa/watermill-outbox/internal/testoutbox"
)

// Named is the capability to have objects of a name, in a schema of a name if one is given. Only SQL Server is asked: its
// likes differ in what they make of names. The probe does what any script does with names, in its own words.
func Named(schema, name string) *Capability {
	title := "objects named " + name
	if schema != "" {
		title = "objects named " + schema + "." + name
	}
	return &Capability{title, func(ctx context.Context, db *testdb.DB) (lacks string, err error) {
		if db.Name != testdb.SQLServer {
			return "", nil
		}
		p := nameProbe{ctx: ctx, db: db, schema: db.Schema, name: name}
		if schema != "" {
			p.schema = schema
			p.try("CREATE SCHEMA {s}")
			defer func() {
				p.expect(1, "SELECT COUNT(*) FROM sys.schemas WHERE name = N'"+Literal(schema)+"'")
				p.try("DROP SCHEMA {s}")
				lacks = p.lacks
			}()
		}
		p.tryObjects()
		return p.lacks, nil
	}}
}

type nameProbe struct {
	ctx          context.Context //nolint:containedctx // lives as long as the probe
	db           *testdb.DB
	schema, name string
	lacks        string // the first failure
}

func (p *nameProbe) tryObjects() {
	index := "IX_" + p.name + "_Log_Pending_MessageId" // no name that the library makes is longer
	p.try("CREATE TABLE {t} (id INT NOT NULL, n INT NOT NULL)")
	p.try("CREATE INDEX " + testoutbox.Dialect(p.db.Name).Quote(index) + " ON {t} (n)")
	p.expect(1, "SELECT COUNT(*) FROM sys.indexes WHERE object_id = OBJECT_ID(N'{lt}') AND LEFT(name, LEN(N'"+Literal(index)+"')) = N'"+Literal(index)+"'")
	p.try("EXEC (N'CREATE VIEW {lv} AS SELECT id FROM {lt}')")
	p.try("IF OBJECT_ID(N'{lp}', N'P') IS NULL EXEC (N'CREATE PROCEDURE {lp} AS RETURN 0')")
	p.try(`ALTER PROCEDURE {p} AS
BEGIN
	SET NOCOUNT ON;
	DECLARE @One INT = 1;
	DECLARE @Found TABLE (id INT NOT NULL);
	BEGIN TRY
		BEGIN TRANSACTION;
		UPDATE {t} WITH (ROWLOCK) SET n = 1 OUTPUT inserted.id INTO @Found (id)
		WHERE n = 0 AND id IN (SELECT TOP (@One) id FROM {t} WHERE n = 0 ORDER BY id);
		IF @One > 0
		BEGIN
			UPDATE {t} WITH (ROWLOCK) SET n = 1 OUTPUT inserted.id INTO @Found (id)
			WHERE n = 0 AND id IN (SELECT TOP (@One) id FROM {t} WHERE n = 0 ORDER BY id);
			DELETE FROM {t} WHERE id IN (SELECT id FROM {t} WHERE n = 0);
			UPDATE {t} WITH (ROWLOCK, READPAST) SET n = 2
			WHERE n = 1 AND id IN (SELECT TOP (@One) id FROM {t} WITH (UPDLOCK, READPAST, ROWLOCK, FORCESEEK) WHERE n = 1 ORDER BY n, id)
			OPTION (LOOP JOIN, MAXDOP 1);
			UPDATE {t} SET n = 1 WHERE id = @One;
		END
		SELECT t.id FROM @Found AS f INNER JOIN {t} AS t ON t.id = f.id;
		COMMIT TRANSACTION;
	END TRY
	BEGIN CATCH
		IF XACT_STATE() <> 0 ROLLBACK TRANSACTION;
		THROW;
	END CATCH
END`)
	p.try("INSERT INTO {t} (id, n) VALUES (0, 0)")
	p.try("EXEC {p}")
	p.expect(3, "SELECT COUNT(*) FROM sys.objects WHERE schema_id = SCHEMA_ID(N'"+Literal(p.schema)+"') AND name IN (N'"+
		Literal(p.name+"_t")+"', N'"+Literal(p.name+"_v")+"', N'"+Literal(p.name+"_p")+"')")
	p.try("DROP PROCEDURE {p}")
	p.try("DROP VIEW {v}")
	p.try("DROP TABLE {t}")
}

func (p *nameProbe) try(statement string) {
	if _, err := p.db.ExecContext(p.ctx, p.named(statement)); err != nil && p.lacks == "" {
		p.lacks = err.Error()
	}
}

func (p *nameProbe) expect(want int, query string) {
	var n int
	if err := p.db.QueryRowContext(p.ctx, p.named(query)).Scan(&n); (err != nil || n != want) && p.lacks == "" {
		p.lacks = fmt.Sprintf("the catalog does not have the names as they were given (%d of %d, %v)", n, want, err)
	}
}

// named puts names into a statement: for {s} the schema, {t}, {v} and {p} a table, a view and a procedure; {lt}, {lv} and
// {lp} the same between the quotes of a literal.
func (p *nameProbe) named(statement string) string {
	quote := testoutbox.Dialect(p.db.Name).Quote
	for _, kind := range []string{"s", "t", "v", "p"} {
		name := quote(p.schema) + "." + quote(p.name+"_"+kind)
		if kind == "s" {
			name = quote(p.schema)
		}
		statement = strings.ReplaceAll(statement, "{l"+kind+"}", Literal(name))
		statement = strings.ReplaceAll(statement, "{"+kind+"}", name)
	}
	return statement
}
