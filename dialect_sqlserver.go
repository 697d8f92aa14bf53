package outbox

import (
	"errors"
	"io/fs"
	"regexp"
	"strings"

	"github.com/incursa/watermill-outbox/schema"
)

// SQLServer is the dialect of SQL Server 2019 and later (compatibility level 130 and up) and Azure SQL, through
// github.com/microsoft/go-mssqldb.
type SQLServer struct{}

// Name implements Dialect.
func (SQLServer) Name() string { return "sqlserver" }

// Traits implements Dialect.
func (SQLServer) Traits() Traits {
	return Traits{
		Schema:         "dbo",
		Table:          "Outbox",
		MaxName:        128,
		NameLength:     utf16Length,
		Begin:          "BEGIN TRANSACTION",
		Savepoint:      "SAVE TRANSACTION outbox_operation",
		Restore:        "ROLLBACK TRANSACTION outbox_operation",
		Procedures:     true,
		BatchSeparator: "GO",
		// sqlcmd's default would create indexes that a filter cannot use.
		ScriptHeader: "SET ANSI_NULLS ON;\nSET QUOTED_IDENTIFIER ON;\nSET XACT_ABORT ON;\nBEGIN TRANSACTION;\nGO\n\n",
		ScriptFooter: "COMMIT TRANSACTION;\nGO\n",
		NewMessageID: newSQLServerID,
	}
}

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
	switch e.SQLErrorNumber() {
	case 1205, 1222, 3960, 51205: // deadlock victim, lock timeout, snapshot update conflict, our own in Outbox_Settle
		return ErrorRetryable
	case 628: // a savepoint outside a transaction
		return ErrorNoTransaction
	case 207, 208, 2812: // no such column, table, procedure
		return ErrorSchema
	default:
		return ErrorOther
	}
}
