package torture

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/admin"
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
			select exists (select from posthorn.list_failovers('default') f where f.timeline = posthorn.timeline() and f.looked <> '{}' and f.not_looked = '{}')`).Scan(&whole)
		return err == nil && whole // the run ends sessions
	})
	f.t.Log(f.looks(began))
}

// looks says when the last failover was noted and when each relay and archive was compared with the log, since a fault began.
func (f *failoverPart) looks(began time.Time) (text string) {
	conn, err := pgx.Connect(f.ctx, f.database.url)
	if err != nil {
		return err.Error()
	}
	defer conn.Close(context.Background())
	err = conn.QueryRow(f.ctx, `
		with m as (select next_id, at from posthorn.moves order by next_id desc limit 1)
		select string_agg(concat(name, ' after ', round(extract(epoch from at - $1::timestamptz)::numeric, 1), ' s'), ', ' order by at)
		from (
			select 'noted' as name, at from m
			union all
			select g.name, l.looked_at from m join posthorn.lost_looks l using (next_id) join posthorn.groups g on g.id = l.group_id) x`, began).Scan(&text)
	if err != nil {
		return err.Error()
	}
	return "failover " + text
}

// checkList compares the list that Posthorn prints with the events that the brokers, the archive and
// the importing database have and the log has not.
func (f *failoverPart) checkList(c *checker) (counts string) {
	c.kinds = append(c.kinds, unlisted, falseAlarm)
	list := f.lostEvents(c)
	gone := map[int64]int64{} // uid by id
	for _, place := range f.sources {
		found := 0
		for id, uid := range f.goneFrom(place) {
			if gone[id] = uid; list[id] == uid {
				found++
			} else {
				c.report(unlisted, "%s has event %d (message %d), and the log has not; the list has message %d", place, id, uid, list[id])
			}
		}
		counts += fmt.Sprintf("; lost events of %s that are listed %d of %d", place, found, len(f.goneFrom(place)))
	}
	for id, uid := range list {
		if _, ok := gone[id]; !ok {
			c.report(falseAlarm, "the list has event %d (message %d), which neither a broker nor the archive has, or the log has", id, uid)
		}
	}
	for _, place := range f.places {
		if place.name != imported {
			continue
		}
		for id := range f.goneFrom(place) {
			if _, ok := list[id]; !ok {
				c.report(unlisted, "the importing database has handled event %d, and the log has not", id)
			}
		}
		if gone, lost := len(f.goneFrom(place)), f.compareImport(); lost < int64(gone) {
			c.report(unlisted, "the importing database has %d events that the log has not, and the comparison with it finds %d", gone, lost)
		}
	}
	return counts
}

// goneFrom returns the messages of the events that a place has and the log has not, by their ids.
func (f *failoverPart) goneFrom(place *place) map[int64]int64 {
	gone := map[int64]int64{}
	for _, e := range place.entries {
		if _, ok := f.log[e.id]; !ok {
			gone[e.id] = e.uid
		}
	}
	return gone
}

// compareImport returns the number of events that the importing database has and the log has lost, as
// Posthorn finds them there.
func (f *failoverPart) compareImport() (lost int64) {
	ctx := f.t.Context()
	ph, err := posthorn.Open(ctx, posthorn.Config{DatabaseURL: f.database.url, Logger: quiet()})
	if err != nil {
		f.t.Fatal(err)
	}
	defer ph.Close()
	there, err := pgx.Connect(ctx, f.consumers)
	if err != nil {
		f.t.Fatal(err)
	}
	defer there.Close(context.Background())
	failovers, err := ph.Admin().Failovers(ctx)
	if err != nil {
		f.t.Fatal(err)
	}
	for _, failover := range failovers {
		found, err := ph.Admin().CompareImport(ctx, failover.ID, admin.Importer{DB: there, Namespace: importNamespace, Place: "import"})
		if err != nil {
			f.t.Fatal(err)
		}
		lost += found.Lost
	}
	return lost
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
			c.report(unlisted, "relays or the archive have not compared all after failover %d: %q, %q", failover.ID, failover.NotLooked, failover.Errors)
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
