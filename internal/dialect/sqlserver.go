package dialect

import (
	"errors"
	"io/fs"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/incursa/watermill-outbox/internal/base"
	"github.com/incursa/watermill-outbox/internal/limits"
	"github.com/incursa/watermill-outbox/schema"
)

// SQLServer is the dialect of SQL Server 2019 and later (compatibility level 130 and up) and Azure SQL, through
// github.com/microsoft/go-mssqldb.
type SQLServer struct{}

func (SQLServer) sealed() {}

// Name implements Dialect.
func (SQLServer) Name() string { return "sqlserver" }

// Traits implements Dialect.
func (SQLServer) Traits() Traits {
	return Traits{
		Schema:         "dbo",
		Table:          "Outbox",
		MaxName:        128,
		NameLength:     limits.UTF16,
		Begin:          "BEGIN TRANSACTION",
		Savepoint:      "SAVE TRANSACTION {savepoint}",
		Restore:        "ROLLBACK TRANSACTION {savepoint}",
		Procedures:     true,
		BatchSeparator: "GO",
		// With sqlcmd's defaults, filtered indexes cannot be created.
		ScriptHeader: "SET ANSI_NULLS ON;\nSET QUOTED_IDENTIFIER ON;\nSET XACT_ABORT ON;\nBEGIN TRANSACTION;\nGO\n\n",
		// An error ends the transaction, except a compile error, which XACT_ABORT ignores. sqlcmd continues after both unless it
		// runs with -b.
		BatchHeader:  afterAnError + "IF @@TRANCOUNT = 0 SET NOEXEC ON;\nGO\n",
		ScriptFooter: afterAnError + "IF @@TRANCOUNT > 0 COMMIT TRANSACTION;\nGO\nSET NOEXEC OFF;\nGO\n",
		NewMessageID: base.NewSQLServerID,
	}
}

// afterAnError is the first statement of its batch: @@ERROR is that of the previous batch's last statement.
const afterAnError = "IF @@ERROR <> 0 AND @@TRANCOUNT > 0 ROLLBACK TRANSACTION;\n"

// Quote implements Dialect.
func (SQLServer) Quote(name string) string { return "[" + strings.ReplaceAll(name, "]", "]]") + "]" }

// Files implements Dialect.
func (SQLServer) Files() fs.FS { return schema.SQLServer() }

var alterProcedure = regexp.MustCompile(`(?m)^ALTER PROCEDURE (\S+)`)

// Call implements Dialect: an operation is the procedure that its file alters. The statement is its bare name, which
// go-mssqldb calls as a procedure; EXEC would leave a plan in the server's cache for each length of the argument.
func (SQLServer) Call(text string) Call {
	return Call{{Text: alterProcedure.FindStringSubmatch(text)[1]}}
}

// Classify implements Dialect.
func (SQLServer) Classify(err error) ErrorClass {
	var e interface{ SQLErrorNumber() int32 }
	if !errors.As(err, &e) {
		return ErrorOther
	}
	if slices.ContainsFunc(allNumbers(e), retryable) {
		return ErrorRetryable
	}
	switch e.SQLErrorNumber() {
	case 2601, 2627: // duplicate in a unique index, in a constraint
		return ErrorDuplicate
	case 628: // a savepoint outside a transaction
		return ErrorNoTransaction
	case 3906: // a read-only database, as a secondary replica's is
		return ErrorReadOnly
	case 207, 208, 2812: // no such column, table, procedure
		return ErrorSchema
	}
	if slices.ContainsFunc(allNumbers(e), ofData) {
		return ErrorData
	}
	return ErrorOther
}

// ofData reports whether an error number blames what was to be written.
func ofData(number int32) bool {
	switch number {
	case 515, 547, // NULL in a column that has none, a constraint
		2628, 8152, 511, 1946, // a text too long for its column, a row or a key that is too long
		220, 232, 8115, 8134, // overflow, division by zero
		241, 242, 245, 248, 295, 8114, 8169, // what cannot be converted
		13608, 13609: // JSON
		return true
	default:
		return false
	}
}

// retryable reports whether an error number means that the transaction should be run again.
func retryable(number int32) bool {
	switch number {
	case 1205, 1222, // deadlock victim, lock timeout
		3960, 3961, 3966, // snapshot: an update conflict, metadata changed, the version store shrunk
		41301, 41302, 41305, 41325, 41839, // the same in memory-optimized tables, which a caller's transaction may use
		601, 617, 669, // data moved during a scan, or the server lost its place: "rerun the query"
		1203, 1204, 1221, // a lock not owned, no more, not held
		8628, 8645, 8651, // no time to optimize, no memory in time, none at all
		921, 922, 983, 988, // the database is recovering, or its replica changes roles
		40143, 40166, 40197, 40501, 40540, 40613, 10922, 10928, 10929, 10936, 49918, 49919, 49920, // Azure SQL: failover, too busy
		51205: // raised by Outbox_Settle
		return true
	default:
		return false
	}
}

// allNumbers returns the numbers of all errors of a batch. The driver's error is the last one: after a procedure has caught a
// deadlock in a caller's transaction, that is 3998 (the transaction cannot be committed). go-mssqldb lists all errors in
// Error.All, which is read by reflection because this package imports no driver.
func allNumbers(last interface{ SQLErrorNumber() int32 }) []int32 {
	numbers := []int32{last.SQLErrorNumber()}
	e := reflect.Indirect(reflect.ValueOf(last))
	if e.Kind() != reflect.Struct {
		return numbers
	}
	all := e.FieldByName("All")
	if !all.IsValid() || all.Kind() != reflect.Slice {
		return numbers
	}
	for i := range all.Len() {
		if one, ok := all.Index(i).Interface().(interface{ SQLErrorNumber() int32 }); ok {
			numbers = append(numbers, one.SQLErrorNumber())
		}
	}
	return numbers
}
