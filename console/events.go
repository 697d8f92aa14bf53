package console

import (
	"fmt"
	"net/http"
	"sync"
	"time"
)

// heartbeat keeps proxies from closing a quiet connection; a browser that does not read is given up after it.
const heartbeat = 15 * time.Second

// watchers are the pages that are told when there is something new. They are told nothing else: they then read the page again,
// with the rights of their reader.
type watchers struct {
	mu   sync.Mutex
	most int
	all  map[chan struct{}]struct{}
}

func (s *watchers) add() (news chan struct{}, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.all) >= s.most {
		return nil, false
	}
	if s.all == nil {
		s.all = map[chan struct{}]struct{}{}
	}
	news = make(chan struct{}, 1)
	s.all[news] = struct{}{}
	return news, true
}

func (s *watchers) remove(news chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.all, news)
}

// tell waits for nobody: who has not yet heard of the last news hears of both at once.
func (s *watchers) tell() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for news := range s.all {
		select {
		case news <- struct{}{}:
		default:
		}
	}
}

// events is a stream of server-sent events.
func (v *visit) events() {
	news, ok := v.watchers.add()
	if !ok {
		v.w.WriteHeader(http.StatusNoContent) // which tells a browser not to try again
		return
	}
	defer v.watchers.remove(news)
	v.w.Header().Set("Content-Type", "text/event-stream")
	wire := http.NewResponseController(v.w)
	send := func(text string) error {
		_ = wire.SetWriteDeadline(time.Now().Add(heartbeat)) // where there are none, the connection's own limits hold
		if _, err := fmt.Fprint(v.w, text); err != nil {
			return err
		}
		return wire.Flush()
	}
	ticker := time.NewTicker(heartbeat)
	defer ticker.Stop()
	text := "retry: 5000\n\n"
	for send(text) == nil {
		select {
		case <-news:
			text = "data: new\n\n"
		case <-ticker.C:
			text = ": still here\n\n"
		case <-v.r.Context().Done():
			return
		case <-v.ctx.Done():
			return
		}
	}
}
