package main

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
)

// sideTimeout limits the time of one side.
const sideTimeout = 15 * time.Minute

// crew is a number of concurrent connections, which stay open between rounds like
// those of a program.
type crew []*pgx.Conn

// statements are the statements that connections prepare, by their names.
type statements map[string]string

// crew opens connections that have prepared some statements.
func (d *database) crew(ctx context.Context, n int, parameters map[string]string, prepared statements) crew {
	c := make(crew, n)
	for i := range c {
		c[i] = d.connect(ctx, parameters)
	}
	c.prepare(ctx, prepared)
	return c
}

func (c crew) prepare(ctx context.Context, prepared statements) {
	for _, conn := range c {
		for name, sql := range prepared {
			must(conn.Prepare(ctx, name, sql))
		}
	}
}

func (c crew) close() {
	for _, conn := range c {
		conn.Close(context.Background())
	}
}

// run runs work on all connections concurrently and returns the events per second.
// Each work returns the number of its events, which must add up to want.
func (c crew) run(ctx context.Context, want int, work func(ctx context.Context, i int, conn *pgx.Conn) int) float64 {
	ctx, cancel := context.WithTimeout(ctx, sideTimeout)
	defer cancel()
	counts, errs := make([]int, len(c)), make([]error, len(c))
	start := time.Now()
	var wait sync.WaitGroup
	for i, conn := range c {
		wait.Go(func() {
			if errs[i] = caught(func() { counts[i] = work(ctx, i, conn) }); errs[i] != nil {
				cancel() // the others would wait for the work of this one
			}
		})
	}
	wait.Wait()
	took := time.Since(start)
	check(errors.Join(errs...))
	total := 0
	for _, n := range counts {
		total += n
	}
	expect("events", total, want)
	return float64(total) / took.Seconds()
}

// share returns the part of n for worker i, such that all parts add up to n.
func (c crew) share(n, i int) int {
	return n*(i+1)/len(c) - n*i/len(c)
}

// eachOf calls do n times, at most atOnce calls at a time.
func eachOf(ctx context.Context, atOnce, n int, do func(ctx context.Context, i int)) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var next atomic.Int64
	var all sync.WaitGroup
	for range atOnce {
		all.Go(func() {
			for i := int(next.Add(1)) - 1; i < n && ctx.Err() == nil; i = int(next.Add(1)) - 1 {
				if err := caught(func() { do(ctx, i) }); err != nil {
					cancel(err)
				}
			}
		})
	}
	all.Wait()
	check(context.Cause(ctx))
}

// counter reports when the last of n jobs is done.
type counter struct {
	left atomic.Int64
	all  chan struct{}
}

func newCounter(n int) *counter {
	c := &counter{all: make(chan struct{})}
	c.left.Store(int64(n))
	return c
}

func (c *counter) add() {
	if c.left.Add(-1) == 0 {
		close(c.all)
	}
}

func (c *counter) wait(ctx context.Context) {
	select {
	case <-c.all:
	case <-ctx.Done():
		check(ctx.Err())
	}
}

// sleep waits, unless the context ends.
func sleep(ctx context.Context, length time.Duration) {
	select {
	case <-time.After(length):
	case <-ctx.Done():
		check(ctx.Err())
	}
}
