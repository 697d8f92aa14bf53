package flow

// NewNote returns a channel that has room for one note.
func NewNote() chan struct{} { return make(chan struct{}, 1) }

// Notify leaves a note in a channel that has room for one.
func Notify(note chan<- struct{}) {
	select {
	case note <- struct{}{}:
	default:
	}
}

// IsClosed reports whether a channel that carries nothing is closed.
func IsClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
