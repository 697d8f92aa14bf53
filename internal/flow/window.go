package flow

import (
	"maps"
	"slices"
	"sync"
)

// A Window counts what is out, and decides how much more may be claimed. It is safe for concurrent use, but there may be only one
// goroutine that calls Allow and Ask, and one that calls AskBeside: each ends its claim before it begins another.
type Window[Message any] struct {
	limits  Limits
	of      func(Message) (topic string, bytes int64)
	allowed int // of Limits.Messages: less while there are too few connections to renew so many leases

	mu        sync.Mutex
	out       map[string]int // by topic: claimed and not yet answered
	total     int
	unsettled int // answered, and not yet settled
	bytes     int64
	asked     asked // by the claims that are under way
	more      bool  // there is likely more than the last claim brought
	freed     chan struct{}
	beside    chan struct{}
}

// Limits bounds a Window.
type Limits struct {
	Messages int // claimed and not yet answered
	PerTopic int // of those
	Bytes    int64
	Batch    int // the most that one claim may take; four batches may be answered and not yet settled
}

// An Allowance is what may be claimed now. A Limit of 0 means nothing.
type Allowance struct {
	Quotas []Quota // in the order of topics
	Limit  int
	Bytes  int64
	AllFit bool // otherwise the first message may be larger than Bytes
}

// A Quota is the most messages to claim of a topic.
type Quota struct {
	Topic string
	Quota int
}

// asked is the most that claims under way may bring.
type asked struct {
	claims int // how many are under way: at most two
	total  int
	of     map[string]int // by topic
	bytes  int64
}

func (k *asked) add(a Allowance, sign int) {
	k.claims += sign
	k.total += sign * a.Limit
	k.bytes += int64(sign) * a.Bytes
	for _, q := range a.Quotas {
		if k.of[q.Topic] += sign * q.Quota; k.of[q.Topic] == 0 {
			delete(k.of, q.Topic)
		}
	}
}

// NewWindow returns an empty Window; of returns the topic and size of a message.
func NewWindow[Message any](limits Limits, of func(Message) (topic string, bytes int64)) *Window[Message] {
	return &Window[Message]{limits: limits, of: of, allowed: limits.Messages, out: map[string]int{},
		asked: asked{of: map[string]int{}}, freed: NewNote(), beside: NewNote()}
}

// Freed has a note when there is room that there was not before.
func (w *Window[Message]) Freed() <-chan struct{} { return w.freed }

// Allow returns what may be claimed now. A quarter of the window is reserved for topics that have nothing out, one message
// each: topics whose handlers are stuck cannot starve the others. Once half of the bytes are taken, only those get anything.
func (w *Window[Message]) Allow(topics []string) Allowance {
	w.mu.Lock()
	defer w.mu.Unlock()
	taken := w.bytes + w.asked.bytes
	return w.allow(topics, w.limits.budget(taken, len(topics), w.more), w.limits.heavy(taken))
}

// heavy says that more than half of the bytes are taken: every message must fit into what is left.
func (l Limits) heavy(taken int64) bool { return taken > l.Bytes/2 }

// budget returns how many bytes a claim may bring while so many are taken. Until that is heavy, a quarter is kept for topics with
// nothing out, and the first message may be of any size, so that small ones do not keep a large one waiting for ever. Another quarter
// is left to a second claim if there is likely more.
func (l Limits) budget(taken int64, topics int, more bool) int64 {
	quarter := l.Bytes / 4
	bytes := l.Bytes - taken
	if topics > 1 && !l.heavy(taken) {
		bytes -= quarter
	}
	if more && taken <= quarter {
		bytes -= quarter
	}
	return bytes
}

// budgetBeside returns how many bytes a second claim may bring: the quarter that the first one has left, if that is still free.
func (l Limits) budgetBeside(taken int64, topics int) int64 {
	quarter := l.Bytes / 4
	kept := quarter
	if topics > 1 { // another one for topics with nothing out
		kept += quarter
	}
	if taken+kept > l.Bytes {
		return 0
	}
	return quarter
}

