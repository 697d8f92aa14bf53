package stores_test

import (
	"context"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/internal/conformance/suite"
	"github.com/incursa/watermill-outbox/join"
	"github.com/incursa/watermill-outbox/stores"
)

// What is configured for all stores is refused at once, and not in each store, later and in its log alone.
func TestTrap_WhatNoStoreCanUseIsRefusedAtOnce(t *testing.T) {
	t.Parallel()
	requireField := func(want string, err error) {
		t.Helper()
		var bad *outbox.FieldError
		require.ErrorAs(t, err, &bad)
		require.Equal(t, want, bad.Field)
	}
	asked := false
	discovery := stores.DiscoveryFunc(func(context.Context) ([]stores.Database, error) {
		asked = true
		return nil, nil
	})
	for want, config := range map[string]outbox.Config{
		"DynamicConfig.Outbox.Log":             {Log: 17},
		"DynamicConfig.Outbox.WorkerName":      {WorkerName: "\xff"},
		"DynamicConfig.Outbox.OnStreamFailure": {OnStreamFailure: 17},
	} {
		_, err := stores.NewDynamic(t.Context(), discovery, stores.DynamicConfig{Outbox: config}, nil)
		requireField(want, err)
	}
	require.False(t, asked, "it has been asked for stores that nobody can have")

	empty, err := stores.NewStatic()
	require.NoError(t, err)
	for want, config := range map[string]outbox.PublisherConfig{
		"RouterConfig.Publisher.FlushWaiting": {Flush: outbox.Batch, FlushWaiting: -3},
		"RouterConfig.Publisher.FlushBytes":   {FlushBytes: 1},
		"RouterConfig.Publisher.Log":          {Log: 17},
	} {
		_, err := stores.NewRouter(empty, stores.RouterConfig{Publisher: config}, nil)
		requireField(want, err)
	}

	s, err := stores.NewSubscriber(empty, stores.SubscriberConfig{}, nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	router, err := message.NewRouter(message.RouterConfig{CloseTimeout: suite.Patience}, nil)
	require.NoError(t, err)
	for want, config := range map[string]join.Config{
		"Config.RecheckInterval": {RecheckInterval: -1},
		"Config.WaitTopic":       {WaitTopic: "waits "},
	} {
		_, err := stores.AddWaitHandler(router, s, config, nil)
		requireField(want, err)
	}
	require.Empty(t, router.Handlers())
}

// What a store replaces is not looked at, and the other settings reach each store.
func TestWhatStoresReplaceMayBeAnything(t *testing.T) {
	t.Parallel()
	empty, err := stores.NewStatic()
	require.NoError(t, err)
	_, err = stores.NewRouter(empty, stores.RouterConfig{Publisher: outbox.PublisherConfig{
		Dialect: outbox.SQLite{}, Schema: "s", Table: " ", Store: " ", RequireTx: true}}, nil)
	require.NoError(t, err)
	none := stores.DiscoveryFunc(func(context.Context) ([]stores.Database, error) { return nil, nil })
	d, err := stores.NewDynamic(t.Context(), none, stores.DynamicConfig{Outbox: outbox.Config{
		Dialect: outbox.SQLite{}, Schema: "s", Table: " ", Store: " ", Log: outbox.LogOnly}}, nil)
	require.NoError(t, err)
	require.NoError(t, d.Close())
}

// A database without a driver is told so by the name of the field: sql.Open would suggest that an import is missing.
func TestTrap_ADatabaseWithoutADriver(t *testing.T) {
	t.Parallel()
	book := suite.NewLogBook()
	discovery := stores.DiscoveryFunc(func(context.Context) ([]stores.Database, error) {
		return []stores.Database{{ID: "a", Dialect: outbox.Postgres{}, DSN: "secret"}}, nil
	})
	d, err := stores.NewDynamic(t.Context(), discovery, stores.DynamicConfig{}, book)
	require.NoError(t, err)
	require.NoError(t, d.Close())
	lines := book.At("ERROR", "cannot be used")
	require.Len(t, lines, 1)
	var bad *outbox.FieldError
	require.ErrorAs(t, lines[0].Err, &bad)
	require.Equal(t, "Database.Driver", bad.Field)
}
