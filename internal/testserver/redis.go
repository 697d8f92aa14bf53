package testserver

import (
	"os/exec"
	"testing"
)

// Redis starts a Redis that keeps nothing on disk, and returns it with its URL.
func Redis(t testing.TB) (s *Server, url string) {
	t.Helper()
	const name = "redis"
	wanted(t, name)
	program, err := exec.LookPath("redis-server")
	if err != nil {
		without(t, name, "it is not installed: Debian's package redis-server has it")
	}
	folder := t.TempDir()
	s = begin(t, "TERM", func(port string) []string {
		return []string{program, "--port", port, "--bind", "127.0.0.1", "--dir", folder, "--save", "", "--appendonly", "no"}
	})
	return s, "redis://" + s.Addr + "/0"
}
