package posthorn

import (
	"context"
	"encoding/json"
	"time"

	"github.com/posthorn/posthorn/internal/pg"
)

// SubscriptionStatus is a subscription as it stands.
type SubscriptionStatus struct {
	Name      string
	Filter    json.RawMessage // nil: it has a condition
	Condition string
	Params    json.RawMessage // of the condition

	ExpireAfter time.Duration // 0: never
	ExpiresAt   time.Time     // unless the group is consumed before
	CreatedAt   time.Time
	Owed        int64 // events that it gets again, or alone

	State     SubscriptionState
	Error     string    // why it was stopped
	StoppedAt time.Time // zero: it was not
}

// SubscriptionState is how a subscription stands.
type SubscriptionState string

// The states of a subscription.
const (
	SubscriptionActive     SubscriptionState = "active"
	SubscriptionStopped    SubscriptionState = "stopped"     // its condition failed or took too long; what it misses is remembered
	SubscriptionCatchingUp SubscriptionState = "catching up" // with what it missed
)

// Subscriptions lists the subscriptions of a group, by name.
func (c *Client) Subscriptions(ctx context.Context, group string) ([]SubscriptionStatus, error) {
	found, err := pg.ListSubscriptions(ctx, c.control, c.namespace, group)
	if err != nil {
		return nil, err
	}
	subscriptions := make([]SubscriptionStatus, len(found))
	for i, s := range found {
		subscriptions[i] = SubscriptionStatus{
			Name: s.Name, Filter: s.Filter, Condition: s.Condition, Params: s.Params,
			ExpireAfter: time.Duration(s.ExpireAfterSeconds * float64(time.Second)), ExpiresAt: orZero(s.ExpiresAt),
			CreatedAt: s.CreatedAt, Owed: s.Owed,
			State: SubscriptionState(s.State), Error: s.Error, StoppedAt: orZero(s.StoppedAt),
		}
	}
	return subscriptions, nil
}

// Unsubscribe removes a subscription of a group, with what was owed to it, and
// returns how many events that were. Its dead letters stay.
func (c *Client) Unsubscribe(ctx context.Context, group, name string) (owed int64, err error) {
	return pg.Unsubscribe(ctx, c.control, c.namespace, group, name)
}
