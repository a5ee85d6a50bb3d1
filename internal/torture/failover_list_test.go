package torture

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/posthorn/posthorn"
)

// Kinds of violation of the list of lost events.
const (
	unlisted   = "lost and not listed"
	falseAlarm = "listed and not lost"
)

// listed waits until the list of what the last failover has lost is whole, and notes how long
// that took since a fault began.
func (f *failoverPart) listed(what string, began time.Time) {
	f.noted(what, began, func() (whole bool) {
		conn, err := pgx.Connect(f.ctx, f.database.url)
		if err != nil {
			return false
		}
		defer conn.Close(context.Background())
		err = conn.QueryRow(f.ctx, `
			select exists (select from posthorn.list_failovers('default') f where f.timeline = posthorn.timeline() and f.looked <> '{}')`).Scan(&whole)
		return err == nil && whole // the run ends sessions
	})
}

// checkList compares the list that Posthorn prints with the events that Redis and the
// importing database have and the log has not.
func (f *failoverPart) checkList(c *checker) (counts string) {
	c.kinds = append(c.kinds, unlisted, falseAlarm)
	gone := map[int64]int64{} // uid by id
	for _, e := range f.entries {
		if _, ok := f.log[e.id]; !ok {
			gone[e.id] = e.uid
		}
	}
	list := f.lostEvents(c)
	for id, uid := range gone {
		if list[id] != uid {
			c.report(unlisted, "Redis has event %d (message %d), and the log has not; the list has message %d", id, uid, list[id])
		}
	}
	for id, uid := range list {
		if _, ok := gone[id]; !ok {
			c.report(falseAlarm, "the list has event %d (message %d), which Redis has not or the log has", id, uid)
		}
	}
	effects, err := f.readEffects(f.t.Context())
	if err != nil {
		f.t.Error(err)
	}
	for _, id := range effects {
		_, kept := f.log[id]
		if _, ok := list[id]; !kept && !ok {
			c.report(unlisted, "the importing database has handled event %d, and the log has not", id)
		}
	}
	return fmt.Sprintf("; lost events of Redis that are listed %d of %d", len(list)-len(c.violations[falseAlarm]), len(gone))
}

// lostEvents returns the messages of the lost events that Posthorn lists, by their ids.
func (f *failoverPart) lostEvents(c *checker) map[int64]int64 {
	ctx := f.t.Context()
	ph, err := posthorn.Open(ctx, posthorn.Config{DatabaseURL: f.database.url, Logger: quiet()})
	if err != nil {
		f.t.Fatal(err)
	}
	defer ph.Close()
	failovers, err := ph.Admin().Failovers(ctx)
	if err != nil {
		f.t.Fatal(err)
	}
	list := map[int64]int64{}
	for _, failover := range failovers {
		if len(failover.NotLooked)+len(failover.Errors) > 0 {
			c.report(unlisted, "relays have not compared all after failover %d: %q, %q", failover.ID, failover.NotLooked, failover.Errors)
		}
		events, err := ph.Admin().LostEvents(ctx, failover.ID, math.MaxInt32)
		if err != nil {
			f.t.Fatal(err)
		}
		if int64(len(events)) != failover.Lost {
			c.report(falseAlarm, "failover %d has lost %d events, and %d are listed", failover.ID, failover.Lost, len(events))
		}
		for _, e := range events {
			if list[e.ID], err = uidIn(e.Payload); err != nil {
				f.t.Error(err)
			}
		}
	}
	return list
}
