package cli

import (
	"context"
	"fmt"
	"strings"

	outbox "github.com/incursa/watermill-outbox"
)

// A notThereError says which of the messages that were named an act is not for.
type notThereError struct {
	there, named int
	strangers    []string
}

func (e *notThereError) Error() string {
	return fmt.Sprintf("%d of %d: %s", e.there, e.named, strings.Join(e.strangers, "; "))
}

// strangers are the sentences about messages that an act is not for, by their ids.
func (t *act) strangers(ctx context.Context, o *outbox.Outbox, ids []outbox.MessageID) (sentences []string, err error) {
	records, err := o.Get(ctx, ids...)
	if err != nil {
		return nil, err
	}
	found := map[outbox.MessageID]outbox.Status{}
	for _, r := range records {
		found[r.ID] = r.Status
	}
	wanted := outbox.Failed
	if t.ready {
		wanted = outbox.Ready
	}
	for _, id := range ids {
		why := "there is no such message"
		if status, there := found[id]; there {
			if status == wanted {
				continue
			}
			if why = "it is " + status.String(); t.on == nil {
				why += "; see 'outbox message show'"
			}
		}
		sentences = append(sentences, fmt.Sprintf("%v is not a %s (%s)", id, t.one(), why))
	}
	return sentences, nil
}
