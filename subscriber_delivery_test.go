package outbox

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A lease that is lost at any moment around the opening of a delivery ends the handler's context, or keeps the message from
// being handed out.
func TestTrap_ALeaseLostWhileADeliveryOpens(t *testing.T) {
	for name, end := range map[string]func(*Delivery) bool{"lost": (*Delivery).lose, "run out": (*Delivery).lapse} {
		t.Run(name, func(t *testing.T) {
			early := &Delivery{claimed: &Claimed{}}
			assert.False(t, end(early), "no handler has it")
			assert.False(t, early.open(t.Context()))

			late := &Delivery{claimed: &Claimed{}}
			require.True(t, late.open(t.Context()))
			assert.True(t, end(late), "a handler has it")
			assert.ErrorIs(t, context.Cause(late.msg.Context()), ErrLeaseLost)
		})
	}
}
