package install

import (
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/incursa/watermill-outbox/internal/dialect"
	"github.com/incursa/watermill-outbox/internal/engine"
)

// A Config is an outbox.MigrateConfig, which says what its fields mean.
type Config struct {
	Dialect       dialect.Dialect
	Schema, Table string
	Role          string
	WithoutJoins  bool
	WithInbox     bool
	Logger        watermill.LoggerAdapter
}

// A Script is everything that an outbox consists of, in the order of its installation.
type Script struct {
	dialect    dialect.Dialect
	names      engine.Names
	logger     watermill.LoggerAdapter // may be nil
	setup      []sqlFile               // run every time: the lock, the schema, the history
	migrations []sqlFile               // run once
	procedures []sqlFile               // run when their text has changed

	checks                  []string // queries that name what is missing
	leftOut                 map[string]leftOut
	durability              string // names settings that are less durable than the defaults
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

// New returns the script of the outbox that a config names. It returns a *field.Error that names a bad field.
func New(config Config) (*Script, error) {
	n, err := engine.NewNames(config.Dialect, config.Schema, config.Table)
	if err != nil {
		return nil, err
	}
	n.Role = config.Role
	s := &Script{dialect: config.Dialect, names: n, logger: config.Logger}
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
		case file.name == "durability":
			s.durability = file.text
		case file.name == "history_add":
			s.addHistory = file.text
		case file.name == "history_list":
			s.listHistory = file.text
		}
	}
	return s, nil
}

// readProcedures reads what is called by name; other operations are sent as they are.
func (s *Script) readProcedures() error {
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
func (s *Script) read(pattern string) ([]sqlFile, error) {
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
		files = append(files, sqlFile{name: strings.TrimSuffix(path.Base(p), ".sql"), text: s.names.Apply(string(text))})
	}
	return files, nil
}
