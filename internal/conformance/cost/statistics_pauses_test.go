package cost_test

import (
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/incursa/watermill-outbox/internal/conformance/suite"
	"github.com/incursa/watermill-outbox/internal/testdb"
)

// Bursts and pauses follow each other while the database counts its rows when it likes, in the bursts and in the pauses: no
// burst takes much longer than the first ones. On SQLite, which counts when it is told to, it is told in each pause.
func TestStatisticsOfBurstsAndPauses(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		const n, atLeast = 2000, 3
		length, pause := time.Duration(0), time.Millisecond
		if text := os.Getenv("OUTBOX_TEST_STATISTICS_MINUTES"); text != "" {
			minutes, err := strconv.Atoi(text)
			f.NoError(err, "OUTBOX_TEST_STATISTICS_MINUTES")
			length, pause = time.Duration(minutes)*time.Minute, 5*time.Second
		}
		var took []time.Duration
		for end := time.Now().Add(length); len(took) < atLeast || time.Now().Before(end); {
			took = append(took, f.burst(n, len(took)%2 == 0))
			if f.DB.Name == testdb.SQLite {
				f.analyze()
			}
			select {
			case <-time.After(pause):
			case <-f.Context().Done():
			}
		}
		f.Zero(f.Count(), "messages that are left")
		slowest := slices.Max(took)
		f.figure(map[string]any{"figure": "bursts and pauses", "bursts": len(took), "minutes": length.Minutes(),
			"median_per_second": perSecond(n, suite.Median(slices.Clone(took))), "slowest_per_second": perSecond(n, slowest)})
		if length > 0 {
			f.Less(slowest, 10*suite.Median(slices.Clone(took))+10*time.Second, "a burst fell behind")
		}
	})
}
