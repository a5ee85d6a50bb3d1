package consume

import (
	"maps"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/posthorn/posthorn/internal/pg"
)

// Routes knows the handlers of a group: those of this process, in the order in
// which they were registered, and the names of those that other live nodes have.
// It may change while it is used.
type Routes struct{ table atomic.Pointer[table] }

// table is an immutable state of Routes.
type table struct {
	handlers []*Handler
	others   []pg.Handler
	names    map[string]string // the present names of handlers that were renamed, as the database has them
	// Kinds of handlers in the table; workers choose how to run a lease by them.
	transactional, batches bool
}

// NewRoutes returns routes without handlers.
func NewRoutes() *Routes {
	r := &Routes{}
	r.table.Store(&table{})
	return r
}

// SetHandlers replaces the handlers of this process.
func (r *Routes) SetHandlers(handlers []*Handler) {
	r.change(func(t *table) { t.handlers = slices.Clone(handlers) })
}

// SetOthers replaces the handlers of other nodes. Handlers that this process has too
// are ignored. Names has the present names of handlers by former ones.
func (r *Routes) SetOthers(others []pg.Handler, names map[string]string) {
	r.change(func(t *table) { t.others, t.names = slices.Clone(others), maps.Clone(names) })
}

func (r *Routes) change(edit func(*table)) {
	for {
		old := r.table.Load()
		fresh := &table{handlers: old.handlers, others: old.others, names: old.names}
		edit(fresh)
		for _, h := range fresh.handlers {
			fresh.transactional = fresh.transactional || h.transactional()
			fresh.batches = fresh.batches || h.Batch != nil || h.BatchTx != nil
		}
		if r.table.CompareAndSwap(old, fresh) {
			return
		}
	}
}

func (t *table) named(name string) *Handler {
	for _, h := range t.handlers {
		if t.same(h.Name, name) || slices.Contains(h.Formerly, name) {
			return h
		}
	}
	return nil
}

func (t *table) elsewhere(name string) bool {
	return slices.ContainsFunc(t.others, func(o pg.Handler) bool { return t.same(o.Name, name) })
}

// same reports whether two names mean one handler: equal names, or one that was renamed.
func (t *table) same(a, b string) bool { return a == b || t.present(a) == t.present(b) }

func (t *table) present(name string) string {
	if now, ok := t.names[name]; ok {
		return now
	}
	return name
}

// route has the handlers of an event.
type route struct {
	plain         []*Handler
	transactional []*Handler
	elsewhere     []string // handlers that other nodes have
	unknown       []string // subscriptions without a known handler
}

func (r *route) empty() bool {
	return len(r.plain)+len(r.transactional)+len(r.elsewhere)+len(r.unknown) == 0
}

func (r *route) add(h *Handler) {
	if h.transactional() {
		r.transactional = append(r.transactional, h)
	} else {
		r.plain = append(r.plain, h)
	}
}

// router finds routes. One goroutine uses it. It caches the routes of types and of
// subscriptions until the table changes.
type router struct {
	routes *Routes
	table  *table
	byType map[string]*route
	byOwed map[string]*route
}

// refresh loads the current table. Workers call it once per lease, so that one table
// applies to the whole lease.
func (r *router) refresh() *table {
	if now := r.routes.table.Load(); now != r.table {
		r.table, r.byType, r.byOwed = now, map[string]*route{}, map[string]*route{}
	}
	return r.table
}

func (r *router) of(e *pg.Event) *route {
	if len(e.Subscriptions) > 0 {
		return r.owed(e)
	}
	if known, ok := r.byType[e.Type]; ok {
		return known
	}
	found := &route{}
	for _, h := range r.table.handlers {
		if MatchesAny(h.Patterns, e.Type) {
			found.add(h)
		}
	}
	for _, other := range r.table.others {
		name := r.table.present(other.Name)
		if r.table.named(name) == nil && r.table.named(other.Name) == nil && MatchesAny(other.Patterns, e.Type) &&
			!slices.Contains(found.elsewhere, name) {
			found.elsewhere = append(found.elsewhere, name)
		}
	}
	remember(r.byType, e.Type, found)
	return found
}

// remember caches a route. The size of the cache is limited, since there may be any
// number of types.
func remember(known map[string]*route, key string, found *route) {
	if len(known) == 1000 {
		clear(known)
	}
	known[key] = found
}

// owed returns the route of an event that names its subscriptions: those that match it
// or, at a retry, those that have failed. Their handlers get the event even if their
// patterns have changed since.
func (r *router) owed(e *pg.Event) *route {
	key := strings.Join(e.Subscriptions, "\n") // names have no line breaks
	if known, ok := r.byOwed[key]; ok {
		return known
	}
	found := &route{}
	mine := map[*Handler]bool{}
	for _, name := range e.Subscriptions {
		mine[r.table.named(name)] = true
	}
	for _, h := range r.table.handlers {
		if mine[h] {
			found.add(h)
		}
	}
	for _, name := range e.Subscriptions {
		switch {
		case r.table.named(name) != nil:
		case r.table.elsewhere(name):
			found.elsewhere = append(found.elsewhere, name)
		default:
			found.unknown = append(found.unknown, name)
		}
	}
	remember(r.byOwed, key, found)
	return found
}

// handedOver returns the route for when other nodes could not be asked: they may have
// the unknown handlers.
func (r *route) handedOver() *route {
	return &route{plain: r.plain, transactional: r.transactional, elsewhere: slices.Concat(r.elsewhere, r.unknown)}
}
