package cli

import (
	"errors"
	"math"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// parseAge reads a duration that may be in days.
func parseAge(text string) (time.Duration, error) {
	if days, found := strings.CutSuffix(text, "d"); found {
		d, err := time.ParseDuration(days + "h")
		if d.Abs() > math.MaxInt64/24 {
			return 0, errors.New("it is too long")
		}
		return 24 * d, err
	}
	return time.ParseDuration(text)
}

// An age is a flag for a duration that may be in days, and is not negative. It reads as it was typed.
type age struct {
	duration time.Duration
	text     string
}

func (a *age) String() string { return a.text }
func (a *age) Type() string   { return "duration" }

func (a *age) Set(text string) error {
	d, err := parseAge(text)
	if err != nil || d < 0 {
		return usage("%q is no duration; write 90m or 30d", text)
	}
	*a = age{d, text}
	return nil
}

// required adds the flag --older-than, which must be given.
func (a *age) required(c *cobra.Command) {
	c.Flags().Var(a, "older-than", "how long ago they ended: 90m, or 30d")
	if err := c.MarkFlagRequired("older-than"); err != nil {
		panic(err) // the flag is defined in the line before
	}
}
