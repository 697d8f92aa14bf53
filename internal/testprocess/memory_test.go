package testprocess

import (
	"os"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
)

const memoryVariable = "OUTBOX_TEST_MEMORY_OF_A_PROCESS"

func TestMain(m *testing.M) {
	RunMeasured(memoryVariable, func(size int) error {
		block := make([]byte, size)
		for i := 0; i < len(block); i += 4096 {
			block[i] = 1
		}
		runtime.KeepAlive(block)
		return nil
	})
	os.Exit(m.Run())
}

func TestPeakMemoryOf(t *testing.T) {
	const size = 64 << 20
	small := PeakMemoryOf(t, memoryVariable, 0)
	large := PeakMemoryOf(t, memoryVariable, size)
	require.Less(t, small, int64(size))
	require.Greater(t, large, int64(size))
}
