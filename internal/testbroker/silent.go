package testbroker

import (
	"net"
	"sync"
	"testing"
)

// Silent returns the URL of a broker that accepts connections and says nothing, and a channel of the first hundred. It ends with the
// test.
func Silent(t testing.TB) (url string, accepted <-chan net.Conn) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	connections := make(chan net.Conn, 100)
	var accepting sync.WaitGroup
	accepting.Go(func() {
		for {
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			t.Cleanup(func() { _ = connection.Close() })
			select {
			case connections <- connection:
			default:
			}
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		accepting.Wait()
	})
	return "amqp://" + listener.Addr().String(), connections
}
