package outbox

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
)

// Check compares what is in the database with what this version of the library needs, and changes nothing. A nil error
// means all is well. Otherwise errors.Is(err, ErrSchema) is true and err names, one a line, each missing object, each
// migration that has not run, and each setting that does not fit, such as a compatibility level under 130 or SQLite
// without WAL. Call it when a service starts.
func Check(ctx context.Context, db *sql.DB, config MigrateConfig) error {
	if db == nil {
		return ErrNilDB
	}
	s, err := newScript(config)
	if err != nil {
		return err
	}
	var problems []error
	for _, check := range s.checks {
		err = query(ctx, db, check, nil, func(rows *sql.Rows) error {
			var problem string
			if err := rows.Scan(&problem); err != nil {
				return err
			}
			problems = append(problems, errors.New(problem))
			return nil
		})
		if err != nil {
			return fmt.Errorf("check the schema: %w", err)
		}
	}
	problems = append(problems, s.unapplied(ctx, db)...)
	if len(problems) == 0 {
		return nil
	}
	return fmt.Errorf("%s: %w\n%w", s.names.qualified(s.dialect.Traits().Table), ErrSchema, errors.Join(problems...))
}

// unapplied names the migrations that have not run. A history that cannot be read is itself a problem.
func (s *script) unapplied(ctx context.Context, x Executor) (problems []error) {
	applied, err := s.history(ctx, x)
	if err != nil {
		return []error{err}
	}
	for _, file := range s.migrations {
		if _, done := applied[file.version]; !done {
			problems = append(problems, fmt.Errorf("migration %s has not run", file.name))
		}
	}
	if applied[proceduresVersion] != checksum(s.procedures...) {
		problems = append(problems, errors.New("the procedures are not those of this version"))
	}
	return problems
}
