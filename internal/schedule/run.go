package schedule

import (
	"context"
	"fmt"
	"strings"
	"time"
)

// Run is one schedule.
type Run struct {
	Trace  Trace
	Wrong  []string // the broken promises
	Chosen []string // the session that went on, step by step: Replay takes them
	Pairs  []string // of places: a session went on from the one while another stood at the other

	d        *Driver
	sc       *Scenario
	model    Model
	world    Vars
	sessions []*session
	prepared map[string]*Tx
	step     int
}

// Chooser chooses the session that goes on.
type Chooser interface {
	Choose(c Choice) int
}

// Choice is a place in a schedule where one of several sessions goes on.
type Choice struct {
	Enabled []int    // at least one
	Names   []string // of all sessions
	Last    int      // the session that went on before, or -1
}

// Run runs one schedule. An error is one of the harness.
func (d *Driver) Run(ctx context.Context, sc *Scenario, chooser Chooser) (*Run, error) {
	r := &Run{d: d, sc: sc, model: sc.Model(), world: Vars{}, prepared: map[string]*Tx{}}
	ns, err := d.begin(ctx, sc)
	if err != nil {
		return r, fmt.Errorf("begin: %w", err)
	}
	r.world["ns"] = ns
	r.Trace.add("setup", "select posthorn.define_namespace('"+ns+"')")
	if err := r.setup(ctx); err != nil {
		r.Wrong = []string{fmt.Sprintf("promise 0: the setup fails: %v", err)}
		return r, r.tidy(ctx)
	}
	for i, s := range sc.Sessions {
		r.sessions = append(r.sessions, newSession(s, d.conns[i]))
	}
	if err := r.arm(ctx); err != nil {
		return r, err
	}
	if err := r.play(ctx, chooser); err != nil {
		return r, err
	}
	if err := r.end(ctx); err != nil {
		return r, err
	}
	if err := r.drain(ctx); err != nil {
		return r, err
	}
	r.Wrong = append(r.Wrong, r.model.Wrong()...)
	return r, r.tidy(ctx)
}

func (r *Run) now() Moment { return Moment{r.step, r.d.clock} }

// play lets sessions go on, one at a time, until all have ended.
func (r *Run) play(ctx context.Context, chooser Chooser) error {
	for last := -1; ; {
		enabled, busy := r.enabled()
		if len(enabled) == 0 {
			if !busy {
				return nil
			}
			if err := r.awaitEnd(ctx); err != nil {
				return err
			}
			continue
		}
		i := chooser.Choose(Choice{enabled, r.names(), last})
		r.Chosen = append(r.Chosen, r.sessions[i].Name)
		r.pair(i)
		if err := r.goOn(ctx, r.sessions[i]); err != nil {
			return err
		}
		if err := r.watch(ctx, r.sc.Always); err != nil {
			return err
		}
		last = i
	}
}

// enabled returns the sessions that may go on, and whether any has a statement under way.
func (r *Run) enabled() (enabled []int, busy bool) {
	for i, s := range r.sessions {
		busy = busy || s.busy
		for !s.busy && s.next < len(s.Steps) && !r.ready(s, s.Steps[s.next]) {
			s.next++
		}
		if s.atPoint || !s.busy && s.next < len(s.Steps) {
			enabled = append(enabled, i)
		}
	}
	return enabled, busy
}

func (r *Run) ready(s *session, step Step) bool {
	_, complete := fill(step.SQL, s.vars, r.world)
	return complete
}

func (r *Run) names() (names []string) {
	for _, s := range r.sessions {
		names = append(names, s.Name)
	}
	return names
}

// pair notes where the others stand while a session goes on.
func (r *Run) pair(i int) {
	for k, other := range r.sessions {
		if k != i {
			r.Pairs = append(r.Pairs, r.sessions[i].at()+" / "+other.at())
		}
	}
}

