package torture

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// group is a group of the log, with the policy of its workers.
type group struct {
	namespace string
	name      string
	order     string
	attempts  int
	blocks    bool   // a failure blocks its slot
	config    string // config of define_group, without order, attempts and on_failure
	fromStart bool   // starts at the beginning of the log

	id      int64
	defined moment // from this moment on every event is owed to the group
}

const (
	quickRetries = `"backoff": {"from": "2 ms", "to": "40 ms"}`
	slowRetries  = `"backoff": {"from": "50 ms", "to": "300 ms"}`
)

// initialGroups are defined before the first event.
func initialGroups() []*group {
	return []*group{
		{namespace: "default", name: "none", order: "none", attempts: 4, config: quickRetries},
		{namespace: "default", name: "none-once", order: "none", attempts: 1, config: quickRetries},
		{namespace: "default", name: "delays", order: "none", attempts: 3, config: `"delays": ["1 ms", "30 ms"]`},
		{namespace: "default", name: "key", order: "key", attempts: 4, blocks: true, config: slowRetries + `, "slots": 4`},
		{namespace: "default", name: "key-aside", order: "key", attempts: 3, config: quickRetries + `, "slots": 16`},
		{namespace: "default", name: "stream", order: "stream", attempts: 3, blocks: true, config: slowRetries},
		{namespace: "default", name: "total", order: "total", attempts: 3, blocks: true, config: quickRetries},
		{namespace: "default", name: "total-aside", order: "total", attempts: 2, config: quickRetries},
		{namespace: "other", name: "none", order: "none", attempts: 3, config: quickRetries},
		{namespace: "other", name: "total", order: "total", attempts: 3, blocks: true, config: quickRetries},
	}
}

// lateGroups are defined while events are being published.
func lateGroups() []*group {
	return []*group{
		{namespace: "default", name: "late", order: "none", attempts: 3, config: quickRetries},
		{namespace: "default", name: "late-total", order: "total", attempts: 3, blocks: true, config: quickRetries},
		{namespace: "default", name: "late-all", order: "none", attempts: 3, fromStart: true, config: quickRetries},
		{namespace: "default", name: "late-all-key", order: "key", attempts: 3, fromStart: true, blocks: true, config: quickRetries},
	}
}

// define defines a group and starts its workers.
func (l *logPart) define(ctx context.Context, conn *pgx.Conn, g *group) error {
	onFailure, start := "set_aside", "now"
	if g.blocks {
		onFailure = "block"
	}
	if g.fromStart {
		start = "beginning"
	}
	config := fmt.Sprintf(`{"order": %q, "attempts": %d, "on_failure": %q, "start": %q, %s}`, g.order, g.attempts, onFailure, start, g.config)
	err := conn.QueryRow(ctx, "select posthorn.define_group($1, $2, $3::text::jsonb)", g.namespace, g.name, config).Scan(&g.id)
	if err != nil {
		return fmt.Errorf("define group %s: %w", g, err)
	}
	g.defined = l.record.now()
	l.mu.Lock()
	l.groups = append(l.groups, g)
	l.mu.Unlock()
	for i := range workersPerGroup {
		w := l.newWorker(g, i)
		l.clients.Go(func() { w.work(l.ctx) })
	}
	return nil
}

// String names the group in the report.
func (g *group) String() string { return "group " + g.namespace + "/" + g.name }

// unit returns the events with which the group keeps an event in order: all events,
// or those of its key or stream. A slot may contain several units.
func (g *group) unit(stream string, key *string) string {
	switch {
	case g.order == "total":
		return "all"
	case g.order == "stream":
		return stream
	case g.order == "key" && key != nil:
		return *key
	}
	return "" // unordered
}

// maxDeliveries is the largest number of deliveries of an event. Under any policy,
// two workers may die with a batch before it is split, and each event is then
// delivered once more, alone.
func (g *group) maxDeliveries() int { return g.attempts + 2 }
