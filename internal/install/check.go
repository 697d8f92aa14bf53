package install

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/incursa/watermill-outbox/internal/base"
	"github.com/incursa/watermill-outbox/internal/engine"
)

// Check returns nil if all is well, and otherwise a base.ErrSchema that names all problems, one per line.
func (s *Script) Check(ctx context.Context, db *sql.DB) error {
	problems, err := s.problems(ctx, db)
	if err != nil {
		return err
	}
	problems = append(problems, s.unapplied(ctx, db)...)
	if len(problems) == 0 {
		return nil
	}
	return fmt.Errorf("%s: %w\n%w", s.names.Qualified(s.dialect.Traits().Table), base.ErrSchema, errors.Join(problems...))
}

// problems returns what the checks report, one per row.
func (s *Script) problems(ctx context.Context, x base.Executor) (problems []error, err error) {
	for _, check := range s.checks {
		err := engine.Query(ctx, x, check, nil, func(rows *sql.Rows) error {
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
func (s *Script) missing(ctx context.Context, x base.Executor) ([]error, error) {
	problems, err := s.problems(ctx, x)
	return slices.DeleteFunc(problems, func(p error) bool { return !strings.HasSuffix(p.Error(), " is missing") }), err
}

// unapplied returns the migrations that have not run. A history that cannot be read is itself a problem.
func (s *Script) unapplied(ctx context.Context, x base.Executor) (problems []error) {
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
