package inflow_test

import (
	"io"
	"log/slog"
	"sync"
)

// newLog writes what is logged where a test can read it when all is over.
func newLog(to io.Writer) *slog.Logger { return slog.New(slog.NewTextHandler(&locked{to: to}, nil)) }

type locked struct {
	mu sync.Mutex
	to io.Writer
}

func (l *locked) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.to.Write(p)
}
