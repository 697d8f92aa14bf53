package main

import (
	"fmt"
	"strings"
)

// A requirement is one line of requirements.tsv.
type requirement struct {
	ID      string // as OBX-021
	InScope bool   // false: of later work
	Text    string
	AsBuilt string // where the project deviates from the specification or makes it precise
}

func parseRequirements(tsv string) ([]requirement, error) {
	var requirements []requirement
	seen := map[string]bool{}
	for i, line := range strings.Split(strings.TrimSuffix(tsv, "\n"), "\n") {
		fields := strings.Split(line, "\t")
		if len(fields) != 4 {
			return nil, fmt.Errorf("line %d has %d fields, want id, in_scope, text, as_built", i+1, len(fields))
		}
		if i == 0 {
			continue
		}
		r := requirement{ID: fields[0], InScope: fields[1] == "yes", Text: fields[2], AsBuilt: fields[3]}
		switch {
		case fields[1] != "yes" && fields[1] != "later":
			return nil, fmt.Errorf("line %d: in_scope is %q, want yes or later", i+1, fields[1])
		case seen[r.ID]:
			return nil, fmt.Errorf("line %d: %s is there twice", i+1, r.ID)
		case r.Text == "":
			return nil, fmt.Errorf("line %d: %s has no text", i+1, r.ID)
		}
		seen[r.ID] = true
		requirements = append(requirements, r)
	}
	return requirements, nil
}
