package outbox

import (
	"cmp"
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/incursa/watermill-outbox/internal/base"
	"github.com/incursa/watermill-outbox/internal/dialect"
	"github.com/incursa/watermill-outbox/schema"
)

// MigrateConfig says which outbox to install.
type MigrateConfig struct {
	// Dialect is the database: SQLServer{}, Postgres{} or SQLite{}. Required.
	Dialect Dialect

	// Schema and Table name the outbox. Default to those of Config. The schema is created if it is missing.
	Schema, Table string

	// Role is the name of the role that RoleSQL creates. Defaults to the schema, the table and Role: dbo_Outbox_Role, or
	// public_outbox_role.
	Role string

	// WithoutJoins leaves out the tables of package join. Defaults to false.
	WithoutJoins bool

	// WithInbox adds the table of package inbox. Defaults to false; inbox.Migrate sets it.
	WithInbox bool
}

// Migrate creates or updates the tables, indexes and procedures of an outbox. It runs in one transaction under its own lock,
// so any number of processes may call it at once, and it changes nothing if everything is up to date. Objects that were
// dropped are created again, without their contents. Nothing else in this module creates anything.
//
// Migrate only goes forward: if a newer version of the library has migrated the database, it returns ErrSchemaNewer and
// changes nothing. It returns ErrSchema if it cannot repair a table, or if the tables are of an earlier layout, and a
// *FieldError that names a bad field.
func Migrate(ctx context.Context, db *sql.DB, config MigrateConfig) error {
	if db == nil {
		return base.ErrNilDB
	}
	s, err := newScript(config)
	if err != nil {
		return err
	}
	for try := 0; ; try++ {
		err := s.install(ctx, db)
		if err == nil {
			return nil
		}
		if try == conflictRetries || s.dialect.Classify(err) != dialect.ErrorRetryable {
			return fmt.Errorf("migrate %s: %w", s.names.qualified(s.dialect.Traits().Table), err)
		}
		if err := pause(ctx, conflictPauseMax); err != nil {
			return err
		}
	}
}

// MigrationSQL returns the same as a script, for your own migration tool or your DBA: idempotent, one transaction or part
// of yours, and with GO between batches for SQL Server. Unlike Migrate, the script does not check which version migrated the
// database before. It returns a *FieldError that names a bad field.
func MigrationSQL(config MigrateConfig) (string, error) {
	s, err := newScript(config)
	if err != nil {
		return "", err
	}
	return s.print(), nil
}

// RoleSQL returns a script that creates a role with only the rights that publishers and workers need.
// Run it after Migrate; running it again changes nothing. It returns a *FieldError that names a bad field.
func RoleSQL(config MigrateConfig) (string, error) {
	s, err := newScript(config)
	if err != nil {
		return "", err
	}
	if err := s.names.validate("MigrateConfig.Role", s.names.roleName(), config.Dialect.Traits().MaxName); err != nil {
		return "", err
	}
	roles, err := s.read("roles/*.sql")
	if err != nil {
		return "", err
	}
	return roles[0].text, nil
}

// A script is everything that an outbox consists of, in the order of its installation.
type script struct {
	dialect    Dialect
	names      names
	setup      []sqlFile // run every time: the lock, the schema, the history
	migrations []sqlFile // run once
	procedures []sqlFile // run when their text has changed

	checks                  []string // queries that name what is missing
	leftOut                 map[string]leftOut
	listHistory, addHistory string
}

type sqlFile struct {
	name, text string
	version    int // of a migration
}

// A leftOut part is one that the configuration leaves out.
type leftOut struct {
	migration sqlFile
	check     string
}

// proceduresVersion is the version under which the history keeps the checksum of the procedures.
const proceduresVersion = 0

