package fanout

import (
	"database/sql"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	outbox "github.com/incursa/watermill-outbox"
)

// Close would give up at once: what it adds would overflow.
func TestTrap_ADrainTimeoutThatIsTooLongIsRefused(t *testing.T) {
	config := Config{
		Dialect: outbox.SQLite{}, DrainTimeout: 24 * time.Hour,
		Policies: []Policy{{Name: "p", Destinations: []Destination{ToTopic("orders")}}},
	}
	_, err := NewDispatcher(new(sql.DB), config, nil)
	require.NoError(t, err)
	for _, tooLong := range []time.Duration{24*time.Hour + 1, math.MaxInt64} {
		config.DrainTimeout = tooLong
		_, err = NewDispatcher(new(sql.DB), config, nil)
		var bad *outbox.FieldError
		require.ErrorAs(t, err, &bad)
		require.Equal(t, "Config.DrainTimeout", bad.Field)
	}
}
