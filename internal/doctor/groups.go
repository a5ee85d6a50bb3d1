package doctor

import (
	"context"
	"fmt"
	"time"

	"github.com/posthorn/posthorn/internal/pg"
)

// A group without a claim for that long has no worker. One that is read may be behind
// for longer: after a seek it reads old events.
const (
	unread      = 5 * time.Minute
	behind      = time.Hour
	groupsShown = 10
)

func groups(ctx context.Context, db pg.DB) ([]Finding, error) {
	backlogs, err := pg.Backlogs(ctx, db)
	if err != nil {
		return nil, err
	}
	var findings []Finding
	for _, b := range backlogs {
		who := fmt.Sprintf("group %s of namespace %s", word(b.Group), b.Namespace)
		switch {
		case b.Idle >= unread && !b.Leased:
			findings = append(findings, warn(
				fmt.Sprintf("%s has work, %d events to read, and nobody has claimed any for %s", who, b.Events, rough(b.Idle)),
				"start its workers, or: "+command(b.Namespace, "groups delete", b.Group)+"; retention keeps what it has not read"))
		case b.Oldest >= behind:
			findings = append(findings, warn(
				fmt.Sprintf("%s is read, but is %d events behind, the oldest of them from %s ago", who, b.Events, rough(b.Oldest)),
				"start more workers for it, unless it was sent back to old events"))
		}
	}
	return orOK(atMost(findings, groupsShown), wellRead(backlogs)), nil
}

func wellRead(backlogs []pg.Backlog) string {
	if len(backlogs) == 0 {
		return "none has work to do"
	}
	most := backlogs[0]
	for _, b := range backlogs {
		if b.Events > most.Events {
			most = b
		}
	}
	return fmt.Sprintf("%d have work, each with a claim in the last %s; group %s of namespace %s has most, %d events",
		len(backlogs), rough(unread), word(most.Group), most.Namespace, most.Events)
}

// atMost leaves out the findings after the first ones, and says how many.
func atMost(findings []Finding, shown int) []Finding {
	if more := len(findings) - shown; more > 0 {
		return append(findings[:shown:shown], Finding{Level: Worst(findings), Found: fmt.Sprintf("%d more like them", more)})
	}
	return findings
}
