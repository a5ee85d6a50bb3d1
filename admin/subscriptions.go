package admin

import (
	"context"
	"encoding/json"
	"time"

	"github.com/posthorn/posthorn/internal/pg"
)

// Subscription selects events of a group: those that match a filter, or those for which a
// condition in SQL is true.
type Subscription struct {
	Filter      json.RawMessage // an object with type, stream, key, tags_any, tags_all and payload; without it, all events match
	Condition   string          // instead of a filter: an SQL expression over e and s
	Params      json.RawMessage // of the condition, an object
	ExpireAfter time.Duration   // it is removed when no worker has read the group for that long; 0: never
	Formerly    []string        // names that it had before: it takes over what is owed to them
}

// document is the subscription as the function subscribe reads it.
func (s Subscription) document() (string, error) {
	parts := map[string]json.RawMessage{} // as they are, so that numbers keep all their digits
	if len(s.Filter) > 0 {
		if err := json.Unmarshal(s.Filter, &parts); err != nil {
			return "", err
		}
	}
	fields := map[string]any{}
	for name, part := range parts {
		fields[name] = part
	}
	if s.Condition != "" {
		fields["conditions_sql"] = s.Condition
	}
	if len(s.Params) > 0 {
		fields["params"] = s.Params
	}
	if s.ExpireAfter != 0 {
		fields["expiry_interval"] = pg.Period(s.ExpireAfter)
	}
	document, err := json.Marshal(fields)
	return string(document), err
}

// Subscribe makes or changes a subscription of a group, and returns its id. It makes the
// group if there is none. The group then hands out only events that match one of its
// subscriptions.
func (a *Admin) Subscribe(ctx context.Context, group, name string, s Subscription) (id int64, err error) {
	document, err := s.document()
	if err != nil {
		return 0, pg.Translate("subscribe", err)
	}
	if err := a.checkSubscribe(ctx, group, name, s); err != nil {
		return 0, err
	}
	_, err = a.recorded(ctx, aSubscription(group, name).made(), entry{"put-subscription", group + " " + name, json.RawMessage(document)}, func(db DB) (n int64, err error) {
		id, err = pg.Value[int64](ctx, db, "subscribe", "select posthorn.subscribe($1::text, $2::text, $3::text, $4::jsonb, $5::text[])",
			a.namespace, group, name, document, append([]string{}, s.Formerly...))
		return 1, err
	})
	return id, err
}

// checkSubscribe refuses a subscription of a group that the caller may not use. A change
// can remove the subscription too, by an expiry.
func (a *Admin) checkSubscribe(ctx context.Context, group, name string, s Subscription) error {
	if err := a.checkCondition(s); err != nil {
		return err
	}
	if err := a.see(ctx, a.db, aSubscription(group, name).made()); err != nil {
		return err
	}
	if err := a.checkFilter(ctx, &s); err != nil {
		return err
	}
	for _, present := range append([]string{name}, s.Formerly...) {
		if err := unlessNew(a.checkRemove(ctx, group, &present)); err != nil {
			return err
		}
	}
	return a.checkRead(ctx, s)
}

// checkCondition refuses a condition of a caller who may write none.
func (a *Admin) checkCondition(s Subscription) error {
	if s.Condition != "" && !a.mayWriteConditions() {
		return pg.Refused("conditions in SQL need the scope admin", "Use a filter.")
	}
	return nil
}

// Unsubscribe removes a subscription of a group and its retries, and returns the number
// of the retries. Its dead letters stay.
func (a *Admin) Unsubscribe(ctx context.Context, group, name string) (owed int64, err error) {
	if err := a.see(ctx, a.db, aSubscription(group, name)); err != nil {
		return 0, err
	}
	if err := a.checkRemove(ctx, group, &name); err != nil {
		return 0, err
	}
	return changed[int64](ctx, a, aSubscription(group, name), entry{"delete-subscription", group + " " + name, nil}, "select posthorn.unsubscribe($1::text, $2::text, $3::text)", a.namespace, group, name)
}

// SubscriptionStatus is a subscription and its state.
type SubscriptionStatus struct {
	ID                 int64           `json:"id"`
	Name               string          `json:"name"`
	Filter             json.RawMessage `json:"filter,omitempty"` // none if there is a condition
	Condition          string          `json:"conditions_sql,omitempty"`
	Params             json.RawMessage `json:"params,omitempty"`               // of the condition
	ExpireAfterSeconds float64         `json:"expire_after_seconds,omitempty"` // 0: never
	ExpiresAt          time.Time       `json:"expires_at,omitzero"`            // unless a worker reads the group before
	CreatedAt          time.Time       `json:"created_at"`
	Owed               int64           `json:"owed"` // events that are retried for it, or published to it alone

	// State is active, stopped or catching up. A subscription is stopped when its
	// condition failed or took too long. When it catches up, it gets the events that it
	// missed meanwhile.
	State     string    `json:"state"`
	Error     string    `json:"error,omitempty"` // for which it was stopped
	StoppedAt time.Time `json:"stopped_at,omitzero"`
}

// Subscriptions returns the subscriptions of a group, by name.
func (a *Admin) Subscriptions(ctx context.Context, group string) ([]SubscriptionStatus, error) {
	if err := a.see(ctx, a.db, aGroup(group)); err != nil {
		return nil, err
	}
	g, err := pg.FindGroup(ctx, a.db, a.namespace, group)
	if err != nil {
		return nil, err
	}
	return rows[SubscriptionStatus](ctx, a.db, "list subscriptions", `
		select s.id, s.name,
			case when s.conditions_sql is null then s.params end as filter, s.conditions_sql,
			case when s.conditions_sql is not null then s.params end as params,
			extract(epoch from s.expiry_interval) as expire_after_seconds, s.expires_at, s.created_at, r.owed,
			case when s.stopped_at is not null then 'stopped'
				when exists (select from posthorn.stops x where x.subscription_id = s.id) then 'catching up'
				else 'active' end as state,
			case when h.wholly is null or s.error is null then s.error else '`+withheld+`' end as error, s.stopped_at
		from posthorn.subscriptions s
		left join (
			select x.subscription, count(*) as owed from posthorn.retries x where x.group_id = $1::bigint group by x.subscription
		) r on r.subscription = s.name
		left join (
			select x.name, bool_or(x.wholly) as wholly from posthorn.hidden_things($2::text, $3::text[]) x
			where x.kind in ('subscription', 'webhook') and x.of_group = $4::text group by x.name
		) h on h.name = s.name
		where s.group_no = $1::bigint and h.wholly is not true
		order by s.name`, g.ID, a.namespace, list(a.hidden), group)
}
