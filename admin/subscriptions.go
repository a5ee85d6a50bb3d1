package admin

import (
	"context"
	"encoding/json"
	"time"

	"github.com/posthorn/posthorn/internal/pg"
)

// Subscription is what a subscriber of a group wants: the events that pass a filter,
// or those of which a condition in SQL holds.
type Subscription struct {
	Filter      json.RawMessage // an object with type, stream, key, tags_any, tags_all and payload; none lets everything pass
	Condition   string          // instead of a filter: an expression over e and s
	Params      json.RawMessage // of the condition, an object
	ExpireAfter time.Duration   // it is removed when its group was not consumed for so long; 0: never
}

// document is the subscription as the function subscribe reads it.
func (s Subscription) document() (string, error) {
	parts := map[string]json.RawMessage{} // verbatim: numbers keep all their digits
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

// Subscribe makes a subscription of a group, or changes what it wants, and returns its
// id. The group is made if there is none, and hands out only what one of its
// subscriptions wants.
func (a *Admin) Subscribe(ctx context.Context, group, name string, s Subscription) (id int64, err error) {
	document, err := s.document()
	if err != nil {
		return 0, pg.Translate("subscribe", err)
	}
	_, err = a.recorded(ctx, entry{"put-subscription", group + " " + name, json.RawMessage(document)}, func(db DB) (n int64, err error) {
		id, err = pg.Value[int64](ctx, db, "subscribe", "select posthorn.subscribe($1::text, $2::text, $3::text, $4::jsonb)",
			a.namespace, group, name, document)
		return 1, err
	})
	return id, err
}

// Unsubscribe removes a subscription of a group with the events that were owed to it,
// and returns how many those were. Its dead letters stay.
func (a *Admin) Unsubscribe(ctx context.Context, group, name string) (owed int64, err error) {
	return changed[int64](ctx, a, entry{"delete-subscription", group + " " + name, nil}, "select posthorn.unsubscribe($1::text, $2::text, $3::text)", a.namespace, group, name)
}

// SubscriptionStatus is a subscription as it stands.
type SubscriptionStatus struct {
	ID                 int64           `json:"id"`
	Name               string          `json:"name"`
	Filter             json.RawMessage `json:"filter,omitempty"` // none: there is a condition
	Condition          string          `json:"conditions_sql,omitempty"`
	Params             json.RawMessage `json:"params,omitempty"`               // of the condition
	ExpireAfterSeconds float64         `json:"expire_after_seconds,omitempty"` // 0: never
	ExpiresAt          time.Time       `json:"expires_at,omitzero"`            // unless the group is consumed before
	CreatedAt          time.Time       `json:"created_at"`
	Owed               int64           `json:"owed"` // events that it gets again, or alone

	// State is active, stopped or catching up. It is stopped when its condition
	// failed or took too long; what it misses meanwhile is remembered.
	State     string    `json:"state"`
	Error     string    `json:"error,omitempty"` // why it was stopped
	StoppedAt time.Time `json:"stopped_at,omitzero"`
}

// Subscriptions returns the subscriptions of a group, by name.
func (a *Admin) Subscriptions(ctx context.Context, group string) ([]SubscriptionStatus, error) {
	g, err := pg.FindGroup(ctx, a.db, a.namespace, group)
	if err != nil {
		return nil, err
	}
	return pg.Rows[SubscriptionStatus](ctx, a.db, "list subscriptions", `
		select s.id, s.name,
			case when s.conditions_sql is null then s.params end as filter, s.conditions_sql,
			case when s.conditions_sql is not null then s.params end as params,
			extract(epoch from s.expiry_interval) as expire_after_seconds, s.expires_at, s.created_at, r.owed,
			case when s.stopped_at is not null then 'stopped'
				when exists (select from posthorn.stops x where x.subscription_id = s.id) then 'catching up'
				else 'active' end as state,
			s.error, s.stopped_at
		from posthorn.subscriptions s
		left join (
			select x.subscription, count(*) as owed from posthorn.retries x where x.group_id = $1::bigint group by x.subscription
		) r on r.subscription = s.name
		where s.group_no = $1::bigint
		order by s.name`, g.ID)
}
