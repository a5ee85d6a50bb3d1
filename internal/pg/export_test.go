package pg

import (
	"time"

	"github.com/jackc/pgx/v5"
)

// LaterTimeline lets a connection look as if it had seen a later timeline, long ago.
func LaterTimeline(conn *pgx.Conn) {
	c := watchedOf(conn)
	i := *c.identity.Load()
	i.timeline, i.asked = i.timeline+1, time.Time{}
	c.identity.Store(&i)
	clusters.note(c.monitor.places, i, false)
}

// AskedAgo lets a connection look as if its server had been asked so long ago.
func AskedAgo(conn *pgx.Conn, ago time.Duration) {
	c := watchedOf(conn)
	i := *c.identity.Load()
	i.asked = time.Now().Add(-ago)
	c.identity.Store(&i)
}
