package testprocess

import (
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
)

// Seed decides when which process is killed. OUTBOX_TEST_KILL_SEED repeats the one of an earlier run.
func Seed(t *testing.T) uint64 {
	t.Helper()
	text := os.Getenv("OUTBOX_TEST_KILL_SEED")
	if text == "" {
		return rand.Uint64()
	}
	seed, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatalf("OUTBOX_TEST_KILL_SEED: %v", err)
	}
	return seed
}
