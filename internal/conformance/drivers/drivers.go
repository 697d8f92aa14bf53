// Package drivers registers the drivers of the databases that internal/testdb opens.
package drivers

import (
	_ "github.com/jackc/pgx/v5/stdlib"
	_ "github.com/microsoft/go-mssqldb"
	_ "modernc.org/sqlite"
)
