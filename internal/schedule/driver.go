package schedule

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// Driver runs schedules one after another, on one server. It is not safe for concurrent use.
type Driver struct {
	server   *Server
	stops    bool // sessions stop at points
	database string
	control  *pgx.Conn   // moves the clock, sees who waits, holds the points
	conns    []*pgx.Conn // of the sessions, kept for the next schedule
	clock    int64
	ran      int // schedules in this database
}

// NewDriver returns a driver.
func NewDriver(server *Server) *Driver { return &Driver{server: server} }

// Use makes the schedules that follow use these files of functions in place of the original
// ones. With stops, they have points.
func (d *Driver) Use(ctx context.Context, stops bool, functions ...string) error {
	d.stops = stops
	d.Renew(ctx)
	return d.server.Apply(ctx, functions...)
}

// enough is how many schedules share a database. Each has a namespace of its own, and leaves
// dead rows.
const enough = 300

// begin prepares the database for a schedule, and returns the namespace.
func (d *Driver) begin(ctx context.Context, sc *Scenario) (string, error) {
	if d.control == nil || sc.Fresh || d.ran >= enough {
		if err := d.renew(ctx); err != nil {
			return "", err
		}
	}
	d.ran++
	if err := d.open(ctx, len(sc.Sessions)); err != nil {
		return "", err
	}
	if !sc.Fresh {
		if err := d.separate(ctx); err != nil {
			return "", err
		}
	}
	ns, slow := fmt.Sprintf("s%d", d.ran), 1
	if sc.Slow {
		slow = 2
	}
	_, err := d.control.Exec(ctx, fmt.Sprintf("select setval('sched.slow', %d); select posthorn.define_namespace('%s')", slow, ns))
	return ns, err
}

// separate moves the clock on: nothing of an earlier schedule is as new as this one. It ticks
// as upkeep does; without ticks, looks begin far back.
func (d *Driver) separate(ctx context.Context) error {
	if err := d.move(ctx, 15*time.Minute); err != nil {
		return err
	}
	if _, err := d.control.Exec(ctx, "select posthorn.tick()"); err != nil {
		return err
	}
	return d.move(ctx, 15*time.Minute)
}

// Renew makes the next schedule begin with a new database, which has the current functions.
func (d *Driver) Renew(ctx context.Context) {
	d.Close(ctx)
	d.control, d.conns = nil, nil
}

// Close closes the connections.
func (d *Driver) Close(ctx context.Context) {
	for _, c := range d.conns {
		c.Close(ctx)
	}
	if d.control != nil {
		d.control.Close(ctx)
	}
}

func (d *Driver) renew(ctx context.Context) (err error) {
	d.Renew(ctx)
	if d.database, err = d.server.database(ctx, d.database); err != nil {
		return err
	}
	if d.control, err = d.server.connect(ctx, d.database, "control"); err != nil {
		return err
	}
	d.ran, d.clock = 0, noon
	return d.move(ctx, 0)
}

// open makes that many connections of sessions, with the settings of new ones.
func (d *Driver) open(ctx context.Context, sessions int) error {
	for i := range sessions {
		if i == len(d.conns) {
			d.conns = append(d.conns, nil)
		}
		if d.conns[i] == nil || d.conns[i].IsClosed() {
			if err := d.reopen(ctx, i); err != nil {
				return err
			}
		} else if _, err := d.conns[i].Exec(ctx, "reset all"); err != nil {
			return err
		}
	}
	return nil
}

func (d *Driver) reopen(ctx context.Context, i int) (err error) {
	name := ""
	if d.stops {
		name = fmt.Sprint(i)
	}
	d.conns[i], err = d.server.connect(ctx, d.database, name)
	return err
}

// crash kills the server, and connects the control connection again. Unlogged sequences
// begin again.
func (d *Driver) crash(ctx context.Context) (err error) {
	if err = d.server.crash(ctx); err != nil {
		return err
	}
	if d.control, err = d.server.connect(ctx, d.database, "control"); err != nil {
		return err
	}
	return d.move(ctx, 0)
}
