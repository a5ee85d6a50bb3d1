package main

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/posthorn/posthorn/internal/test/await"
)

// An interrupt ends a read of input that does not come.
func TestInterruptEndsInput(t *testing.T) {
	t.Parallel()
	silent, _ := io.Pipe()
	t.Cleanup(func() { _ = silent.Close() })
	ctx, interrupt := context.WithCancel(t.Context())
	text, err := io.ReadAll(input{ctx, io.MultiReader(strings.NewReader("text"), strings.NewReader(" and more"))})
	if string(text) != "text and more" || err != nil {
		t.Errorf("read %q, %v", text, err)
	}
	interrupt()
	if _, err := io.ReadAll(input{ctx, silent}); !errors.Is(err, context.Canceled) {
		t.Errorf("read: %v", err)
	}
}

// A command that reads lines ends while it waits for the next one.
func TestInterruptEndsLines(t *testing.T) {
	t.Parallel()
	silent, _ := io.Pipe()
	t.Cleanup(func() { _ = silent.Close() })
	ctx, interrupt := context.WithCancel(t.Context())
	written := make(chan error, 1)
	reading := &reads{Reader: silent, begun: make(chan struct{}, 1)}
	go func() { written <- (&lineWriter[string]{}).writeAll(ctx, reading) }()
	await.Value(t, "a read", reading.begun)
	interrupt()
	if err := await.Value(t, "the end", written); !errors.Is(err, context.Canceled) {
		t.Errorf("lines: %v", err)
	}
}

type reads struct {
	io.Reader
	begun chan struct{}
}

func (r *reads) Read(p []byte) (int, error) {
	r.begun <- struct{}{}
	return r.Reader.Read(p)
}
