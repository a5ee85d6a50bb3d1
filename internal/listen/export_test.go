package listen

// Contains reports whether a document contains another.
func Contains(have, want string) (bool, error) {
	h, err := decode([]byte(have))
	if err != nil {
		return false, err
	}
	w, err := decode([]byte(want))
	return contains(h, w), err
}

// IsLive reports whether a listener has joined the shared read.
func (l *Listener) IsLive() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.live != nil
}

// Block stops the shared read before it puts the next event into the queue of this
// listener.
func (l *Listener) Block() (unblock func()) {
	l.mu.Lock()
	return l.mu.Unlock
}