func newScript(config MigrateConfig) (*script, error) {
	n, err := newNames(config.Dialect, config.Schema, config.Table)
	if err != nil {
		return nil, err
	}
	n.role = config.Role
	s := &script{dialect: config.Dialect, names: n}
	if s.setup, err = s.read("setup/[0-9]*.sql"); err != nil {
		return nil, err
	}
	if s.migrations, err = s.read("migrations/*.sql"); err != nil {
		return nil, err
	}
	for i := range s.migrations {
		number, _, _ := strings.Cut(s.migrations[i].name, "_")
		if s.migrations[i].version, err = strconv.Atoi(number); err != nil {
			return nil, fmt.Errorf("number of the migration %s: %w", s.migrations[i].name, err)
		}
	}
	unwanted := map[string]bool{"joins": config.WithoutJoins, "inbox": !config.WithInbox}
	s.leftOut = map[string]leftOut{}
	s.migrations = slices.DeleteFunc(s.migrations, func(f sqlFile) bool {
		_, part, _ := strings.Cut(f.name, "_")
		if unwanted[part] {
			s.leftOut[part] = leftOut{migration: f}
		}
		return unwanted[part]
	})
	if config.Dialect.Traits().Procedures {
		if err := s.readProcedures(); err != nil {
			return nil, err
		}
	}
	queries, err := s.read("setup/[a-z]*.sql")
	if err != nil {
		return nil, err
	}
	for _, file := range queries {
		part, isCheck := strings.CutPrefix(file.name, "check")
		part = strings.TrimPrefix(part, "_")
		switch left, out := s.leftOut[part]; {
		case isCheck && out:
			s.leftOut[part] = leftOut{left.migration, file.text}
		case isCheck:
			s.checks = append(s.checks, file.text)
		case file.name == "history_add":
			s.addHistory = file.text
		case file.name == "history_list":
			s.listHistory = file.text
		}
	}
	return s, nil
}

// readProcedures reads what is called by name; other operations are sent as they are.
func (s *script) readProcedures() error {
	operations, err := s.read("operations/*.sql")
	if err != nil {
		return err
	}
	s.procedures = slices.DeleteFunc(operations, func(f sqlFile) bool {
		return s.dialect.Call(f.text)[0].Text == dialect.WithoutComments(f.text)
	})
	more, err := s.read("procedures/*.sql")
	s.procedures = append(s.procedures, more...)
	return err
}

// read returns the files of a pattern in order of their names, with the outbox's names in them.
func (s *script) read(pattern string) ([]sqlFile, error) {
	paths, err := fs.Glob(s.dialect.Files(), pattern)
	if err != nil {
		return nil, fmt.Errorf("list the schema files: %w", err)
	}
	var files []sqlFile
	for _, p := range paths {
		text, err := fs.ReadFile(s.dialect.Files(), p)
		if err != nil {
			return nil, fmt.Errorf("read the schema files: %w", err)
		}
		files = append(files, sqlFile{name: strings.TrimSuffix(path.Base(p), ".sql"), text: s.names.apply(string(text))})
	}
	return files, nil
}

func (s *script) install(ctx context.Context, db *sql.DB) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return fmt.Errorf("begin the transaction: %w", err)
	}
	defer func() { _ = tx.Rollback() }() // a no-op after the commit; otherwise the returned error says why
	for _, file := range s.setup {
		if err := s.execute(ctx, tx, file); err != nil {
			return err
		}
	}
	applied, err := s.history(ctx, tx)
	if err != nil {
		return err
	}
	if err := s.newer(applied); err != nil {
		return err
	}
	if err := s.bring(ctx, tx, applied); err != nil {
		return err
	}
	return commit(ctx, tx)
}

// bring runs what has not run yet, or everything if something is missing: all of it is idempotent.
func (s *script) bring(ctx context.Context, tx *sql.Tx, applied map[int]string) error {
	s.keepParts(applied)
	if err := s.earlier(ctx, tx); err != nil {
		return err
	}
	missing, err := s.missing(ctx, tx)
	if err != nil {
		return err
	}
	repair := len(missing) > 0
	for _, file := range s.migrations {
		if _, done := applied[file.version]; done && !repair {
			continue
		}
		if err := s.execute(ctx, tx, file, s.remember(file.version, checksum(file))); err != nil {
			return err
		}
	}
	if edition := s.edition(); applied[proceduresVersion] != edition || repair {
		for _, file := range s.procedures {
			if err := s.execute(ctx, tx, file); err != nil {
				return err
			}
		}
		if err := s.execute(ctx, tx, s.remember(proceduresVersion, edition)); err != nil {
			return err
		}
	}
	if !repair {
		return nil
	}
	if missing, err = s.missing(ctx, tx); err != nil {
		return err
	}
	if len(missing) > 0 { // a column, which no migration adds to an existing table
		return fmt.Errorf("%w: it cannot be repaired:\n%w", ErrSchema, errors.Join(missing...))
	}
	return nil
}

