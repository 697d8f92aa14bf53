package field_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/incursa/watermill-outbox/internal/field"
	"github.com/incursa/watermill-outbox/internal/limits"
)

func TestDefaultSetsOnlyAZeroField(t *testing.T) {
	unset, set, off := time.Duration(0), time.Minute, time.Duration(-1)
	for _, f := range []*time.Duration{&unset, &set, &off} {
		field.Default(f, time.Second)
	}
	require.Equal(t, []time.Duration{time.Second, time.Minute, -1}, []time.Duration{unset, set, off})
}

func TestBadNamesTheField(t *testing.T) {
	err := field.Bad("Config.Limit", "%d is more than %d", 5, 3)
	require.Equal(t, &field.Error{Field: "Config.Limit", Reason: "5 is more than 3"}, err)
	require.EqualError(t, err, "outbox: Config.Limit: 5 is more than 3")
}

func TestProblemIsNilWithoutOne(t *testing.T) {
	require.NoError(t, field.Problem("Topic", ""))
	require.Equal(t, &field.Error{Field: "Topic", Reason: "is 100% wrong"}, field.Problem("Topic", "is 100% wrong"))
}

func TestKeyAndTextApplyTheLimits(t *testing.T) {
	long := strings.Repeat("x", limits.MaxText+1)
	for name, check := range map[string]func(name, text string) error{"key": field.Key, "text": field.Text} {
		require.NoError(t, check("Topic", "orders"), name)
		require.NoError(t, check("Topic", ""), name)
		require.EqualError(t, check("Topic", long), "outbox: Topic: "+limits.Text(long), name)
	}
	require.EqualError(t, field.Key("Topic", "orders "), "outbox: Topic: "+limits.Key("orders "))
	require.NoError(t, field.Text("UUID", "orders "), "only keys are compared")
}

func TestOfReplacesTheConfig(t *testing.T) {
	want := &field.Error{Field: "Config.Table", Reason: "is too long"}
	require.Equal(t, want, field.Of("Config", field.Bad("MigrateConfig.Table", "is too long")))
	require.Equal(t, want, field.Of("Config", field.Bad("Table", "is too long")))
	other := errors.New("no database")
	require.Equal(t, other, field.Of("Config", other))
	require.NoError(t, field.Of("Config", nil))
}

func TestInAddsTheConfig(t *testing.T) {
	bad := field.Bad("Store", "is too long")
	want := &field.Error{Field: "PublisherConfig.Store", Reason: "is too long"}
	require.Equal(t, want, field.In("PublisherConfig", bad))
	require.Equal(t, want, field.In("PublisherConfig", fmt.Errorf("new: %w", bad)))

	other := errors.New("no database")
	require.Equal(t, other, field.In("PublisherConfig", other))
	require.NoError(t, field.In("PublisherConfig", nil))
}
