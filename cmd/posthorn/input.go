package main

import (
	"context"
	"io"
)

// input is the standard input; an interrupt ends its reads. A read of a terminal or an
// idle pipe would not end otherwise.
type input struct {
	ctx context.Context
	r   io.Reader
}

func (i input) Read(p []byte) (int, error) {
	type result struct {
		n   int
		err error
	}
	own := make([]byte, len(p)) // a read that continues after the interrupt must not write to p
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
