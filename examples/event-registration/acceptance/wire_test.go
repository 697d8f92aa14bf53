package acceptance_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A wire is a kept connection to a server, and costs less than a http.Client: what is measured is the service.
type wire struct {
	conn net.Conn
	in   *bufio.Reader
}

func newWire(t *testing.T, url string) *wire {
	t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return &wire{conn, bufio.NewReader(conn)}
}

func (w *wire) post(path, bearer, key string) error {
	if _, err := fmt.Fprintf(w.conn, "POST %s HTTP/1.1\r\nHost: test\r\nAuthorization: Bearer %s\r\nIdempotency-Key: %s\r\nContent-Length: 0\r\n\r\n", path, bearer, key); err != nil {
		return err
	}
	response, err := http.ReadResponse(w.in, nil)
	if err != nil {
		return err
	}
	body, err := io.ReadAll(response.Body)
	if closeErr := response.Body.Close(); err == nil {
		err = closeErr
	}
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%d %s", response.StatusCode, body)
	}
	return err
}
