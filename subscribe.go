package posthorn

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/posthorn/posthorn/admin"
	"github.com/posthorn/posthorn/internal/consume"
	"github.com/posthorn/posthorn/internal/pg"
)

// Subscription is what is wanted of a group's events: those that pass Filter, or
// those of which Condition holds. The zero value wants all of them.
type Subscription struct {
	Filter Filter

	// Condition is an expression in SQL over e, the event (id, type, stream, key,
	// tags, payload and metadata as jsonb, created_at), and s.params. Leave Filter
	// out then. Making one takes the role posthorn_admin.
	Condition string
	// Params is what Condition compares with, and encodes as a JSON object.
	// Subscriptions with the same Condition and different Params are matched
	// together, however many there are. Default: {}.
	Params any

	// ExpireAfter removes the subscription when nobody has consumed its group for
	// that long, and the group with the last one: 10 seconds or more. Default:
	// it stays until [admin.Admin.Unsubscribe].
	ExpireAfter time.Duration
}

// Subscribed, in place of patterns, makes a handler that of the subscription
// that has its name: [Group.Subscribe] says what it wants, or posthorn groups
// subscribe has.
const Subscribed = "*subscribed*" // is no pattern

// Subscribe says what a subscription of the group wants. The database then finds
// the events for it, and hands out nothing of the group that none of its
// subscriptions wants. Register the handler under the same name afterwards, in
// whatever form:
//
//	billing.Subscribe("large", posthorn.Subscription{Filter: posthorn.Filter{Types: []string{"order.*"}}})
//	billing.Handle("large", posthorn.Subscribed, review)
//
// A group has subscriptions or handlers with patterns, not both. Without a
// handler the subscription is for [Group.Fetch].
//
// [Client.Run], or the first Fetch, makes it, or changes what it wants: whoever
// starts last changes it for all. It gets what the group has not read yet. A
// subscription that a program does not have any more stays, and its events become
// dead letters, until [admin.Admin.Unsubscribe].
func (g *Group) Subscribe(name string, want Subscription) {
	encoded, err := want.encode()
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case err != nil:
		err = fmt.Errorf("subscription %q: %w", name, err)
	case name == "" || len(name) > 255:
		err = invalid("a subscription needs a name of up to 255 bytes", "Give it one that stays the same for good.")
	case g.subscribes(name):
		err = invalid(fmt.Sprintf("subscription %q is there already", name), "Names are unique within a group.")
	default:
		g.subscriptions = append(g.subscriptions, &subscription{name: name, want: encoded})
	}
	if g.err == nil {
		g.err = err
	}
	g.wake()
}

// subscription is one that the program has.
type subscription struct {
	name string
	want admin.Subscription
	made bool // the database has it from us; guarded by the group's lock
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
		return encoded, invalid("both Filter and Condition are given", "Say in the condition what the filter says, or leave it out.")
	case s.Condition == "" && s.Params != nil:
		return encoded, invalid("Params are given without Condition", "Put what is wanted into Filter, or give the condition that reads them.")
	case s.ExpireAfter != 0 && s.ExpireAfter < 10*time.Second:
		return encoded, invalid("ExpireAfter must be 10 seconds or more", "It has to outlast a restart; leave it out for never.")
	}
	return encoded, nil
}

// subscribe sees to it that the database has what the program has: what is new,
// or all of it. A handler's subscription is made when it has the handler, so that
// none of its events finds nobody. What is ready is asked under the group's lock.
func (g *Group) subscribe(ctx context.Context, again bool, ready func(name string) bool) error {
	g.mu.Lock()
	var wanted []*subscription
	for _, s := range g.subscriptions {
		if ready(s.name) && (again || !s.made) {
			wanted = append(wanted, s)
		}
	}
	g.mu.Unlock()
	var wrong error
	for _, s := range wanted {
		_, err := g.client.Admin().In(g.client.control).Subscribe(ctx, g.name, s.name, s.want)
		switch {
		case err == nil:
			g.mu.Lock()
			s.made = true
			g.mu.Unlock()
		case !pg.IsFinal(err):
			return err
		case wrong == nil:
			wrong = fmt.Errorf("group %s: subscription %q: %w", g.name, s.name, err)
		}
	}
	return wrong
}

// subscribes reports whether the program says what a subscription wants. The
// caller holds the lock.
func (g *Group) subscribes(name string) bool {
	return slices.ContainsFunc(g.subscriptions, func(s *subscription) bool { return s.name == name })
}

// always makes subscriptions without handlers too.
func always(string) bool { return true }

// hasHandler wants the lock held.
func (g *Group) hasHandler(name string) bool {
	return slices.ContainsFunc(g.handlers, func(h *consume.Handler) bool { return h.Name == name })
}

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

// checkMix refuses a group in which some handlers are found by pattern, here, and
// others by subscription, in the database: there it would hand out nothing that is
// only for the former.
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
		fmt.Sprintf("handler %q has patterns, and %q is a subscription: events that no subscription wants would never reach the handler", byPattern, bySubscription),
		fmt.Sprintf("Subscribe %q too and register its handler with posthorn.Subscribed, or give it a group of its own.", byPattern)))
}

// checkReached refuses handlers that no event can reach: those of subscriptions
// that neither the program nor the group has, and those with patterns where the
// group has subscriptions by other names.
func (g *Group) checkReached(ctx context.Context, group pg.Group, filtered bool) error {
	g.mu.Lock()
	patterns := map[string][]string{}
	var names []string
	for _, h := range g.handlers {
		if (filtered || len(h.Patterns) == 0) && !g.subscribes(h.Name) {
			names = append(names, h.Name)
			patterns[h.Name] = h.Patterns
		}
	}
	g.mu.Unlock()
	if len(names) == 0 {
		return nil
	}
	found, err := pg.SubscriptionsNamed(ctx, g.client.control, group, names)
	if err != nil {
		return err
	}
	for _, name := range names {
		if !slices.Contains(found, name) {
			return fmt.Errorf("group %s: %w", g.name, unreached(g.name, name, patterns[name]))
		}
	}
	return nil
}

func unreached(group, name string, patterns []string) error {
	command := fmt.Sprintf("posthorn groups subscribe %s %s", group, name)
	if len(patterns) == 0 {
		return invalid(fmt.Sprintf("handler %q is for a subscription that is not there", name),
			"Call Subscribe before, or run: "+command)
	}
	for _, p := range patterns {
		command += fmt.Sprintf(" --type '%s'", p)
	}
	return invalid(
		fmt.Sprintf("handler %q would get nothing: the group hands out only what its subscriptions want, and none has that name", name),
		"Use Subscribe, or run: "+command+"; or give the handler another group.")
}

// keepSubscriptions keeps the group's subscriptions from expiring while it is
// consumed here, and notices when somebody has made the first one.
func (g *Group) keepSubscriptions(ctx context.Context, group pg.Group) error {
	filtered, err := pg.KeepSubscriptions(ctx, g.client.control, group)
	if err != nil || !filtered {
		return err
	}
	err = g.checkReached(ctx, group, filtered)
	said := ""
	if errors.Is(err, ErrInvalid) {
		said = err.Error()
		if said != g.complaint {
			g.client.log.Error("events are withheld from a handler", "group", g.name, "error", err, "hint", Hint(err))
		}
		err = nil
	}
	g.complaint = said
	return err
}
