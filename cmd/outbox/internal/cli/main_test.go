package cli

import (
	"testing"

	"go.uber.org/goleak"

	_ "github.com/jackc/pgx/v5/stdlib"
	_ "github.com/microsoft/go-mssqldb"
	_ "modernc.org/sqlite"

	"github.com/incursa/watermill-outbox/internal/testprocess"
)

func TestMain(m *testing.M) {
	testprocess.Run(commandVariable, command.run)
	goleak.VerifyTestMain(m)
}
