package main

import (
	"context"
	"io"
)

// input is the standard input until an interrupt. A read of a terminal, or of a pipe
// that nobody writes to, does not end by itself.
type input struct {
	ctx context.Context
	r   io.Reader
}

func (i input) Read(p []byte) (int, error) {
	type result struct {
		n   int
		err error
	}
	own := make([]byte, len(p)) // since the read may go on behind the interrupt
	done := make(chan result, 1)
	go func() {
		n, err := i.r.Read(own)
		done <- result{n, err}
	}()
	select {
	case r := <-done:
		return copy(p, own[:r.n]), r.err
	case <-i.ctx.Done():
		return 0, i.ctx.Err()
	}
}
