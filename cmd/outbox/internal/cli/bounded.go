package cli

import (
	"cmp"
	"math"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	outbox "github.com/incursa/watermill-outbox"
)

// A bounded is a flag for a number from 1 to most.
type bounded struct {
	n    *int
	most int
}

func (b *bounded) String() string {
	if b.n == nil { // pflag compares defaults with a zero value
		return ""
	}
	return strconv.Itoa(*b.n)
}

func (b *bounded) Type() string { return "int" }

func (b *bounded) Set(text string) error {
	n, err := strconv.Atoi(text)
	switch {
	case err == nil && n >= 1 && n <= b.most:
		*b.n = n
		return nil
	case b.most == math.MaxInt:
		return usage("write a number from 1")
	default:
		return usage("write a number from 1 to %s", number(b.most))
	}
}

// maxListed is how much the library lists at a time.
const maxListed = 1000

// limited adds the flag --limit.
func limited(c *cobra.Command, n *int, byDefault int, what string) {
	*n = byDefault
	c.Flags().VarP(&bounded{n, maxListed}, "limit", "n", what)
}

// typed are fields of the library as they are on the command line.
var typed = map[string]string{
	"Filter.Topic": "--topic", "Filter.Error": "--error", "Filter.UUID": "--uuid", "Filter.CorrelationID": "--correlation-id",
	"Filter.StreamKey": "--stream", "Filter.Since": "--since", "Filter.Until": "--until",
	"Topic": "the topic", "StreamKey": "the stream", "UUID": "--uuid", "CorrelationID": "--correlation-id", "Headers": "--header",
	"Group": "the consumer group", "group": "the consumer group", "By": "--by", "Reason": "--reason", "Schema": "--schema", "Table": "--table",
	"Role": "--role", "Delay": "the delay", "DueAt": "--to", "ExpiresAt": "--ttl", "OlderThan": "--older-than", "Before": "--before",
}

// inWords says what is wrong with a field in the words of the command line.
func inWords(bad *outbox.FieldError) string {
	name := bad.Field
	if at := strings.Index(name, "Filter."); at >= 0 {
		name = name[at:]
	} else {
		name = name[strings.LastIndex(name, ".")+1:]
	}
	if header, found := strings.CutPrefix(name, "Headers["); found {
		return "--header " + strings.TrimSuffix(header, "]") + " " + bad.Reason
	}
	return cmp.Or(typed[name], bad.Field) + " " + strings.ReplaceAll(bad.Reason, "Filter.Since", "--since")
}
