package measure

import "sync"

// other is the label of what is beyond a cap.
const other = "other"

// names keeps the first so many values of a label, so that a topic a customer does not become a series a customer.
type names struct {
	max int

	mu   sync.RWMutex
	kept map[string]bool
}

func newNames(limit int) *names { return &names{max: limit, kept: map[string]bool{}} }

// label is the name itself, or other.
func (n *names) label(name string) string {
	n.mu.RLock()
	known, full := n.kept[name], len(n.kept) >= n.max
	n.mu.RUnlock()
	switch {
	case known:
		return name
	case full:
		return other
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.kept[name] && len(n.kept) >= n.max {
		return other
	}
	n.kept[name] = true
	return name
}
