package schedule

import (
	"context"
	"fmt"
	"strings"
)

// pointSQL makes a session wait at a point for an advisory lock that the driver holds. The
// points of a session are counted by a sequence, since a savepoint would roll a setting back.
// The name of the point is where the driver sees it: in pg_stat_activity.
const pointSQL = `;
create function sched.point(name text) returns void language plpgsql as $$
declare
  me int := nullif(nullif(current_setting('sched.me', true), ''), 'control')::int;
  n int;
begin
  if me is null then return; end if;
  n := nextval('sched.n' || me);
  perform set_config('application_name', name, false);
  perform pg_advisory_lock_shared(7000 + me, n);
  perform pg_advisory_unlock_shared(7000 + me, n);
end $$;`

// arm makes the sessions stop at points: the driver holds the lock of the first point of each.
func (r *Run) arm(ctx context.Context) error {
	for i := range r.sessions {
		if err := r.armOne(ctx, i); err != nil {
			return err
		}
	}
	return nil
}

func (r *Run) armOne(ctx context.Context, i int) error {
	if !r.d.stops {
		return nil
	}
	s := r.sessions[i]
	var sql strings.Builder
	fmt.Fprintf(&sql, "create unlogged sequence if not exists sched.n%d; select setval('sched.n%d', 1, false);", i, i)
	if s.point > 0 {
		fmt.Fprintf(&sql, "select pg_advisory_unlock(%d, %d);", 7000+i, s.point)
	}
	fmt.Fprintf(&sql, "select pg_advisory_lock(%d, 1)", 7000+i)
	s.point = 1
	_, err := r.d.control.Exec(ctx, sql.String())
	return err
}

// arrive notes that a session stands at a point.
func (r *Run) arrive(ctx context.Context, s *session) error {
	if s.atPoint {
		return nil
	}
	s.atPoint = true
	if err := r.d.control.QueryRow(ctx, "select application_name from pg_stat_activity where pid = $1", s.pid()).Scan(&s.place); err != nil {
		return err
	}
	r.Trace.say(s.line, " stands at "+s.place)
	return nil
}

// pass lets a session go on from its point, to the next one at most.
func (r *Run) pass(ctx context.Context, s *session) error {
	i := r.index(s)
	r.Trace.add(s.Name, "-- goes on from "+s.place)
	s.atPoint, s.place = false, ""
	_, err := r.d.control.Exec(ctx, fmt.Sprintf("select pg_advisory_lock(%d, %d); select pg_advisory_unlock(%d, %d)",
		7000+i, s.point+1, 7000+i, s.point))
	s.point++
	if err != nil {
		return err
	}
	return r.await(ctx, s)
}

// disarm lets all sessions go on from their points.
func (r *Run) disarm(ctx context.Context) error {
	if !r.d.stops {
		return nil
	}
	for _, s := range r.sessions {
		s.atPoint = false
	}
	if _, err := r.d.control.Exec(ctx, "select pg_advisory_unlock_all()"); err != nil {
		return err
	}
	return r.await(ctx, nil)
}

func (r *Run) index(s *session) int {
	for i, other := range r.sessions {
		if other == s {
			return i
		}
	}
	return -1
}
