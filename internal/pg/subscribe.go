package pg

import (
	"context"
	"encoding/json"
	"time"

	"github.com/jackc/pgx/v5"
)

// Subscription is what a subscriber of a group wants: what passes a filter, or
// that of which a condition in SQL holds.
type Subscription struct {
	Filter      json.RawMessage // an object; none lets everything pass
	Condition   string          // instead of a filter: an expression over e and s
	Params      json.RawMessage // of the condition, an object; default {}
	ExpireAfter time.Duration   // when its group was not read for so long, it is removed; 0 for never
}

// document is the subscription as the function subscribe reads it.
func (s Subscription) document() (string, error) {
	parts := map[string]json.RawMessage{}
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
		fields["expiry_interval"] = period(s.ExpireAfter)
	}
	document, err := json.Marshal(fields)
	return string(document), err
}

// Subscribe makes a subscription, or changes what it wants, and returns its id.
// The group is made if there is none.
func Subscribe(ctx context.Context, db DB, namespace, group, name string, s Subscription) (int64, error) {
	document, err := s.document()
	if err != nil {
		return 0, translate("subscribe", err)
	}
	return one[int64](ctx, db, "subscribe", "select posthorn.subscribe($1::text, $2::text, $3::text, $4::jsonb)",
		namespace, group, name, document)
}

// Unsubscribe removes a subscription with what was owed to it, and returns how
// much that was.
func Unsubscribe(ctx context.Context, db DB, namespace, group, name string) (int64, error) {
	return one[int64](Within(ctx, longTime), db, "unsubscribe", "select posthorn.unsubscribe($1::text, $2::text, $3::text)", namespace, group, name)
}

// KeepSubscriptions keeps the subscriptions of a group that is being read from
// expiring. It reports whether the group hands out only what one of them wants.
func KeepSubscriptions(ctx context.Context, db DB, group Group) (bool, error) {
	filtered, err := one[bool](ctx, db, "keep subscriptions", "select posthorn.keep_subscriptions($1::bigint)", group.ID)
	if p, ok := db.(*Pool); ok && filtered {
		p.filtered.Store(group.ID, true)
	}
	return filtered, err
}

// SubscriptionStatus is a subscription as it stands.
type SubscriptionStatus struct {
	ID                 int64           `json:"id"`
	Name               string          `json:"name"`
	Filter             json.RawMessage `json:"filter,omitempty"` // none: there is a condition
	Condition          string          `json:"conditions_sql,omitempty"`
	Params             json.RawMessage `json:"params,omitempty"`
	ExpireAfterSeconds float64         `json:"expire_after_seconds,omitempty"`
	ExpiresAt          *time.Time      `json:"expires_at,omitempty"`
	CreatedAt          time.Time       `json:"created_at"`
	Owed               int64           `json:"owed"`  // events that it gets again, or alone
	State              string          `json:"state"` // active, stopped, or catching up with what it missed
	Error              string          `json:"error,omitempty"`
	StoppedAt          *time.Time      `json:"stopped_at,omitempty"`
}

// ListSubscriptions returns the subscriptions of a group, by name.
func ListSubscriptions(ctx context.Context, db DB, namespace, group string) ([]SubscriptionStatus, error) {
	g, err := FindGroup(ctx, db, namespace, group)
	if err != nil {
		return nil, err
	}
	return list(ctx, db, "list subscriptions", pgx.RowToStructByPos[SubscriptionStatus], `
		select s.id, s.name,
			case when s.conditions_sql is null then s.params end, coalesce(s.conditions_sql, ''),
			case when s.conditions_sql is not null then s.params end,
			coalesce(extract(epoch from s.expiry_interval), 0)::float8, s.expires_at, s.created_at, coalesce(r.owed, 0),
			case when s.stopped_at is not null then 'stopped'
				when exists (select from posthorn.stops x where x.subscription_id = s.id) then 'catching up'
				else 'active' end,
			coalesce(s.error, ''), s.stopped_at
		from posthorn.subscriptions s
		left join (
			select x.subscription, count(*) as owed from posthorn.retries x where x.group_id = $1::bigint group by x.subscription
		) r on r.subscription = s.name
		where s.group_no = $1::bigint
		order by s.name`, g.ID)
}

// SubscriptionsNamed returns which of some names a group has subscriptions of.
func SubscriptionsNamed(ctx context.Context, db DB, group Group, names []string) ([]string, error) {
	return list(ctx, db, "look for subscriptions", pgx.RowTo[string],
		"select s.name from posthorn.subscriptions s where s.group_no = $1::bigint and s.name = any ($2::text[])", group.ID, names)
}
