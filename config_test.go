package outbox_test

import (
	"database/sql"
	"math"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	outbox "github.com/incursa/watermill-outbox"
)

// What would overflow or exhaust memory later is refused by name.
func TestASubscriberRefusesWhatIsTooLarge(t *testing.T) {
	for name, config := range map[string]outbox.SubscriberConfig{
		"SubscriberConfig.MaxInFlight":      {MaxInFlight: math.MaxInt},
		"SubscriberConfig.ClaimTimeout":     {ClaimTimeout: math.MaxInt64}, // package stores adds to it
		"SubscriberConfig.DrainTimeout":     {DrainTimeout: math.MaxInt64},
		"SubscriberConfig.Janitor.Interval": {Janitor: outbox.JanitorConfig{Interval: math.MaxInt64}},
	} {
		config.Dialect = outbox.SQLite{}
		_, err := outbox.NewSubscriber(new(sql.DB), config, nil)
		var bad *outbox.FieldError
		require.ErrorAs(t, err, &bad)
		require.Equal(t, name, bad.Field)
	}
}

// Of several bad fields it is always the first that is named.
func TestTrap_APublisherNamesTheSameBadFieldEveryTime(t *testing.T) {
	for range 50 {
		_, err := outbox.NewPublisher(new(sql.DB), outbox.PublisherConfig{
			Dialect: outbox.SQLite{}, FlushMessages: 1, FlushBytes: 1, FlushWaiting: 1, CloseTimeout: 1}, nil)
		var bad *outbox.FieldError
		require.ErrorAs(t, err, &bad)
		require.Equal(t, "PublisherConfig.FlushMessages", bad.Field)
	}
}

func TestPublishRefusesANilMessage(t *testing.T) {
	p, err := outbox.NewPublisher(new(sql.DB), outbox.PublisherConfig{Dialect: outbox.SQLite{}}, nil)
	require.NoError(t, err)
	err = p.Publish("orders", message.NewMessage("1", nil), nil)
	require.EqualError(t, err, "outbox: messages: message 2 of 2 is nil")
}

func TestExponentialBackoffDoublesUpToItsLimit(t *testing.T) {
	for _, test := range []struct {
		base, limit time.Duration
		retry       int
		want        time.Duration
	}{
		{time.Second, time.Minute, 0, time.Second},
		{time.Second, time.Minute, 5, 32 * time.Second},
		{time.Second, time.Minute, 6, time.Minute},
		{time.Hour, time.Minute, 0, time.Minute},
		{time.Second, math.MaxInt64, 33, 1 << 33 * time.Second},
		{time.Second, math.MaxInt64, 34, math.MaxInt64},
		{time.Second, math.MaxInt64, 100, math.MaxInt64},
		{-1, 0, 0, 0},
		{-1, 0, 5, 0},
		{-time.Second, time.Minute, 3, 0},
		{time.Second, -time.Minute, 3, 0},
	} {
		require.Equal(t, test.want, outbox.ExponentialBackoff(test.base, test.limit)(test.retry), test)
	}
}

func TestTrap_InTxRefusesToRunNothing(t *testing.T) {
	err := outbox.InTx(t.Context(), new(sql.DB), nil)
	require.EqualError(t, err, "outbox: f: is nil; pass what is to run in the transaction")
}