// earlier returns an error if the tables are of a layout that no migration can update.
func (s *script) earlier(ctx context.Context, x Executor) error {
	problems, err := s.problems(ctx, x)
	for _, p := range problems {
		if strings.Contains(p.Error(), " is of an earlier layout") {
			err = fmt.Errorf("%w: %w", ErrSchema, p)
		}
	}
	return err
}

// keepParts adds the parts that the database already has: an earlier configuration did not leave them out.
func (s *script) keepParts(applied map[int]string) {
	for part, left := range s.leftOut {
		if _, there := applied[left.migration.version]; there {
			s.migrations = append(s.migrations, left.migration)
			s.checks = append(s.checks, left.check)
			delete(s.leftOut, part)
		}
	}
	slices.SortFunc(s.migrations, func(a, b sqlFile) int { return cmp.Compare(a.version, b.version) })
}

// edition is the history's entry for the procedures: the edition of the library that installed them, and their checksum.
func (s *script) edition() string {
	return fmt.Sprintf("%d:%s", schema.Edition, checksum(s.procedures...))
}

// A schemaNewerError is both ErrSchemaNewer and ErrSchema, with the editions of the schema.
type schemaNewerError struct{ database, library int }

func (e *schemaNewerError) Error() string {
	return fmt.Sprintf("outbox: the schema is of edition %d, and this library of edition %d: a newer version has migrated the database, and Migrate never goes back",
		e.database, e.library)
}

func (e *schemaNewerError) Is(target error) bool {
	return target == ErrSchemaNewer || target == ErrSchema
}

// newer returns an error if a newer library has migrated the database.
func (s *script) newer(applied map[int]string) error {
	number, _, _ := strings.Cut(applied[proceduresVersion], ":")
	if edition, err := strconv.Atoi(number); err == nil && edition > schema.Edition {
		return &schemaNewerError{database: edition, library: schema.Edition}
	}
	return nil
}

// history returns the checksums of what has been applied, by version.
func (s *script) history(ctx context.Context, x Executor) (map[int]string, error) {
	applied := map[int]string{}
	err := query(ctx, x, s.listHistory, nil, func(rows *sql.Rows) error {
		var version int
		var sum string
		if err := rows.Scan(&version, &sum); err != nil {
			return err
		}
		applied[version] = sum
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read the history: %w", err)
	}
	return applied, nil
}

// remember returns the statement that adds a version to the history. Neither value comes from outside.
func (s *script) remember(version int, sum string) sqlFile {
	text := strings.NewReplacer("/*version*/ 0", strconv.Itoa(version), "/*checksum*/ ''", "'"+sum+"'").Replace(s.addHistory)
	return sqlFile{name: "history_add", text: text}
}

func (s *script) execute(ctx context.Context, x Executor, files ...sqlFile) error {
	for _, file := range files {
		for _, batch := range s.batches(file.text) {
			if _, err := x.ExecContext(ctx, batch); err != nil {
				return fmt.Errorf("run %s: %w", file.name, err)
			}
		}
	}
	return nil
}

func (s *script) batches(text string) []string {
	separator := s.dialect.Traits().BatchSeparator
	if separator == "" {
		return []string{text}
	}
	return strings.Split(strings.TrimSuffix(text, separator+"\n"), "\n"+separator+"\n")
}

func (s *script) print() string {
	traits := s.dialect.Traits()
	var b strings.Builder
	b.WriteString(traits.ScriptHeader)
	write := func(text string) {
		for _, batch := range s.batches(text) {
			b.WriteString(traits.BatchHeader + strings.TrimSpace(batch) + "\n" + traits.BatchFooter)
			if traits.BatchSeparator != "" {
				b.WriteString(traits.BatchSeparator + "\n")
			}
			b.WriteString("\n")
		}
	}
	for _, file := range s.setup {
		write(file.text)
	}
	for _, file := range s.migrations {
		write(file.text)
		write(s.remember(file.version, checksum(file)).text)
	}
	for _, file := range s.procedures {
		write(file.text)
	}
	write(s.remember(proceduresVersion, s.edition()).text)
	b.WriteString(traits.ScriptFooter)
	return b.String()
}

func checksum(files ...sqlFile) string {
	hash := sha256.New()
	for _, file := range files {
		fmt.Fprintf(hash, "%s\x00%s\x00", file.name, file.text)
	}
	return hex.EncodeToString(hash.Sum(nil)[:16])
}
