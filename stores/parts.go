package stores

import "sync"

// parts are what others have built for a store, once each. They are dropped with it.
type parts struct {
	mu sync.Mutex
	of map[any]*part // by builder
}

type part struct {
	mu    sync.Mutex
	built bool
	value any
}

// partOf returns what builder has built for the store. An error is not remembered: the next call builds again.
func partOf[T any](s *Store, builder any, build func(*Store) (T, error)) (T, error) {
	p := s.parts.get(builder)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.built {
		return p.value.(T), nil //nolint:errcheck // a builder builds one type
	}
	value, err := build(s)
	if err == nil {
		p.built, p.value = true, value
	}
	return value, err
}

func (p *parts) get(builder any) *part {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.of == nil {
		p.of = map[any]*part{}
	}
	if p.of[builder] == nil {
		p.of[builder] = &part{}
	}
	return p.of[builder]
}
