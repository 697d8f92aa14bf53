//go:build stress

package subscriber_test

import (
	"testing"

	"github.com/ThreeDotsLabs/watermill/pubsub/tests"
)

// TestPubSubStress is Watermill's suite, each test STRESS_TEST_COUNT times at once.
func TestPubSubStress(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		tests.TestPubSubStressTest(t, queueFeatures, f.pubSub, nil)
	})
}
