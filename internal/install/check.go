package install

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/incursa/watermill-outbox/internal/base"
	"github.com/incursa/watermill-outbox/internal/dialect"
	"github.com/incursa/watermill-outbox/internal/engine"
)

// Check returns nil if all is well, and otherwise an *unfitError, which is a base.ErrSchema. Settings that are less durable than
// the defaults are only logged.
func (s *Script) Check(ctx context.Context, db *sql.DB) error {
	if err := s.warn(ctx, db); err != nil {
		return err
	}
	found, err := s.problems(ctx, db)
	if err != nil {
		return err
	}
	unapplied, err := s.unapplied(ctx, db)
	if err != nil {
		return err
	}
	e := &unfitError{table: s.names.Qualified(s.dialect.Traits().Table)}
	for _, p := range found {
		if isSetting(p) {
			e.settings = append(e.settings, p)
		} else {
			e.schema = append(e.schema, p)
		}
	}
	if e.schema = append(e.schema, unapplied...); len(e.schema)+len(e.settings) == 0 {
		return nil
	}
	e.nothing = s.lacksItsTable(found) && len(unapplied) == 1 && s.dialect.Classify(unapplied[0]) == dialect.ErrorSchema
	return e
}

func (s *Script) warn(ctx context.Context, x base.Executor) error {
	if s.logger == nil {
		return nil
	}
	warnings, err := sentences(ctx, x, s.durability)
	if err != nil {
		return fmt.Errorf("check the durability: %w", s.explain(err))
	}
	for _, w := range warnings {
		s.logger.Info("The last commits may be lost when the machine stops", watermill.LogFields{"because": w.Error()})
	}
	return nil
}

// problems returns what the checks report, one per row.
func (s *Script) problems(ctx context.Context, x base.Executor) (problems []error, err error) {
	for _, check := range s.checks {
		some, err := sentences(ctx, x, check)
		if err != nil {
			return nil, fmt.Errorf("check the schema: %w", s.explain(err))
		}
		problems = append(problems, some...)
	}
	return problems, nil
}

// sentences returns the rows of a query, one sentence each.
func sentences(ctx context.Context, x base.Executor, query string) (list []error, err error) {
	err = engine.Query(ctx, x, query, nil, func(rows *sql.Rows) error {
		var sentence string
		err := rows.Scan(&sentence)
		list = append(list, errors.New(sentence))
		return err
	})
	return list, err
}

// missing returns the problems that are missing objects. Settings are not for Migrate to fix.
func (s *Script) missing(ctx context.Context, x base.Executor) ([]error, error) {
	problems, err := s.problems(ctx, x)
	return slices.DeleteFunc(problems, func(p error) bool { return !strings.HasSuffix(p.Error(), " is missing") }), err
}

// lacksItsTable reports whether the table is missing that all others are named after.
func (s *Script) lacksItsTable(problems []error) bool {
	return slices.ContainsFunc(problems, func(p error) bool {
		name, missing := strings.CutSuffix(p.Error(), " is missing")
		name, table := strings.CutPrefix(name, "table ")
		return missing && table && strings.HasSuffix(s.names.Qualified(s.dialect.Traits().Table), name)
	})
}

// unapplied returns the migrations that have not run. A history that is missing is itself a problem.
func (s *Script) unapplied(ctx context.Context, x base.Executor) (problems []error, err error) {
	applied, err := s.history(ctx, x)
	if err != nil && s.dialect.Classify(err) != dialect.ErrorSchema {
		return nil, err
	}
	if err = cmp.Or(err, s.newer(applied)); err != nil {
		return []error{err}, nil
	}
	for _, file := range s.migrations {
		if _, done := applied[file.version]; !done {
			problems = append(problems, fmt.Errorf("migration %s has not run", file.name))
		}
	}
	if applied[proceduresVersion] != s.edition() {
		problems = append(problems, errors.New("the procedures are not those of this version"))
	}
	return problems, nil
}
