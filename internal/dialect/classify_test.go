package dialect

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
)

type (
	sqlServerError int32
	postgresError  string
	sqliteError    int
)

func (e sqlServerError) Error() string         { return "sqlserver" }
func (e sqlServerError) SQLErrorNumber() int32 { return int32(e) }
func (e postgresError) Error() string          { return "postgres" }
func (e postgresError) SQLState() string       { return string(e) }
func (e sqliteError) Error() string            { return "sqlite" }
func (e sqliteError) Code() int                { return int(e) }

// Errors for which the data of a statement is to blame are told from those of the database's state, such as a full disk.
func TestClassify(t *testing.T) {
	for class, errs := range map[ErrorClass][]error{
		ErrorOther: {nil, postgresError(""), postgresError("53100"), postgresError("42501"), postgresError("57014"),
			sqliteError(8), sqliteError(10), sqliteError(13), sqlServerError(0), sqlServerError(1105), sqlServerError(229)},
		ErrorReadOnly: {postgresError("25006"), sqlServerError(3906)},
		ErrorData: {postgresError("22001"), postgresError("22P05"), postgresError("23502"), postgresError("54000"),
			sqliteError(18), sqliteError(19), sqliteError(275), sqliteError(1299), sqliteError(20),
			sqlServerError(515), sqlServerError(547), sqlServerError(2628), sqlServerError(8152)},
		ErrorDuplicate: {postgresError("23505"), sqliteError(1555), sqliteError(2067), sqlServerError(2601), sqlServerError(2627)},
		ErrorRetryable: {postgresError("40P01"), sqliteError(5), sqliteError(517), sqlServerError(1205)},
		ErrorSchema:    {postgresError("42P01"), sqliteError(1), sqlServerError(208)},
	} {
		for _, err := range errs {
			var d Dialect = Postgres{}
			switch err.(type) { //nolint:errorlint // none of them is wrapped
			case sqlServerError:
				d = SQLServer{}
			case sqliteError:
				d = SQLite{}
			}
			assert.Equal(t, class, d.Classify(err), "%T %v", err, err)
			if err != nil {
				assert.Equal(t, class, d.Classify(fmt.Errorf("publish: %w", err)))
			}
		}
	}
}
