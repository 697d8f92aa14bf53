package base

import (
	"fmt"
	"strings"
)

// Stages are bits for what has happened to a message: see middleware.StageSet. They are stored: a bit never changes its
// meaning. Bits 5 to 7 are for later.
type Stages uint32

// The stages of the specification, and the first of the user's own.
const (
	StageStored               Stages = 1 << 0
	StageEventStored          Stages = 1 << 1
	StagePublished            Stages = 1 << 2
	StageReceptorProcessed    Stages = 1 << 3
	StagePerspectiveProcessed Stages = 1 << 4
	StageOwn                  Stages = 1 << 8
)

// ownStages is how many there are.
const ownStages = 16

var stageNames = []struct {
	stage Stages
	name  string
}{
	{StageStored, "Stored"},
	{StageEventStored, "EventStored"},
	{StagePublished, "Published"},
	{StageReceptorProcessed, "ReceptorProcessed"},
	{StagePerspectiveProcessed, "PerspectiveProcessed"},
}

// Has reports whether all of other are in s.
func (s Stages) Has(other Stages) bool { return s&other == other }

// Names lists what is in s, as the view does: "Stored", "own 0". A bit without a meaning is left out.
func (s Stages) Names() (names []string) {
	for _, n := range stageNames {
		if s.Has(n.stage) {
			names = append(names, n.name)
		}
	}
	for i := range ownStages {
		if s.Has(StageOwn << i) {
			names = append(names, fmt.Sprintf("own %d", i))
		}
	}
	return names
}

// String implements fmt.Stringer.
func (s Stages) String() string { return strings.Join(s.Names(), ", ") }

// Valid reports whether every bit has a meaning.
func (s Stages) Valid() bool {
	const known = StageOwn<<ownStages - StageOwn | StagePerspectiveProcessed<<1 - StageStored
	return s&^known == 0
}
