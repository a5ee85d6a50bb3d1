package main

import (
	"context"
	"errors"
	"fmt"
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

func (d *database) crew(ctx context.Context, n int, parameters map[string]string) (crew, error) {
	c := make(crew, n)
	for i := range c {
		var err error
		if c[i], err = d.connect(ctx, parameters); err != nil {
			return nil, err
		}
	}
	return c, nil
}

func (c crew) close() {
	for _, conn := range c {
		conn.Close(context.Background())
	}
}

// prepare prepares a statement under a name on each connection.
func (c crew) prepare(ctx context.Context, name, sql string) error {
	for _, conn := range c {
		if _, err := conn.Prepare(ctx, name, sql); err != nil {
			return err
		}
	}
	return nil
}

// run runs work on all connections concurrently and returns the events per second.
// Each work returns the number of its events, which must add up to want.
func (c crew) run(ctx context.Context, want int, work func(ctx context.Context, i int, conn *pgx.Conn) (int, error)) (float64, error) {
	ctx, cancel := context.WithTimeout(ctx, sideTimeout)
	defer cancel()
	counts, errs := make([]int, len(c)), make([]error, len(c))
	start := time.Now()
	var wait sync.WaitGroup
	for i, conn := range c {
		wait.Go(func() {
			if counts[i], errs[i] = work(ctx, i, conn); errs[i] != nil {
				cancel() // the others would wait for the work of this one
			}
		})
	}
	wait.Wait()
	took := time.Since(start)
	if err := errors.Join(errs...); err != nil {
		return 0, err
	}
	total := 0
	for _, n := range counts {
		total += n
	}
	if total != want {
		return 0, fmt.Errorf("%d events instead of %d", total, want)
	}
	return float64(total) / took.Seconds(), nil
}

// share returns the part of n for worker i, such that all parts add up to n.
func (c crew) share(n, i int) int {
	return n*(i+1)/len(c) - n*i/len(c)
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

func (c *counter) wait(ctx context.Context) error {
	select {
	case <-c.all:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
