package posthorn

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/posthorn/posthorn/admin"
	"github.com/posthorn/posthorn/internal/consume"
	"github.com/posthorn/posthorn/internal/pg"
)

// Subscription selects events of a group: those that pass Filter, or those for which
// Condition is true. The zero value selects all events.
type Subscription struct {
	Filter Filter

	// Condition is an expression in SQL over e, the event (id, type, stream, key,
	// tags, payload and metadata as jsonb, created_at), and s.params. It excludes
	// Filter. Creating one needs the role posthorn_admin.
	Condition string
	// Params is the value of s.params, and encodes as a JSON object. Subscriptions with
	// the same Condition and different Params are evaluated together, however many there
	// are. Default: {}.
	Params any

	// ExpireAfter removes the subscription after its group had no consumer for that
	// time, and the group with its last subscription: 10 seconds or more. Default: the
	// subscription stays until [admin.Admin.Unsubscribe].
	ExpireAfter time.Duration
}

// Subscribed, in place of patterns, registers a handler for the subscription with the
// handler's name, which [Group.Subscribe] or posthorn groups subscribe has created.
const Subscribed = "*subscribed*" // not a valid pattern

// Subscribe gives the group a subscription. The database then finds the matching events,
// and skips the events of the log that match no subscription of the group. Register the
// handler under the same name afterwards, of any kind:
//
//	billing.Subscribe("large", posthorn.Subscription{Filter: posthorn.Filter{Types: []string{"order.*"}}})
//	billing.Handle("large", posthorn.Subscribed, review)
//
// A group has subscriptions or handlers with patterns, not both. Without a handler the
// subscription is for [Group.Fetch].
//
// [Client.Run], or the first Fetch, creates the subscription, or changes the existing
// one: the most recently started process sets it for all processes. The subscription
// applies to events that the group has not read yet. A subscription that the program no
// longer has stays in the database, and its events become dead letters, until
// [admin.Admin.Unsubscribe].
func (g *Group) Subscribe(name string, selection Subscription) {
	encoded, err := selection.encode()
	defer g.client.wake() // an error makes the group ready
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case err != nil:
		err = fmt.Errorf("subscription %q: %w", name, err)
	case name == "" || len(name) > 255:
		err = invalid("a subscription needs a name of up to 255 bytes", "Give it a name that never changes.")
	case g.hasSubscription(name):
		err = invalid(fmt.Sprintf("subscription %q is registered twice", name), "Names are unique within a group.")
	default:
		encoded.Formerly = g.config.Formerly[name]
		g.subscriptions = append(g.subscriptions, &subscription{name: name, selection: encoded})
	}
	if g.err == nil {
		g.err = err
	}
	g.notifyChange()
}

// subscription is a subscription that this program has registered.
type subscription struct {
	name      string
	selection admin.Subscription
	saved     bool // in the database, by this client; guarded by the group's lock
}

func (s Subscription) encode() (admin.Subscription, error) {
	encoded := admin.Subscription{Condition: s.Condition, ExpireAfter: s.ExpireAfter}
	var err error
	if encoded.Filter, err = json.Marshal(s.Filter); err != nil {
		return encoded, invalid(fmt.Sprintf("filter: %v", err), "Give a Payload that encodes as JSON.")
	}
	if s.Params != nil {
		if encoded.Params, err = json.Marshal(s.Params); err != nil {
			return encoded, invalid(fmt.Sprintf("params: %v", err), "Give a value that encodes as a JSON object.")
		}
	}
	switch {
	case s.Condition != "" && string(encoded.Filter) != "{}":
		return encoded, invalid("both Filter and Condition are given", "Express the filter as a part of the condition, or leave the condition out.")
	case s.Condition == "" && s.Params != nil:
		return encoded, invalid("Params are given without Condition", "Leave Params out, or give the condition that reads them.")
	case s.ExpireAfter != 0 && s.ExpireAfter < 10*time.Second:
		return encoded, invalid("ExpireAfter must be 10 seconds or more", "It must be longer than a restart takes; leave it out for no expiry.")
	}
	return encoded, nil
}

