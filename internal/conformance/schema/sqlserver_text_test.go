package schema_test

import (
	"io/fs"
	"regexp"
	"strings"
	"testing"

	mssql "github.com/microsoft/go-mssqldb"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	outbox "github.com/incursa/watermill-outbox"
)

// What a member of the role asks the catalog about must be visible to it: ownership chaining does not extend to metadata,
// and OBJECT_ID of what one has no right to is NULL. Settling once skipped the joins because of that, without a word.
func TestTrap_TheRoleSeesWhatIsAskedOf(t *testing.T) {
	files := outbox.SQLServer{}.Files()
	role, err := fs.ReadFile(files, "roles/role.sql")
	require.NoError(t, err)
	asked := map[string]string{}
	object := regexp.MustCompile(`N'(\[dbo\]\.\[[A-Za-z_]+\])'`)
	for _, pattern := range []string{"operations/*.sql", "procedures/*.sql", "setup/check*.sql", "setup/parts.sql"} {
		paths, err := fs.Glob(files, pattern)
		require.NoError(t, err)
		for _, path := range paths {
			text, err := fs.ReadFile(files, path)
			require.NoError(t, err)
			_, body, altered := strings.Cut(string(text), "\nALTER PROCEDURE") // what comes before it is run by Migrate
			if !altered {
				body = string(text)
			}
			for _, found := range object.FindAllStringSubmatch(body, -1) {
				asked[found[1]] = path
			}
		}
	}
	assert.NotEmpty(t, asked)
	for name, path := range asked {
		assert.Regexp(t, `GRANT (EXECUTE|SELECT|VIEW DEFINITION) ON `+regexp.QuoteMeta(name)+` TO \[dbo_Outbox_Role\]`, string(role), "asked of in %s", path)
	}
}

func TestSQLServer_RetryableNumbers(t *testing.T) {
	for _, number := range []int32{
		1205, 1222, 3960, 3961, 3966, 41301, 41302, 41305, 41325, 41839, 601, 617, 669, 1203, 1204, 1221, 8628, 8645, 8651, 921, 922, 983, 988,
		40143, 40166, 40197, 40501, 40540, 40613, 10922, 10928, 10929, 10936, 49918, 49919, 49920, 51205,
	} {
		assert.True(t, outbox.IsRetryable(mssql.Error{Number: number}), "%d", number)
	}
	for _, number := range []int32{0, 701, 1105, 9002, 3902, 3930, 40544, 18456} {
		assert.False(t, outbox.IsRetryable(mssql.Error{Number: number}), "running it again at once does not help: %d", number)
	}
	deadlock, doomed, other := mssql.Error{Number: 1205}, mssql.Error{Number: 3998}, mssql.Error{Number: 547}
	last := func(all ...mssql.Error) error {
		e := all[len(all)-1]
		e.All = all
		return e
	}
	assert.True(t, outbox.IsRetryable(last(deadlock, doomed)), "what has doomed the transaction is a deadlock")
	assert.False(t, outbox.IsRetryable(last(other, doomed)))
	assert.False(t, outbox.IsRetryable(last(doomed)))
	assert.False(t, outbox.IsRetryable(last(other)))
}

// The role of one schema has no rights in another, though they share the database's roles.
func TestTrap_RolesOfTwoSchemasAreTwo(t *testing.T) {
	for _, dialect := range []outbox.Dialect{outbox.SQLServer{}, outbox.Postgres{}} {
		script := func(config outbox.MigrateConfig) string {
			config.Dialect = dialect
			text, err := outbox.RoleSQL(config)
			require.NoError(t, err)
			return text
		}
		table := dialect.Traits().Table
		suffix := map[string]string{"Outbox": "_Role", "outbox": "_role"}[table]
		assert.Contains(t, script(outbox.MigrateConfig{Schema: "a"}), dialect.Quote("a_"+table+suffix))
		assert.Contains(t, script(outbox.MigrateConfig{Schema: "b"}), dialect.Quote("b_"+table+suffix))
		assert.NotContains(t, script(outbox.MigrateConfig{Schema: "b"}), dialect.Quote("a_"+table+suffix))
		named := script(outbox.MigrateConfig{Role: "workers"})
		assert.Contains(t, named, dialect.Quote("workers"))
		assert.NotContains(t, named, table+suffix)
		_, err := outbox.RoleSQL(outbox.MigrateConfig{Dialect: dialect, Schema: strings.Repeat("s", dialect.Traits().MaxName)})
		var field *outbox.FieldError
		require.ErrorAs(t, err, &field)
		assert.Equal(t, "MigrateConfig.Role", field.Field)
	}
}