// at is the place where a session stands.
func (s *session) at() string {
	if s.busy {
		return fmt.Sprintf("%s in %d %s", s.Name, s.next, s.place)
	}
	return fmt.Sprintf("%s %d", s.Name, s.next)
}

// goOn lets one session go on: by one step, with the begin before it.
func (r *Run) goOn(ctx context.Context, s *session) error {
	r.step++
	if err := r.d.move(ctx, time.Millisecond); err != nil {
		return err
	}
	if s.atPoint {
		return r.pass(ctx, s)
	}
	for {
		step := s.Steps[s.next]
		s.next++
		if step.SQL == "" {
			return r.happen(ctx, s, step)
		}
		sql, _ := fill(step.SQL, s.vars, r.world)
		s.line, s.sql, s.sent, s.place = r.Trace.add(s.Name, sql), sql, r.now(), ""
		s.send(ctx, sql)
		if err := r.await(ctx, s); err != nil {
			return err
		}
		// These touch nothing that others see: they are one step with the next statement.
		glued := strings.HasPrefix(sql, "begin") || strings.HasPrefix(sql, "savepoint")
		if s.busy || !glued || s.next == len(s.Steps) || s.Steps[s.next].SQL == "" || !r.ready(s, s.Steps[s.next]) {
			return nil
		}
	}
}

// ended records the outcome of the statement of a session.
func (r *Run) ended(s *session, o Outcome) {
	s.busy, s.atPoint = false, false
	step := s.Steps[s.next-1]
	r.record(s, step, o)
}

// record follows the transaction, and tells the model.
func (r *Run) record(s *session, step Step, o Outcome) {
	r.Trace.say(s.line, o.describe())
	if o.Err != nil && s.tx.Open() {
		s.tx.failed()
	}
	r.follow(s, o)
	r.model.Ended(step.Op, &Call{Outcome: o, Session: s.Name, Vars: s.vars, World: r.world, Tx: s.tx, Sent: s.sent, Now: r.now()})
	if step.Gset && len(o.Rows) == 1 {
		for i, column := range o.Columns {
			if v := o.Rows[0][i]; v != nil {
				s.vars[column] = fmt.Sprint(v)
			}
		}
	}
}

// follow begins and ends the transaction of a session as Postgres did.
func (r *Run) follow(s *session, o Outcome) {
	if o.Err != nil {
		if s.tx.Open() && s.conn.PgConn().TxStatus() == 'I' { // a commit that failed
			s.tx.rollback()
		}
		return
	}
	switch o.Tag {
	case "BEGIN", "START TRANSACTION":
		s.tx = &Tx{Began: r.step}
	case "COMMIT":
		s.tx.commit(r.now())
	case "ROLLBACK":
		if s.conn.PgConn().TxStatus() == 'I' {
			s.tx.rollback()
		}
		s.tx.save(s.sql)
	case "SAVEPOINT":
		s.tx.save(s.sql)
	case "PREPARE TRANSACTION":
		r.prepared[quoted(s.sql)], s.tx = s.tx, &Tx{}
	case "COMMIT PREPARED":
		r.prepared[quoted(s.sql)].commit(r.now())
		delete(r.prepared, quoted(s.sql))
	case "ROLLBACK PREPARED":
		r.prepared[quoted(s.sql)].rollback()
		delete(r.prepared, quoted(s.sql))
	}
}

// quoted is the string in a statement.
func quoted(sql string) string {
	_, name, _ := strings.Cut(sql, "'")
	return strings.TrimSuffix(name, "'")
}

// watch asks for something that is wrong.
func (r *Run) watch(ctx context.Context, question string) error {
	if question == "" {
		return nil
	}
	sql, _ := fill(question, nil, r.world)
	o := ask(ctx, r.d.control, sql)
	for _, row := range o.Rows {
		r.Wrong = append(r.Wrong, fmt.Sprint(row...))
	}
	if o.Err != nil {
		return fmt.Errorf("%w, asked by %s", o.Err, sql)
	}
	return nil
}
