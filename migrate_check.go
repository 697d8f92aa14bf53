package outbox

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/incursa/watermill-outbox/internal/base"
)

// Check compares the database with what this version of the library needs, and changes nothing. It returns nil if all is
// well, and else an ErrSchema that names, one per line, each missing object, each migration that has not run, and each
// unsuitable setting, such as a compatibility level under 130 or SQLite without WAL. If a newer version of the library has
// migrated the database, the error is an ErrSchemaNewer, too. A *FieldError names a bad field, and an error of the database
// is returned as it is. Call Check when a service starts.
func Check(ctx context.Context, db *sql.DB, config MigrateConfig) error {
	if db == nil {
		return base.ErrNilDB
	}
	s, err := newScript(config)
	if err != nil {
		return err
	}
	problems, err := s.problems(ctx, db)
	if err != nil {
		return err
	}
	problems = append(problems, s.unapplied(ctx, db)...)
	if len(problems) == 0 {
		return nil
	}
	return fmt.Errorf("%s: %w\n%w", s.names.qualified(s.dialect.Traits().Table), ErrSchema, errors.Join(problems...))
}

// problems returns what the checks report, one per row.
func (s *script) problems(ctx context.Context, x Executor) (problems []error, err error) {
	for _, check := range s.checks {
		err := query(ctx, x, check, nil, func(rows *sql.Rows) error {
			var problem string
			err := rows.Scan(&problem)
			problems = append(problems, errors.New(problem))
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("check the schema: %w", err)
		}
	}
	return problems, nil
}

// missing returns the problems that are missing objects. Settings are not for Migrate to fix.
func (s *script) missing(ctx context.Context, x Executor) ([]error, error) {
	problems, err := s.problems(ctx, x)
	return slices.DeleteFunc(problems, func(p error) bool { return !strings.HasSuffix(p.Error(), " is missing") }), err
}

// unapplied returns the migrations that have not run. A history that cannot be read is itself a problem.
func (s *script) unapplied(ctx context.Context, x Executor) (problems []error) {
	applied, err := s.history(ctx, x)
	if err != nil {
		return []error{err}
	}
	if err := s.newer(applied); err != nil {
		return []error{err}
	}
	for _, file := range s.migrations {
		if _, done := applied[file.version]; !done {
			problems = append(problems, fmt.Errorf("migration %s has not run", file.name))
		}
	}
	if applied[proceduresVersion] != s.edition() {
		problems = append(problems, errors.New("the procedures are not those of this version"))
	}
	return problems
}
