package flow

import (
	"maps"
	"sync"
)

// A Window counts what is out, and decides how much more may be claimed. It is safe for concurrent use.
type Window[Message any] struct {
	limits  Limits
	of      func(Message) (topic string, bytes int64)
	allowed int // of Limits.Messages: less while there are too few connections to renew so many leases

	mu        sync.Mutex
	out       map[string]int // by topic: claimed and not yet answered
	total     int
	unsettled int // answered, and not yet settled
	bytes     int64
	asked     asked // by claims that are under way
	full      bool  // the last claim brought as many messages as it might
	freed     chan struct{}
	roomy     chan struct{}
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
	AllFit bool // otherwise the first message may be larger
}

// most is how many messages it allows.
func (a Allowance) most() int {
	total := 0
	for _, q := range a.Quotas {
		total += q.Quota
	}
	return min(a.Limit, total)
}

// A Quota is the most messages to claim of a topic.
type Quota struct {
	Topic string
	Quota int
}

// asked is what claims may bring.
type asked struct {
	claims, total int
	of            map[string]int // by topic
	bytes         int64
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
		asked: asked{of: map[string]int{}}, freed: NewNote(), roomy: NewNote()}
}

// Freed has a note when there is room that there was not before.
func (w *Window[Message]) Freed() <-chan struct{} { return w.freed }

// Allow returns what may be claimed now. A quarter of the window is reserved for topics that have nothing out, one message
// each: topics whose handlers are stuck cannot starve the others.
//
// In bytes, claims wait until half of the window is free. The first message of a claim may then be of any size, so that
// small ones do not keep a large one waiting for ever.
func (w *Window[Message]) Allow(topics []string) Allowance {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.allow(topics, w.bytes+w.asked.bytes)
}

// allow is Allow for a caller that holds the lock, where so many bytes are taken.
func (w *Window[Message]) allow(topics []string, bytes int64) (a Allowance) {
	limit := min(w.room(), 4*w.limits.Batch-w.unsettled, w.limits.Batch)
	if limit <= 0 || bytes >= w.limits.Bytes {
		return Allowance{}
	}
	full := bytes > w.limits.Bytes/2
	out := func(topic string) int { return w.out[topic] + w.asked.of[topic] }
	idle := 0
	for _, topic := range topics {
		if out(topic) == 0 {
			idle++
		}
	}
	kept := min(idle, w.allowed/4)
	for _, topic := range topics {
		quota := limit - kept
		if out(topic) == 0 {
			quota = max(quota, 1)
		} else if full {
			continue
		}
		if full {
			quota = 1
		}
		if quota = min(quota, w.limits.PerTopic-out(topic)); quota > 0 {
			a.Quotas = append(a.Quotas, Quota{topic, quota})
		}
	}
	if len(a.Quotas) == 0 {
		return Allowance{}
	}
	a.Limit, a.Bytes, a.AllFit = limit, w.limits.Bytes-bytes, full
	if len(topics) > 1 && !full {
		a.Bytes -= w.limits.Bytes / 4
	}
	return a
}

// room is for how many messages there are places. The caller holds the lock.
func (w *Window[Message]) room() int { return w.allowed - w.total - w.asked.total }

// Ask begins a claim of what Allow allows, which counts as out until Claimed is called. If the claim is likely to be full, it
// leaves a quarter of the bytes to AskBeside.
func (w *Window[Message]) Ask(a Allowance) Allowance {
	w.mu.Lock()
	defer w.mu.Unlock()
	if quarter := w.limits.Bytes / 4; w.full && a.Bytes > 2*quarter {
		a.Bytes -= quarter
	}
	w.asked.add(a, 1)
	w.noteRoom()
	return a
}

// AskBeside begins a second claim beside one that is likely to be full. It allows nothing where a later one would better bring the
// messages: if there are places for less than half a batch, and if they are large.
func (w *Window[Message]) AskBeside(topics []string) Allowance {
	w.mu.Lock()
	defer w.mu.Unlock()
	quarter := w.limits.Bytes / 4
	if !w.roomBeside() || w.bytes+w.asked.bytes+quarter > w.limits.Bytes {
		return Allowance{}
	}
	a := w.allow(topics, w.bytes)
	if a.Limit < w.limits.Batch/2 {
		return Allowance{}
	}
	a.Bytes, a.AllFit = quarter, true
	w.asked.add(a, 1)
	return a
}

// Roomy has a note when AskBeside may allow something that it did not before.
func (w *Window[Message]) Roomy() <-chan struct{} { return w.roomy }

func (w *Window[Message]) roomBeside() bool {
	return w.full && w.asked.claims == 1 && w.room() >= w.limits.Batch/2
}

func (w *Window[Message]) noteRoom() {
	if w.roomBeside() {
		Notify(w.roomy)
	}
}

// InFlight returns, by topic, how many messages are out.
func (w *Window[Message]) InFlight() map[string]int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return maps.Clone(w.out)
}

// Claimed counts the messages of a claim that has asked for them.
func (w *Window[Message]) Claimed(a Allowance, messages []Message) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.asked.add(a, -1)
	w.full = len(messages) >= a.most()
	for _, m := range messages {
		topic, bytes := w.of(m)
		w.out[topic]++
		w.bytes += bytes
	}
	w.total += len(messages)
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
	w.allowed = min(w.limits.Messages, w.allowed+1+w.allowed/8)
}
