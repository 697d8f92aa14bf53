package testserver

import (
	"net"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAServerIsStoppedAndComesBackWhereItWas(t *testing.T) {
	for name, begin := range map[string]func(testing.TB) (*Server, string){"redis": Redis, "postgres": func(t testing.TB) (*Server, string) { return Postgres(t) }} {
		t.Run(name, func(t *testing.T) {
			s, address := begin(t)
			require.Contains(t, address, s.Addr)
			require.NoError(t, s.Stop())
			require.NoError(t, s.Stop(), "again")
			_, err := net.Dial("tcp", s.Addr)
			require.Error(t, err)
			require.NoError(t, s.Start())
			require.Error(t, s.Start(), "twice")
			connection, err := net.Dial("tcp", s.Addr)
			require.NoError(t, err)
			require.NoError(t, connection.Close())
		})
	}
}
