package testprocess

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/incursa/watermill-outbox/internal/skipped"
)

// peakEvent begins the last line of a process whose memory is measured.
const peakEvent = "peak memory "

// PeakMemoryOf starts the program with a job, as Start does, waits until it has ended well, and returns the most memory
// that it had resident, in bytes. The process uses RunMeasured. Only Linux tells the peak: elsewhere the test is skipped.
func PeakMemoryOf(t *testing.T, variable string, job any) int64 {
	t.Helper()
	if _, err := peakMemory(); err != nil {
		skipped.Add(t.Name(), "Linux", err.Error())
		t.Skip(err)
	}
	lines := make(chan Line)
	p := Start(t, variable, job, lines)
	peak := int64(0)
	for line := range lines {
		if line.Text == "" {
			break
		}
		if text, found := strings.CutPrefix(line.Text, peakEvent); found {
			var err error
			peak, err = strconv.ParseInt(text, 10, 64)
			require.NoError(t, err, line.Text)
		}
	}
	require.True(t, p.State().Success(), "the measured process ended with %v", p.State())
	require.Positive(t, peak, "the measured process did not tell its peak")
	return peak
}

// RunMeasured is Run for a process that PeakMemoryOf starts.
func RunMeasured[Job any](variable string, do func(Job) error) {
	Run(variable, func(job Job) error {
		if err := do(job); err != nil {
			return err
		}
		peak, err := peakMemory()
		if err != nil {
			return err
		}
		fmt.Println(peakEvent + strconv.FormatInt(peak, 10))
		return nil
	})
}

// peakMemory is the most memory that this process has had resident. What wait tells of a child will not do: it counts
// what its parent had when it started it.
func peakMemory() (int64, error) {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0, fmt.Errorf("ask for the peak of the resident memory: %w", err)
	}
	_, rest, found := bytes.Cut(status, []byte("VmHWM:"))
	if !found {
		return 0, errors.New("the kernel does not tell the peak of the resident memory")
	}
	kilobytes, _, _ := bytes.Cut(rest, []byte("kB"))
	n, err := strconv.ParseInt(string(bytes.TrimSpace(kilobytes)), 10, 64)
	return n << 10, err
}
