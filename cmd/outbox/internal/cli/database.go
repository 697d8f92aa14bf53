package cli

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"regexp"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/microsoft/go-mssqldb/msdsn"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/admin"
	"github.com/incursa/watermill-outbox/inbox"
	"github.com/incursa/watermill-outbox/join"
)

// errUnreachable is returned if the database does not answer at all.
var errUnreachable = errors.New("the database cannot be reached")

// connectTimeout is how long a server may take to answer at first.
const connectTimeout = 15 * time.Second

// A database is what commands work on.
type database struct {
	*sql.DB
	app     *app
	dialect outbox.Dialect
}

func (db *database) config() outbox.Config {
	return outbox.Config{Dialect: db.dialect, Schema: db.app.schema, Table: db.app.table}
}

func (db *database) outbox() (*outbox.Outbox, error) { return outbox.New(db.DB, db.config(), nil) }

func (db *database) admin() (*admin.Admin, error) {
	o, err := db.outbox()
	if err != nil {
		return nil, err
	}
	return admin.New(o)
}

func (db *database) joins() (*join.Coordinator, error) {
	return join.NewCoordinator(db.DB, join.Config{Dialect: db.dialect, Schema: db.app.schema, Table: db.app.table}, nil)
}

func (db *database) inbox() (*inbox.Inbox, error) {
	return inbox.New(db.DB, inbox.Config{Dialect: db.dialect, Schema: db.app.schema, Table: db.app.table}, nil)
}

// open connects. An SQLite file is created only if create is set, and then with WAL.
func (a *app) open(ctx context.Context, create bool) (*database, error) {
	db, err := a.connect(a.source(), create)
	if err != nil {
		return nil, err
	}
	limited, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	if err := db.PingContext(limited); err != nil {
		return nil, errors.Join(fmt.Errorf("%w: %w", errUnreachable, err), db.Close())
	}
	return db, nil
}

// connect does not yet touch a server.
func (a *app) connect(dsn string, create bool) (*database, error) {
	if dsn == "" {
		return nil, usage("name the database with --dsn or OUTBOX_DSN; see 'outbox --help'")
	}
	dialect, err := dialectOf(dsn)
	if err != nil {
		return nil, err
	}
	db := &database{app: a, dialect: dialect}
	switch dialect.(type) {
	case outbox.SQLite:
		db.DB, err = openSQLite(dsn, create)
	case outbox.Postgres:
		var config *pgx.ConnConfig
		if config, err = pgx.ParseConfig(dsn); err != nil {
			return nil, usage("the DSN cannot be read: %v", err)
		}
		db.DB = stdlib.OpenDB(*config)
	default:
		if db.DB, err = openSQLServer(dsn); err != nil {
			return nil, err
		}
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errUnreachable, err)
	}
	return db, nil
}

func (a *app) source() string {
	if a.dsn != "" {
		return a.dsn
	}
	return a.Env("OUTBOX_DSN")
}

// sqlServerField finds what names the server or the database in a connection string of ADO.NET.
var sqlServerField = regexp.MustCompile(`(?i)^\s*(?:server|data source|address|addr|network address)\s*=|;\s*(?:database|initial catalog)\s*=`)

// dialectOf tells the database from its DSN.
func dialectOf(dsn string) (outbox.Dialect, error) {
	lower := strings.ToLower(dsn)
	switch scheme, _, _ := strings.Cut(lower, ":"); {
	case scheme == "postgres" || scheme == "postgresql" || strings.Contains(lower, "host=") && !strings.Contains(lower, ";"):
		return outbox.Postgres{}, nil
	case scheme == "sqlserver" || sqlServerField.MatchString(dsn):
		return outbox.SQLServer{}, nil
	case scheme == "sqlite" || scheme == "file" || strings.HasSuffix(lower, ".db") || strings.HasSuffix(lower, ".sqlite"):
		return outbox.SQLite{}, nil
	}
	return nil, usage("the DSN names no database that is known; it begins with postgres://, sqlserver:// or sqlite:")
}

// openSQLServer refuses what the driver would ignore, and then log in without a name.
func openSQLServer(dsn string) (*sql.DB, error) {
	config, err := msdsn.Parse(dsn)
	if err != nil {
		return nil, usage("the DSN cannot be read: %v", err)
	}
	if _, entra := config.Parameters["fedauth"]; entra {
		return nil, usage("the DSN has fedauth: this program cannot sign in with Entra; use a SQL login, or package admin in a program of yours")
	}
	return sql.Open("sqlserver", dsn)
}

// openSQLite adds what a tool needs beside workers: patience, and the lock of a writer from the start.
func openSQLite(dsn string, create bool) (*sql.DB, error) {
	name, query, _ := strings.Cut(strings.TrimPrefix(strings.TrimPrefix(dsn, "sqlite://"), "sqlite:"), "?")
	values, err := url.ParseQuery(query)
	if err != nil {
		return nil, usage("the DSN's parameters cannot be read: %v", err)
	}
	if uri, found := strings.CutPrefix(name, "file:"); found {
		if name, err = url.PathUnescape(uri); err != nil {
			return nil, usage("the DSN's path cannot be read: %v", err)
		}
	}
	if !create {
		if _, err := os.Stat(name); err != nil {
			return nil, fmt.Errorf("there is no such file; 'outbox migrate up' creates it: %w", err)
		}
	}
	pragmas := strings.Join(values["_pragma"], " ")
	if !strings.Contains(pragmas, "busy_timeout") {
		values.Add("_pragma", "busy_timeout(10000)")
	}
	switch {
	case strings.Contains(pragmas, "journal_mode"):
	case create:
		values.Add("_pragma", "journal_mode(WAL)")
	default:
		values.Add("_pragma", "journal_mode") // as the file has it
	}
	if !values.Has("_txlock") {
		values.Set("_txlock", "immediate")
	}
	return outbox.OpenSQLite("sqlite", "file:"+(&url.URL{Path: name}).EscapedPath()+"?"+values.Encode())
}

// passwordField finds the password in a DSN of keywords.
var passwordField = regexp.MustCompile(`(?i)\b(?:password|pwd)\s*=\s*('[^']*'|[^;\s&]+)`)

// redact takes the password of the DSN out of a text, in each form in which an error may have it.
func (a *app) redact(text string) string { return redactDSN(a.source(), text) }

func redactDSN(dsn, text string) string {
	var secrets []string
	if u, err := url.Parse(dsn); err == nil && u.User != nil {
		if password, set := u.User.Password(); set && password != "" {
			secrets = append(secrets, password, url.QueryEscape(password), url.PathEscape(password))
		}
	}
	if _, rest, found := strings.Cut(dsn, "://"); found { // as it was typed, even if it is no URL
		if at := strings.LastIndex(rest, "@"); at >= 0 {
			if _, typed, found := strings.Cut(rest[:at], ":"); found && typed != "" {
				secrets = append(secrets, typed)
			}
		}
	}
	for _, match := range passwordField.FindAllStringSubmatch(dsn, -1) {
		secrets = append(secrets, match[1], strings.Trim(match[1], "'"))
	}
	for _, secret := range secrets {
		text = strings.ReplaceAll(text, secret, "xxxxx")
	}
	return text
}
