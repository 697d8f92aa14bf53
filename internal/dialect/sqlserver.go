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
		Savepoint:      "SAVE TRANSACTION outbox_operation",
		Restore:        "ROLLBACK TRANSACTION outbox_operation",
		Procedures:     true,
		BatchSeparator: "GO",
		// sqlcmd's default would create indexes that a filter cannot use.
		ScriptHeader: "SET ANSI_NULLS ON;\nSET QUOTED_IDENTIFIER ON;\nSET XACT_ABORT ON;\nBEGIN TRANSACTION;\nGO\n\n",
		// An error ends the transaction, but for one of compiling, which XACT_ABORT does not look at; and sqlcmd goes on after
		// either unless it is told otherwise (-b).
		BatchHeader:  afterAnError + "IF @@TRANCOUNT = 0 SET NOEXEC ON;\nGO\n",
		ScriptFooter: afterAnError + "IF @@TRANCOUNT > 0 COMMIT TRANSACTION;\nGO\nSET NOEXEC OFF;\nGO\n",
		NewMessageID: base.NewSQLServerID,
	}
}

// afterAnError comes first in its batch: @@ERROR is that of the last statement of the batch before.
const afterAnError = "IF @@ERROR <> 0 AND @@TRANCOUNT > 0 ROLLBACK TRANSACTION;\n"

// Quote implements Dialect.
func (SQLServer) Quote(name string) string { return "[" + strings.ReplaceAll(name, "]", "]]") + "]" }

// Files implements Dialect.
func (SQLServer) Files() fs.FS { return schema.SQLServer() }

var alterProcedure = regexp.MustCompile(`(?m)^ALTER PROCEDURE (\S+)`)

// Call implements Dialect: an operation is the procedure that its file alters. The statement is its bare name, which
// go-mssqldb calls as a procedure; an EXEC would leave a plan in the server's cache for each length of the argument.
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
	case 2601, 2627: // of a unique index, of a constraint
		return ErrorDuplicate
	case 628: // a savepoint outside a transaction
		return ErrorNoTransaction
	case 207, 208, 2812: // no such column, table, procedure
		return ErrorSchema
	default:
		return ErrorOther
	}
}

// retryable are the numbers that ask for the transaction to be run again.
func retryable(number int32) bool {
	switch number {
	case 1205, 1222, // deadlock victim, lock timeout
		3960, 3961, // snapshot: an update conflict, metadata changed
		601, 1204, 8645, // data moved during a scan; no more locks; no memory in time
		40197, 40501, 40613, 10928, 10929, 49918, 49919, 49920, // Azure SQL: failover, too busy
		51205: // our own in Outbox_Settle
		return true
	default:
		return false
	}
}

// allNumbers are the numbers of all errors of a batch, where the driver lists them: it names the last, and that is 3998 (the
// transaction cannot be committed) where a procedure has caught a deadlock in a caller's transaction. The field is
// go-mssqldb's Error.All; this package imports no driver.
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
