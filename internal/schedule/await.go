package schedule

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"
)

// patience is how long a statement may run, which waits for nothing.
const patience = time.Minute

// await waits until each statement under way has ended, or waits for a lock. The outcome of
// the session that went on is recorded before those of sessions that had waited for it.
func (r *Run) await(ctx context.Context, first *session) error {
	for began := time.Now(); time.Since(began) < patience; {
		if first != nil && first.busy && !r.receive(first, time.Millisecond) {
			blockers, err := r.blockers(ctx)
			if err != nil {
				return err
			}
			if len(blockers[first]) == 0 {
				continue // it runs
			}
		}
		first = nil
		running := false
		for _, s := range r.sessions {
			running = s.busy && !r.receive(s, 0) || running
		}
		if !running {
			return nil
		}
		if still, err := r.still(ctx); err != nil || still {
			return err
		}
	}
	return errors.New("a statement neither ends nor waits")
}

// receive records the outcome of a session if its statement has ended.
func (r *Run) receive(s *session, wait time.Duration) bool {
	select {
	case o := <-s.done:
		r.ended(s, o)
		return true
	default:
	}
	if wait == 0 {
		return false
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case o := <-s.done:
		r.ended(s, o)
		return true
	case <-timer.C:
		return false
	}
}

// still reports whether all statements under way wait for locks.
func (r *Run) still(ctx context.Context) (bool, error) {
	blockers, err := r.blockers(ctx)
	if err != nil {
		return false, err
	}
	for _, s := range r.sessions {
		if s.busy && len(blockers[s]) == 0 {
			return false, nil
		}
	}
	me := int32(r.d.control.PgConn().PID())
	for s, by := range blockers {
		if slices.Equal(by, []int32{me}) && r.d.stops {
			if err := r.arrive(ctx, s); err != nil {
				return false, err
			}
		} else if said := r.Trace.lines[s.line].said; !strings.Contains(said, "waits") {
			r.Trace.say(s.line, " waits for "+r.called(by))
		}
	}
	return true, nil
}

// blockers returns the processes for which the statements under way wait.
func (r *Run) blockers(ctx context.Context) (map[*session][]int32, error) {
	var pids []int32
	of := map[int32]*session{}
	for _, s := range r.sessions {
		if s.busy {
			pids = append(pids, s.pid())
			of[s.pid()] = s
		}
	}
	all := map[*session][]int32{}
	rows, err := r.d.control.Query(ctx, "select p, pg_blocking_pids(p) from unnest($1::int[]) p", pids)
	if err != nil {
		return nil, err
	}
	for rows.Next() {
		var pid int32
		var by []int32
		if err := rows.Scan(&pid, &by); err != nil {
			return nil, err
		}
		all[of[pid]] = by
	}
	return all, rows.Err()
}

// called returns the names of the sessions of some processes.
func (r *Run) called(pids []int32) string {
	var names []string
	for _, s := range r.sessions {
		if slices.Contains(pids, s.pid()) {
			names = append(names, s.Name)
		}
	}
	return strings.Join(names, " and ")
}

// awaitEnd waits until a statement ends, when all wait for each other: the deadlock detector
// of Postgres decides.
func (r *Run) awaitEnd(ctx context.Context) error {
	for began := time.Now(); time.Since(began) < patience; {
		for _, s := range r.sessions {
			if s.busy && r.receive(s, time.Millisecond) {
				return r.await(ctx, nil)
			}
		}
	}
	return errors.New("all sessions wait, and Postgres sees no deadlock")
}
