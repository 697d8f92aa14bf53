package console

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/admin"
)

const (
	samplers      = 4               // stores that are looked at at once
	sampleTimeout = 3 * time.Second // for one store
	remembered    = time.Hour
	recentlySeen  = 300 // messages from which the rate of each topic is estimated
	topicsKept    = 500 // of a store, with their history
)

// A sample is what a store was like at a moment.
type sample struct {
	begun  time.Time
	At     time.Time // when it was taken, by this machine's clock
	Err    error     // nothing else is known then
	Health admin.Health
	Paused map[string]admin.PausedTopic
	Topics []topicSample // by name

	Rate    float64       // messages published a second
	Due     int           // messages, counted up to 10,000 a topic
	Oldest  time.Duration // age of the one that has been due the longest
	Blocked int           // streams

	newest outbox.WorkItemID
}

// A topicSample is the same for a topic.
type topicSample struct {
	outbox.TopicBacklog
	Rate float64
}

// A point is what charts need of a sample.
type point struct {
	at             time.Time
	due, age, rate float32 // messages, seconds, messages a second
}

// A history is the samples of a store in the last hour.
type history struct {
	mu     sync.Mutex
	last   *sample
	store  []point
	topics map[string][]point
}

// latest is nil until the store has been looked at.
func (h *history) latest() *sample {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.last
}

// points are those of a topic, or of the whole store.
func (h *history) points(topic string) []point {
	h.mu.Lock()
	defer h.mu.Unlock()
	if topic == "" {
		return slices.Clone(h.store)
	}
	return slices.Clone(h.topics[topic])
}

// add leaves out a sample that began before the last one: it does not show what somebody has done meanwhile.
func (h *history) add(s *sample) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.last != nil && s.begun.Before(h.last.begun) {
		return
	}
	h.last = s
	if s.Err != nil {
		return
	}
	if h.topics == nil {
		h.topics = map[string][]point{}
	}
	h.store = appendPoint(h.store, point{s.At, float32(s.Due), float32(s.Oldest.Seconds()), float32(s.Rate)})
	for _, t := range s.Topics {
		if _, known := h.topics[t.Topic]; known || len(h.topics) < topicsKept {
			h.topics[t.Topic] = appendPoint(h.topics[t.Topic], point{s.At, float32(t.Waiting), float32(t.Age.Seconds()), float32(t.Rate)})
		}
	}
	for topic, points := range h.topics {
		if points[len(points)-1].at.Before(s.At.Add(-remembered)) {
			delete(h.topics, topic)
		}
	}
}

func appendPoint(points []point, p point) []point {
	first := 0
	for first < len(points) && points[first].at.Before(p.at.Add(-remembered)) {
		first++
	}
	return append(slices.Delete(points, 0, first), p)
}

// names are the topics that the history knows.
func (h *history) names() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Collect(maps.Keys(h.topics))
}

// sample looks at all stores at each interval, until the console closes.
func (c *Console) sample() {
	ticker := time.NewTicker(c.config.SampleInterval)
	defer ticker.Stop()
	for {
		c.sampleAll()
		select {
		case <-ticker.C:
		case <-c.ctx.Done():
			return
		}
	}
}

func (c *Console) sampleAll() {
	places := make(chan *place)
	var work sync.WaitGroup
	for range samplers {
		work.Go(func() {
			for p := range places {
				c.sampleOne(p)
			}
		})
	}
	for _, p := range c.places.all() {
		select {
		case places <- p:
		case <-c.ctx.Done():
		}
	}
	close(places)
	work.Wait()
	c.looks.sweep(time.Now())
	c.watchers.tell()
}

func (c *Console) sampleOne(p *place) {
	ctx, cancel := context.WithTimeout(c.ctx, sampleTimeout)
	defer cancel()
	s := p.look(ctx, p.history.latest())
	if c.ctx.Err() != nil {
		return
	}
	if s.Err != nil {
		c.logger.Debug("The console could not look at a store", map[string]any{"store": p.ID(), "err": s.Err})
	}
	p.history.add(s)
}

// look takes a sample.
func (p *place) look(ctx context.Context, before *sample) *sample {
	s := &sample{begun: time.Now()}
	var backlogs []outbox.TopicBacklog
	var recent admin.List
	var paused []admin.PausedTopic
	if s.Health, s.Err = p.admin.Health(ctx); s.Err == nil {
		if backlogs, s.Err = p.Outbox().Topics(ctx); s.Err == nil {
			if paused, s.Err = p.admin.Paused(ctx); s.Err == nil {
				recent, s.Err = p.admin.Messages(ctx, admin.ListParams{Limit: recentlySeen, Examine: recentlySeen})
			}
		}
	}
	s.At = time.Now()
	if s.Err != nil {
		return s
	}
	topics := map[string]*topicSample{}
	for _, name := range p.history.names() {
		topics[name] = &topicSample{TopicBacklog: outbox.TopicBacklog{Topic: name}}
	}
	for _, b := range backlogs {
		topics[b.Topic] = &topicSample{TopicBacklog: b}
		s.Due += b.Waiting
		s.Oldest = max(s.Oldest, b.Age)
		s.Blocked += b.BlockedStreams
	}
	s.rates(recent.Messages, before, topics)
	s.Paused = map[string]admin.PausedTopic{}
	for _, t := range paused {
		s.Paused[t.Topic] = t
		if topics[t.Topic] == nil {
			topics[t.Topic] = &topicSample{TopicBacklog: outbox.TopicBacklog{Topic: t.Topic}}
		}
	}
	for _, t := range topics {
		s.Topics = append(s.Topics, *t)
	}
	slices.SortFunc(s.Topics, func(a, b topicSample) int { return cmp.Compare(a.Topic, b.Topic) })
	return s
}

// rates estimates how many messages were published a second: in all from the numbers that messages get, and for each topic from
// its share in the last ones.
func (s *sample) rates(recent []admin.Message, before *sample, topics map[string]*topicSample) {
	if len(recent) > 0 {
		s.newest = recent[0].Seq
	}
	counts, counted := map[string]int{}, 0
	for _, m := range recent {
		if topics[m.Topic] == nil {
			topics[m.Topic] = &topicSample{TopicBacklog: outbox.TopicBacklog{Topic: m.Topic}}
		}
		if before != nil && m.Seq > before.newest {
			counts[m.Topic]++
			counted++
		}
	}
	if before == nil || before.Err != nil || counted == 0 {
		return
	}
	passed := s.Health.Now.Sub(before.Health.Now).Seconds()
	if passed <= 0 {
		return
	}
	published := counted
	if counted == len(recent) { // more were published than were looked at
		published = int(s.newest - before.newest)
	}
	s.Rate = float64(published) / passed
	for topic, n := range counts {
		topics[topic].Rate = s.Rate * float64(n) / float64(counted)
	}
}
