package wake

import "time"

// SetLinger is for tests in a hurry.
func (w *Watch) SetLinger(d time.Duration) { w.linger = d }

// Rest is what happens after that time.
func (w *Watch) Rest() { w.rest() }

// Kept reports whether it runs for those who wait.
func (w *Watch) Kept() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.kept != nil
}