// saveSubscriptions creates or changes the subscriptions in the database: those that are
// not saved yet, or all. A subscription with a handler is ready when the handler is
// registered, since its events need the handler. The caller of ready holds the lock.
func (g *Group) saveSubscriptions(ctx context.Context, all bool, ready func(name string) bool) error {
	g.mu.Lock()
	var unsaved []*subscription
	for _, s := range g.subscriptions {
		if ready(s.name) && (all || !s.saved) {
			unsaved = append(unsaved, s)
		}
	}
	g.mu.Unlock()
	var refused error
	for _, s := range unsaved {
		_, err := g.client.Admin().In(g.client.control).Subscribe(ctx, g.name, s.name, s.selection)
		switch {
		case err == nil:
			g.mu.Lock()
			s.saved = true
			g.mu.Unlock()
		case !pg.IsFinal(err):
			return err
		case refused == nil:
			refused = fmt.Errorf("group %s: subscription %q: %w", g.name, s.name, err)
		}
	}
	return refused
}

// hasSubscription reports whether the program has registered a subscription. The caller
// holds the lock.
func (g *Group) hasSubscription(name string) bool {
	return slices.ContainsFunc(g.subscriptions, func(s *subscription) bool { return s.name == name })
}

// hasHandler reports whether the program has registered a handler. The caller holds the
// lock.
func (g *Group) hasHandler(name string) bool {
	return slices.ContainsFunc(g.handlers, func(h *consume.Handler) bool { return h.Name == name })
}

// withoutHandler returns the subscriptions that have no handler.
func (g *Group) withoutHandler() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	var names []string
	for _, s := range g.subscriptions {
		if !g.hasHandler(s.name) {
			names = append(names, s.name)
		}
	}
	return names
}

// unknownNames returns the names in Formerly that no handler and no subscription has.
func (g *Group) unknownNames() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	var names []string
	for _, name := range slices.Sorted(maps.Keys(g.config.Formerly)) {
		if !g.hasHandler(name) && !g.hasSubscription(name) {
			names = append(names, name)
		}
	}
	return names
}

// checkMix refuses a group with both patterns and subscriptions: the database delivers
// only events that match a subscription, so handlers with patterns would miss events.
func (g *Group) checkMix() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	var byPattern, bySubscription string
	for _, h := range g.handlers {
		if len(h.Patterns) > 0 {
			byPattern = h.Name
		} else {
			bySubscription = h.Name
		}
	}
	for _, s := range g.subscriptions {
		bySubscription = s.name
	}
	if byPattern == "" || bySubscription == "" {
		return nil
	}
	return fmt.Errorf("group %s: %w", g.name, invalid(
		fmt.Sprintf("handler %q has patterns, and %q is a subscription: events that match no subscription would never reach the handler", byPattern, bySubscription),
		fmt.Sprintf("Subscribe %q too and register its handler with posthorn.Subscribed, or give it a group of its own.", byPattern)))
}

// checkReachable refuses handlers that no event can reach: a handler of a subscription
// that neither the program nor the database has, and a handler with patterns in a group
// that has subscriptions but none with the handler's name. The database has said which
// handlers have no subscription there.
func (g *Group) checkReachable(missing []string) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, h := range g.handlers {
		if slices.Contains(missing, h.Name) && !g.hasSubscription(h.Name) {
			return fmt.Errorf("group %s: %w", g.name, unreachable(g.name, h.Name, h.Patterns))
		}
	}
	return nil
}

func unreachable(group, name string, patterns []string) error {
	command := fmt.Sprintf("posthorn groups subscribe %s %s", group, name)
	if len(patterns) == 0 {
		return invalid(fmt.Sprintf("handler %q is for a subscription that does not exist", name),
			"Call Subscribe first, or run: "+command)
	}
	for _, p := range patterns {
		command += fmt.Sprintf(" --type '%s'", p)
	}
	return invalid(
		fmt.Sprintf("handler %q would get no events: the group has subscriptions, and none of them has the name of the handler", name),
		"Call Subscribe first, or run: "+command+"; or move the handler to another group.")
}

// keepReachable notices when an operator has created the first subscription of the group, and handlers get no events.
func (g *Group) keepReachable(missing []string) {
	err := g.checkReachable(missing)
	if err == nil {
		g.reported = ""
	} else if text := err.Error(); text != g.reported {
		g.reported = text
		g.client.log.Error("a handler gets no events", "group", g.name, "error", err, "hint", Hint(err))
	}
}