// allow returns an allowance of so many bytes. The caller holds the lock.
func (w *Window[Message]) allow(topics []string, bytes int64, heavy bool) (a Allowance) {
	limit := min(w.room(), 4*w.limits.Batch-w.unsettled, w.limits.Batch)
	if limit <= 0 || bytes <= 0 {
		return Allowance{}
	}
	idle := 0
	for _, topic := range topics {
		if w.out[topic] == 0 {
			idle++
		}
	}
	kept := min(idle, w.allowed/4)
	for _, topic := range topics {
		quota := limit - kept
		if w.out[topic] == 0 {
			quota = max(quota, 1)
		} else if heavy {
			continue
		}
		if heavy {
			quota = 1
		}
		if quota = min(quota, w.limits.PerTopic-w.out[topic]-w.asked.of[topic]); quota > 0 {
			a.Quotas = append(a.Quotas, Quota{topic, quota})
			a.Limit += quota
		}
	}
	if len(a.Quotas) == 0 {
		return Allowance{}
	}
	a.Limit, a.Bytes, a.AllFit = min(a.Limit, limit), bytes, heavy
	return a
}

// room is for how many messages there are places. The caller holds the lock.
func (w *Window[Message]) room() int { return w.allowed - w.total - w.asked.total }

// Ask begins the claim of what Allow has just allowed. That counts as out until Claimed is called.
func (w *Window[Message]) Ask(a Allowance) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.asked.add(a, 1)
	w.noteRoom()
}

// AskBeside begins a second claim while one is under way and there is likely more than that brings. It allows nothing if there are
// places for less than half a batch: the next claim brings those at a lower price. Nor does it if few bytes are left.
func (w *Window[Message]) AskBeside(topics []string) Allowance {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.roomBeside() {
		return Allowance{}
	}
	// What the first claim may bring is no reason to take only of topics with nothing out.
	a := w.allow(topics, w.limits.budgetBeside(w.bytes+w.asked.bytes, len(topics)), w.limits.heavy(w.bytes))
	if a.Limit < w.limits.Batch/2 {
		return Allowance{}
	}
	a.AllFit = true
	w.asked.add(a, 1)
	return a
}

// RoomBeside has a note when AskBeside may allow something that it did not before.
func (w *Window[Message]) RoomBeside() <-chan struct{} { return w.beside }

// roomBeside reports whether a second claim is worth asking for. The caller holds the lock, as that of noteRoom does.
func (w *Window[Message]) roomBeside() bool {
	return w.more && w.asked.claims == 1 && w.room() >= w.limits.Batch/2
}

func (w *Window[Message]) noteRoom() {
	if w.roomBeside() {
		Notify(w.beside)
	}
}

// InFlight returns, by topic, how many messages are out.
func (w *Window[Message]) InFlight() map[string]int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return maps.Clone(w.out)
}

// Claimed ends a claim that Ask or AskBeside began, and counts its messages as out. After an error there are none.
func (w *Window[Message]) Claimed(a Allowance, messages []Message) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.asked.add(a, -1)
	brought := make(map[string]int, len(a.Quotas))
	for _, m := range messages {
		topic, bytes := w.of(m)
		brought[topic]++
		w.out[topic]++
		w.bytes += bytes
	}
	w.total += len(messages)
	w.more = len(messages) > 0 && (len(messages) == a.Limit ||
		slices.ContainsFunc(a.Quotas, func(q Quota) bool { return brought[q.Topic] >= q.Quota }))
}

// Answered makes room for others; the messages then count as unsettled.
func (w *Window[Message]) Answered(messages []Message) {
	w.mu.Lock()
	for _, m := range messages {
		topic, _ := w.of(m)
		if w.out[topic]--; w.out[topic] == 0 {
			delete(w.out, topic)
		}
	}
	w.total -= len(messages)
	w.unsettled += len(messages)
	w.noteRoom()
	w.mu.Unlock()
	Notify(w.freed)
}

// Settled ends the count of answered messages.
func (w *Window[Message]) Settled(messages []Message) {
	w.mu.Lock()
	w.unsettled -= len(messages)
	for _, m := range messages {
		_, bytes := w.of(m)
		w.bytes -= bytes
	}
	w.noteRoom()
	w.mu.Unlock()
	Notify(w.freed)
}

// Narrow halves how much may be out.
func (w *Window[Message]) Narrow() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.allowed = max(1, w.allowed/2)
}

// Widen undoes Narrow step by step.
func (w *Window[Message]) Widen() {
	w.mu.Lock()
	defer w.mu.Unlock()
	before := w.allowed
	w.allowed = min(w.limits.Messages, w.allowed+1+w.allowed/8)
	if w.allowed > before {
		w.noteRoom()
		Notify(w.freed)
	}
}
