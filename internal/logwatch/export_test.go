package logwatch

import "time"

// SetIdleTimeout sets how long a watcher goes on without waiters.
func (w *Watcher) SetIdleTimeout(d time.Duration) { w.idleTimeout = d }

// SetFollowPause sets the pause between two questions while another process asks for all.
func (w *Watcher) SetFollowPause(d time.Duration) { w.followPause = d }

// StopIdle is the function that runs after the idle timeout.
func (w *Watcher) StopIdle() { w.stopIdle() }

// KeptRunning reports whether a KeepRunning has started the watcher.
func (w *Watcher) KeptRunning() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.stopKept != nil
}

// PauseAfter returns the pause that follows another one, when there has been no news for a time.
func PauseAfter(last, quiet time.Duration) time.Duration { return pauseAfter(last, quiet) }
