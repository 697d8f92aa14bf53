package outbox

import (
	"cmp"
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/incursa/watermill-outbox/internal/base"
	"github.com/incursa/watermill-outbox/internal/dialect"
	"github.com/incursa/watermill-outbox/internal/flow"
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
		if err := flow.Pause(ctx, conflictPauseMax); err != nil {
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
