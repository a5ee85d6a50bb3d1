package schedule

import "context"

// happen makes something happen that is no statement.
func (r *Run) happen(ctx context.Context, s *session, step Step) error {
	switch {
	case step.Kill != "":
		r.Trace.add(s.Name, "-- the connection of "+step.Kill+" is terminated")
		for i, victim := range r.sessions {
			if victim.Name == step.Kill {
				return r.kill(ctx, i)
			}
		}
		panic("no session " + step.Kill)
	case step.Crash:
		r.Trace.add(s.Name, "-- Postgres is killed with kill -9, and started again")
		return r.crash(ctx)
	default:
		r.Trace.add(s.Name, "-- the clock moves by "+step.Clock.String())
		return r.d.move(ctx, step.Clock)
	}
}

// kill terminates the connection of a session, and connects it again.
func (r *Run) kill(ctx context.Context, i int) error {
	s := r.sessions[i]
	if _, err := r.d.control.Exec(ctx, "select pg_terminate_backend($1, 60000)", s.pid()); err != nil {
		return err
	}
	if err := r.lose(ctx, i); err != nil {
		return err
	}
	return r.await(ctx, nil)
}

// crash kills the server. Transactions that were prepared are still there.
func (r *Run) crash(ctx context.Context) error {
	if err := r.d.crash(ctx); err != nil {
		return err
	}
	r.model.Crashed(r.now())
	for i := range r.sessions {
		if err := r.lose(ctx, i); err != nil {
			return err
		}
	}
	return nil
}

// lose records that a session has lost its connection, and opens another one. The session
// goes on behind the transaction that it had begun.
func (r *Run) lose(ctx context.Context, i int) error {
	s := r.sessions[i]
	if s.busy {
		r.ended(s, <-s.done)
	}
	if s.tx.Open() {
		s.tx.rollback()
		for s.next < len(s.Steps) && s.Steps[s.next].SQL != "commit" && s.Steps[s.next].SQL != "rollback" {
			s.next++
		}
		s.next = min(s.next+1, len(s.Steps))
	}
	_ = s.conn.Close(ctx) // the server has closed it
	if err := r.d.reopen(ctx, i); err != nil {
		return err
	}
	s.conn = r.d.conns[i]
	return r.armOne(ctx, i)
}
