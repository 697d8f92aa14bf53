// Package schema holds all SQL of the project as text: a folder for each dialect, with a file for each operation and the
// numbered migrations. Names are the default ones and are replaced when a statement is prepared.
package schema

import (
	"embed"
	"io/fs"
)

//go:embed sqlserver postgres sqlite
var files embed.FS

// SQLServer returns the files for SQL Server: operations, migrations, setup and roles, as each dialect has them.
func SQLServer() fs.FS { return folder("sqlserver") }

// Postgres returns the files for PostgreSQL.
func Postgres() fs.FS { return folder("postgres") }

// SQLite returns the files for SQLite.
func SQLite() fs.FS { return folder("sqlite") }

func folder(name string) fs.FS {
	sub, err := fs.Sub(files, name)
	if err != nil {
		panic(err) // the name is a constant of this file
	}
	return sub
}
