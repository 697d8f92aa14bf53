package install

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
	"github.com/incursa/watermill-outbox/internal/engine"
	"github.com/incursa/watermill-outbox/internal/flow"
	"github.com/incursa/watermill-outbox/schema"
)

// Run installs the outbox, or brings it up to date, and tries again after a lost conflict.
func (s *Script) Run(ctx context.Context, db *sql.DB) error {
	for try := 0; ; try++ {
		err := s.install(ctx, db)
		if err == nil {
			return nil
		}
		again := try < engine.ConflictRetries && s.dialect.Classify(err) == dialect.ErrorRetryable
		if !again || flow.Pause(ctx, engine.ConflictPause) != nil {
			return fmt.Errorf("migrate %s: %w", s.names.Qualified(s.dialect.Traits().Table), s.explain(err))
		}
	}
}

func (s *Script) install(ctx context.Context, db *sql.DB) error {
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
	return engine.Commit(ctx, tx)
}

// explain returns err with a hint if the driver is not the dialect's.
func (s *Script) explain(err error) error {
	return cmp.Or(dialect.Mismatch(s.dialect, err), err)
}

// bring runs what has not run yet, or everything if something is missing: all of it is idempotent.
func (s *Script) bring(ctx context.Context, tx *sql.Tx, applied map[int]string) error {
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
			return s.unrepairable(err, missing)
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
		return &unrepairableError{missing}
	}
	return nil
}

// unrepairable explains the error of a migration that stumbles over columns which an existing table lacks.
func (s *Script) unrepairable(err error, missing []error) error {
	columns := slices.DeleteFunc(slices.Clone(missing), func(p error) bool { return !strings.HasPrefix(p.Error(), "column ") })
	if len(columns) == 0 || s.dialect.Classify(err) != dialect.ErrorSchema {
		return err
	}
	return &unrepairableError{append(columns, err)}
}

// An unrepairableError is a base.ErrSchema that running Migrate again does not help against.
type unrepairableError struct{ problems []error }

func (e *unrepairableError) Error() string {
	return "outbox: a table of this name exists and is not that of an outbox of this version, and Migrate changes no table; " +
		"set another Table, or rename or drop that one:\n" + errors.Join(e.problems...).Error()
}

func (e *unrepairableError) Is(target error) bool { return target == base.ErrSchema }
func (e *unrepairableError) Unwrap() []error      { return e.problems }

// An earlierError is a base.ErrSchema that running Migrate does not help against, and whose text does not ask for it.
type earlierError struct{ problem error }

func (e *earlierError) Error() string        { return "outbox: " + e.problem.Error() }
func (e *earlierError) Is(target error) bool { return target == base.ErrSchema }
func (e *earlierError) Unwrap() error        { return e.problem }

// earlier returns an error if the tables are of a layout that no migration can update.
func (s *Script) earlier(ctx context.Context, x base.Executor) error {
	problems, err := s.problems(ctx, x)
	for _, p := range problems {
		if strings.Contains(p.Error(), " is of an earlier layout") {
			err = &earlierError{p}
		}
	}
	return err
}

// keepParts adds the parts that the database already has: an earlier configuration did not leave them out.
func (s *Script) keepParts(applied map[int]string) {
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
func (s *Script) edition() string {
	return fmt.Sprintf("%d:%s", schema.Edition, checksum(s.procedures...))
}

// A schemaNewerError is both base.ErrSchemaNewer and base.ErrSchema, with the editions of the schema.
type schemaNewerError struct{ database, library int }

func (e *schemaNewerError) Error() string {
	return fmt.Sprintf("outbox: the schema is of edition %d, and this library of edition %d: a newer version has migrated the database, and Migrate never goes back",
		e.database, e.library)
}

func (e *schemaNewerError) Is(target error) bool {
	return target == base.ErrSchemaNewer || target == base.ErrSchema
}

// newer returns an error if a newer library has migrated the database.
func (s *Script) newer(applied map[int]string) error {
	number, _, _ := strings.Cut(applied[proceduresVersion], ":")
	if edition, err := strconv.Atoi(number); err == nil && edition > schema.Edition {
		return &schemaNewerError{database: edition, library: schema.Edition}
	}
	return nil
}

// history returns the checksums of what has been applied, by version.
func (s *Script) history(ctx context.Context, x base.Executor) (map[int]string, error) {
	applied := map[int]string{}
	err := engine.Query(ctx, x, s.listHistory, nil, func(rows *sql.Rows) error {
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
func (s *Script) remember(version int, sum string) sqlFile {
	text := strings.NewReplacer("/*version*/ 0", strconv.Itoa(version), "/*checksum*/ ''", "'"+sum+"'").Replace(s.addHistory)
	return sqlFile{name: "history_add", text: text}
}

func (s *Script) execute(ctx context.Context, x base.Executor, files ...sqlFile) error {
	for _, file := range files {
		for _, batch := range s.batches(file.text) {
			if _, err := x.ExecContext(ctx, batch); err != nil {
				return fmt.Errorf("run %s: %w", file.name, err)
			}
		}
	}
	return nil
}

func (s *Script) batches(text string) []string {
	separator := s.dialect.Traits().BatchSeparator
	if separator == "" {
		return []string{text}
	}
	return strings.Split(strings.TrimSuffix(text, separator+"\n"), "\n"+separator+"\n")
}

// Role returns the script of the role with the least rights.
func (s *Script) Role() (string, error) {
	if err := s.names.Validate("Role", s.names.RoleName(), s.dialect.Traits().MaxName); err != nil {
		return "", err
	}
	roles, err := s.read("roles/*.sql")
	if err != nil {
		return "", err
	}
	return roles[0].text, nil
}

// Print returns the script for a person or a tool to run.
func (s *Script) Print() string {
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
