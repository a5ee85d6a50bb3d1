package schedule

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// aside is a session of the driver itself, before and after a schedule.
func (r *Run) aside(name string) *session { return newSession(Session{Name: name}, r.d.control) }

// ask sends a statement in such a session.
func (r *Run) ask(ctx context.Context, s *session, step Step) Outcome {
	sql, _ := fill(step.SQL, s.vars, r.world)
	s.line, s.sql, s.sent = r.Trace.add(s.Name, sql), sql, r.now()
	o := ask(ctx, s.conn, sql)
	r.record(s, step, o)
	return o
}

// setup runs the steps before a schedule. Their variables are those of all sessions.
func (r *Run) setup(ctx context.Context) error {
	s := r.aside("setup")
	for _, step := range r.sc.Setup {
		r.step++
		if err := r.d.move(ctx, time.Millisecond+step.Clock); err != nil {
			return err
		}
		if step.SQL == "" {
			r.Trace.add(s.Name, "-- the clock moves by "+step.Clock.String())
			continue
		}
		if o := r.ask(ctx, s, step); o.Err != nil {
			return o.Err
		}
		if step.Gset {
			maps.Copy(r.world, s.vars)
		}
	}
	return nil
}

// end ends the transactions that are open, in the order of the sessions.
func (r *Run) end(ctx context.Context) error {
	if err := r.disarm(ctx); err != nil {
		return err
	}
	for _, s := range r.sessions {
		if err := r.await(ctx, nil); err != nil {
			return err
		}
		if !s.busy && s.tx.Open() {
			if _, err := s.conn.Exec(ctx, "rollback"); err != nil {
				return err
			}
			s.tx.rollback()
			r.Trace.add(s.Name, "rollback")
		}
	}
	for _, name := range slices.Sorted(maps.Keys(r.prepared)) {
		if _, err := r.d.control.Exec(ctx, "rollback prepared '"+name+"'"); err != nil {
			return err
		}
		r.prepared[name].rollback()
	}
	return r.await(ctx, nil)
}

// idle rounds end the drain: three, each after a move of the clock by which retries and
// leases are due. longest bounds the drain of a queue that never gets empty.
const (
	idle    = 3
	pause   = 6 * time.Minute
	longest = 60
)

// drain takes all events and jobs that are left, and looks at those that never came.
func (r *Run) drain(ctx context.Context) error {
	s := r.aside("drain")
	for round, quiet := 0, 0; quiet < idle && round < longest; round++ {
		r.step++
		took := false
		for _, step := range r.sc.Drain {
			if !r.ready(s, step) {
				continue
			}
			o := r.ask(ctx, s, step)
			if o.Err != nil {
				r.Wrong = append(r.Wrong, fmt.Sprintf("the drain: %v", o.Err))
				return nil
			}
			took = took || step.Takes && len(o.Rows) > 0
		}
		if !took {
			quiet++
			if err := r.d.move(ctx, pause); err != nil {
				return err
			}
		}
	}
	r.model.Drained(r.now())
	return r.watch(ctx, r.sc.Finally)
}

// tidy removes what later schedules would meet.
func (r *Run) tidy(ctx context.Context) error {
	if r.sc.Fresh || len(r.sc.Tidy) == 0 {
		return nil
	}
	sql, _ := fill(strings.Join(r.sc.Tidy, "; "), nil, r.world)
	if _, err := r.d.control.Exec(ctx, sql); err != nil {
		return fmt.Errorf("tidy: %w", err)
	}
	return nil
}
