package rabbitmq_test

import (
	"fmt"
	"net"
	"net/url"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/incursa/watermill-outbox/internal/skipped"
	"github.com/incursa/watermill-outbox/internal/testbroker"
)

func TestMain(m *testing.M) {
	code := m.Run()
	if err := skipped.Report(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// A node that is stopped as soon as it has started is gone when Stop returns, and comes again where it was.
func TestANodeStopsAndStartsAtOnce(t *testing.T) {
	node := testbroker.Node(t)
	address := node.URL()
	u, err := url.Parse(address)
	require.NoError(t, err)
	for range 2 {
		require.NoError(t, node.Stop())
		require.NoError(t, node.Stop())
		_, err = net.Dial("tcp", u.Host)
		require.Error(t, err)
		require.NoError(t, node.Start(t.Context()))
		require.Error(t, node.Start(t.Context()), "it runs")
		require.Equal(t, address, node.URL())
		conn, err := net.Dial("tcp", u.Host)
		require.NoError(t, err)
		require.NoError(t, conn.Close())
	}
}

// A server that finds its port taken has not started, however well somebody else listens there.
func TestLong_ANodeWhosePortIsTakenDoesNotStart(t *testing.T) {
	node := testbroker.Node(t)
	u, err := url.Parse(node.URL())
	require.NoError(t, err)
	require.NoError(t, node.Stop())
	other, err := net.Listen("tcp", u.Host)
	require.NoError(t, err)
	require.ErrorContains(t, node.Start(t.Context()), "did not start")
	require.NoError(t, other.Close())
	require.NoError(t, node.Start(t.Context()))
}
