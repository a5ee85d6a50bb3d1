package doctor

import (
	"context"
	"fmt"
	"time"

	"github.com/posthorn/posthorn/internal/pg"
)

// While a transaction that has published is open, groups look for its events
// again and again; and while any is, vacuum removes nothing.
const (
	heldLong    = time.Minute
	heldTooLong = time.Hour
)

func heldBack(ctx context.Context, db pg.DB) ([]Finding, error) {
	s, err := pg.ServerState(ctx, db)
	if err != nil {
		return nil, err
	}
	oldest, err := pg.OldestTransaction(ctx, db)
	if err != nil {
		return nil, err
	}
	var findings []Finding
	if !s.SeesOthers {
		findings = append(findings, warn("this role is not shown the transactions of others",
			"grant pg_read_all_stats to it"))
	}
	for _, t := range oldest {
		if t.Age < heldLong {
			continue
		}
		finding := warn
		if t.Age >= heldTooLong {
			finding = fail
		}
		if t.PID == nil {
			findings = append(findings, finding(fmt.Sprintf("%s has been open for %s", t.Application, rough(t.Age)),
				"commit prepared or rollback prepared it"))
			continue
		}
		findings = append(findings, finding(
			fmt.Sprintf("a transaction of %q, pid %d, has been open for %s", t.Application, *t.PID, rough(t.Age)),
			fmt.Sprintf("end it: select pg_terminate_backend(%d); set idle_in_transaction_session_timeout against the next", *t.PID)))
	}
	return orOK(findings, "no transaction has been open for "+rough(heldLong)), nil
}

func partitions(ctx context.Context, db pg.DB) ([]Finding, error) {
	u, err := pg.UpkeepState(ctx, db)
	if err != nil {
		return nil, err
	}
	const advice = "run posthorn up or another node that tends the log, or now and then: select * from posthorn.maintain_events_table()"
	var findings []Finding
	if u.CoveredFor < 0 {
		findings = append(findings, fail("partitions have run out: events go to events_default", advice))
	} else if u.CoveredFor < u.Interval/2 {
		findings = append(findings, warn("partitions run out in "+rough(u.CoveredFor), advice))
	}
	if u.DefaultEvents > 0 {
		findings = append(findings, warn(fmt.Sprintf("%s in events_default, outside of every partition", count(u.DefaultEvents, 10000, "event")), advice))
	}
	return orOK(findings, "made for the next "+rough(u.CoveredFor)), nil
}

// count says "at least" where counting stopped at a limit.
func count(n, limit int, what string) string {
	if n != 1 {
		what += "s"
	}
	if n >= limit {
		return fmt.Sprintf("at least %d %s", n, what)
	}
	return fmt.Sprintf("%d %s", n, what)
}

// Upkeep looks after partitions hourly, so what is older was not done at all.
const (
	untended = 2 * time.Hour
	overdue  = 10 * time.Second
)

func upkeep(ctx context.Context, db pg.DB) ([]Finding, error) {
	u, err := pg.UpkeepState(ctx, db)
	if err != nil {
		return nil, err
	}
	const advice = "run posthorn up or another node that tends the log, or every second: select posthorn.tend()"
	switch {
	case u.Overdue > overdue:
		return []Finding{fail("delayed events have been due for "+rough(u.Overdue), advice)}, nil
	case u.MaintainedAgo < 0:
		return []Finding{warn("nobody has ever tended the log", advice)}, nil
	case u.MaintainedAgo > untended:
		return []Finding{warn("nobody has tended the log for "+rough(u.MaintainedAgo), advice)}, nil
	default:
		return []Finding{ok("the partitions were looked after " + rough(u.MaintainedAgo) + " ago, and no delayed event is overdue")}, nil
	}
}

const stoppedShown = 10

func subscriptions(ctx context.Context, db pg.DB) ([]Finding, error) {
	stopped, err := pg.StoppedSubscriptions(ctx, db, stoppedShown+1)
	if err != nil {
		return nil, err
	}
	var findings []Finding
	for _, s := range stopped[:min(len(stopped), stoppedShown)] {
		findings = append(findings, warn(
			fmt.Sprintf("%s of group %s in namespace %s was stopped at %s: %s", word(s.Name), word(s.Group), s.Namespace, s.At.Format(time.RFC3339), s.Error),
			"mend its condition: "+command(s.Namespace, "groups subscribe", s.Group, s.Name)+"; it then gets what it missed"))
	}
	if len(stopped) > stoppedShown {
		findings = append(findings, warn("there are more like them", "list them: select * from posthorn.subscriptions where stopped_at is not null"))
	}
	return orOK(findings, "none is stopped"), nil
}

// Rows of these tables live for seconds. A table that is large and mostly dead
// is one that vacuum does not get at.
const (
	deadRows    = 100_000
	deadPerLive = 10
)

func bloat(ctx context.Context, db pg.DB) ([]Finding, error) {
	tables, err := pg.BusyTables(ctx, db)
	if err != nil {
		return nil, err
	}
	var findings []Finding
	for _, t := range tables {
		if t.Dead > deadRows && t.Dead > deadPerLive*t.Live {
			findings = append(findings, warn(
				fmt.Sprintf("posthorn.%s has %d dead rows beside %d live ones, in %d MB", t.Name, t.Dead, t.Live, t.Bytes>>20),
				"end transactions that have been open for long, then: vacuum posthorn."+t.Name))
		}
	}
	return orOK(findings, "no table is mostly dead rows"), nil
}
