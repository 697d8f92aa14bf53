package testserver

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/incursa/watermill-outbox/internal/skipped"
)

// fast gives up what only a crash of the machine would need. What was committed survives Stop, so synchronous_commit stays on.
var fast = []string{"fsync=off", "full_page_writes=off", "max_connections=300", "listen_addresses=127.0.0.1"}

// Durable are the settings for a measurement: those of a new server.
var Durable = []string{"fsync=on", "full_page_writes=on"}

// Postgres starts a PostgreSQL, and returns it with its DSN. The settings are added to those that make it fast.
func Postgres(t testing.TB, settings ...string) (s *Server, dsn string) {
	t.Helper()
	const name = "postgres"
	wanted(t, name)
	folders, err := filepath.Glob("/usr/lib/postgresql/*/bin")
	if err != nil {
		t.Fatal(err)
	}
	if initdb, err := exec.LookPath("initdb"); err == nil && len(folders) == 0 {
		folders = []string{filepath.Dir(initdb)}
	}
	if len(folders) == 0 {
		const why = "there are no binaries of a server on this machine"
		if os.Getenv("OUTBOX_TEST_POSTGRES_DSN") == "" {
			without(t, name, why)
		}
		skipped.Add(t.Name(), "a PostgreSQL of its own", why) // the others have theirs
		t.Skip(why)
	}
	slices.Sort(folders)
	programs := folders[len(folders)-1]
	data, err := os.MkdirTemp("", "outbox-postgres-") // not TempDir: its parents are closed to the server's user
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(data) })
	as := serverUser(t, data)
	initdb := append(as, filepath.Join(programs, "initdb"), "-D", filepath.Join(data, "data"), "-U", "outbox", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync")
	cmd := exec.Command(initdb[0], initdb[1:]...)
	cmd.Dir = os.TempDir()
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("initdb: %v\n%s", err, out)
	}
	s = begin(t, "QUIT", func(port string) []string { // QUIT: as after a crash
		command := append(slices.Clone(as), filepath.Join(programs, "postgres"), "-D", filepath.Join(data, "data"), "-p", port, "-k", data)
		for _, setting := range append(slices.Clone(fast), settings...) {
			command = append(command, "-c", setting)
		}
		return command
	})
	_, port, err := net.SplitHostPort(s.Addr)
	if err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(startTimeout); ; <-time.After(50 * time.Millisecond) {
		out, err := exec.Command(filepath.Join(programs, "pg_isready"), "-h", "127.0.0.1", "-p", port).CombinedOutput()
		if err == nil {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("PostgreSQL takes no connections: %v\n%s", err, out)
		}
	}
	return s, fmt.Sprintf("postgres://outbox@%s/postgres?sslmode=disable", s.Addr)
}

// serverUser is what a command begins with so that it does not run as root, which PostgreSQL refuses.
func serverUser(t testing.TB, folder string) []string {
	t.Helper()
	if os.Geteuid() != 0 {
		return []string{"env"}
	}
	name := "postgres"
	if _, err := user.Lookup(name); err != nil {
		name = "nobody"
	}
	if out, err := exec.Command("chown", name, folder).CombinedOutput(); err != nil {
		t.Fatalf("chown: %v\n%s", err, out)
	}
	return []string{"setpriv", "--reuid=" + name, "--regid=" + groupOf(t, name), "--clear-groups"}
}

func groupOf(t testing.TB, name string) string {
	t.Helper()
	u, err := user.Lookup(name)
	if err != nil {
		t.Fatal(err)
	}
	return u.Gid
}
