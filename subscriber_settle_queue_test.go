package outbox

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func answersOf(seqs ...WorkItemID) []*answer {
	answers := make([]*answer, len(seqs))
	for i, seq := range seqs {
		answers[i] = &answer{settlement: Settlement{Receipt: Receipt{Seq: seq}}}
	}
	return answers
}

func seqsOf(answers []*answer) []WorkItemID {
	seqs := make([]WorkItemID, len(answers))
	for i, a := range answers {
		seqs[i] = a.settlement.Receipt.Seq
	}
	return seqs
}

func TestAnswersThatNoClaimAwaitsAreWrittenAtOnce(t *testing.T) {
	t.Parallel()
	q := newAnswerQueue()
	q.add(answersOf(1, 2)...)
	require.Equal(t, []WorkItemID{1, 2}, seqsOf(q.next()))
	q.close()
	require.Empty(t, q.next())
}

func TestAClaimTakesAnswersAlongBeforeTheWriter(t *testing.T) {
	t.Parallel()
	q := newAnswerQueue()
	q.expect(time.Hour)
	q.add(answersOf(1)...)
	written := make(chan []*answer)
	go func() { written <- q.next() }()
	require.Equal(t, []WorkItemID{1}, seqsOf(q.takeAlong()))

	q.add(answersOf(2)...)
	select {
	case batch := <-written:
		t.Fatalf("written although a claim is on its way: %v", seqsOf(batch))
	default:
	}
	q.expect(noClaim) // no claim will come
	require.Equal(t, []WorkItemID{2}, seqsOf(<-written))
}

func TestWhatCouldNotBeSettledIsWrittenFirstAndAtOnce(t *testing.T) {
	t.Parallel()
	q := newAnswerQueue()
	q.expect(time.Hour)
	q.add(answersOf(3)...)
	q.putBack(answersOf(1, 2))
	require.Equal(t, []WorkItemID{1, 2, 3}, seqsOf(q.next()))
}

func TestAWholeBatchWaitsForNoClaim(t *testing.T) {
	t.Parallel()
	q := newAnswerQueue()
	q.expect(time.Hour)
	q.add(answersOf(make([]WorkItemID, maxBatch+1)...)...)
	require.Len(t, q.next(), maxBatch)
	q.close()
	require.Len(t, q.next(), 1, "what is left at the end is written")
	require.Empty(t, q.next())
}

func TestManyAnswersAreWrittenBesideAClaim(t *testing.T) {
	t.Parallel()
	q := newAnswerQueue()
	q.expect(time.Hour)
	q.add(answersOf(make([]WorkItemID, mostAlong)...)...)
	require.Len(t, q.takeAlong(), mostAlong)
	q.add(answersOf(make([]WorkItemID, mostAlong+1)...)...)
	require.Empty(t, q.takeAlong())
	require.Len(t, q.next(), mostAlong+1)
}

func TestAnswersOfStreamsAreSettledOneBatchAfterTheOther(t *testing.T) {
	t.Parallel()
	q := newOrderedQueue()
	q.add(answersOf(1)...)
	first := q.takeAlong()
	require.Equal(t, []WorkItemID{1}, seqsOf(first))
	q.add(answersOf(2)...)
	require.Empty(t, q.takeAlong(), "by another claim")
	require.Empty(t, q.take(), "by the writer")

	q.putBack(first)
	require.Equal(t, []WorkItemID{1, 2}, seqsOf(q.next()))
	q.add(answersOf(3)...)
	q.close()
	require.Empty(t, q.take())
	q.done()
	require.Equal(t, []WorkItemID{3}, seqsOf(q.next()))
	q.done()
	require.Empty(t, q.next())
}
