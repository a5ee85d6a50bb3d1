package admin

import (
	"context"
	"encoding/json"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/posthorn/posthorn/internal/pg"
)

// By returns an Admin that records its changes in the audit log, in the transactions
// that make them, with the actor, the action and the number of things that it touched.
// Actor is the name of a person or of a token. The database handle must be able to begin
// transactions.
func (a *Admin) By(actor string) *Admin {
	other := *a
	other.actor = pg.Storable(actor)
	return &other
}

// Part returns an Admin whose changes are parts of an action in the audit log, see
// [Admin.BeginAction]. The entry of the action counts them.
func (a *Admin) Part(action int64) *Admin {
	other := *a
	other.action = action
	return &other
}

// Action is an entry of the audit log: an action of a person.
type Action struct {
	ID       int64           `json:"id"`
	At       time.Time       `json:"at"`
	Actor    string          `json:"actor"`
	Name     string          `json:"action" db:"action"` // as the HTTP API names it, such as redrive-dead-letters
	Subject  string          `json:"subject,omitempty"`  // the name or the number of the thing
	Detail   json.RawMessage `json:"detail"`             // the filter, or other arguments
	Expected *int64          `json:"expected,omitempty"` // the number of things to touch; nil: not counted
	Done     int64           `json:"done"`               // the number of things that it has touched
	MovedAt  time.Time       `json:"moved_at"`           // when they were counted last
	EndedAt  time.Time       `json:"ended_at,omitzero"`  // zero: it goes on, or its process has ended
	Error    string          `json:"error,omitempty"`    // why it ended early

	DatabaseUser string `json:"database_user"` // of the program that recorded it: a server records the actions of all its tokens
}

const selectActions = "select * from posthorn.list_actions($1::text, $2::bigint, $3::int, $4::bigint, $5::text[])"

// Actions returns a page of the audit log of the namespace, newest first: the entries
// before a number, or the newest for 0.
func (a *Admin) Actions(ctx context.Context, before int64, limit int) ([]Action, error) {
	return rows[Action](ctx, a.db, "list actions", selectActions, a.namespace, pg.Optional(before), limit, nil, list(a.hidden))
}

// Action returns an entry of the audit log.
func (a *Admin) Action(ctx context.Context, id int64) (Action, error) {
	found, err := rows[Action](ctx, a.db, "show action", selectActions, a.namespace, nil, 1, id, list(a.hidden))
	return only(a, found, err, "action", strconv.FormatInt(id, 10), "Entries are kept for partition_retention_period.")
}

// BeginAction records that the actor begins an action that is done in parts, and
// returns its number for [Admin.Part] and [Admin.EndAction]. Expected is the number of
// things that it will touch; 0: not known.
func (a *Admin) BeginAction(ctx context.Context, name, subject string, detail any, expected int64) (int64, error) {
	document, err := json.Marshal(detail)
	if err != nil {
		return 0, pg.Translate("begin action", err)
	}
	return pg.Value[int64](ctx, a.db, "begin action", `
		select posthorn.begin_action($1::text, $2::text, $3::text, $4::text, $5::jsonb, $6::bigint, null, $7::text[])`,
		a.namespace, a.actor, name, pg.Storable(subject), string(document), pg.Optional(expected), list(a.hidden))
}

// EndAction records that an action has ended. Reason says why it ended early, and is
// empty otherwise.
func (a *Admin) EndAction(ctx context.Context, id int64, reason string) error {
	return pg.Exec(ctx, a.db, "end action", "select posthorn.end_action($1::bigint, $2::text)", id, pg.Optional(pg.Storable(reason)))
}

// recorded makes a change to a thing that the caller sees, and returns the number of things
// that it has touched. If there is an actor, the change and its entry in the audit log are
// one transaction.
func (a *Admin) recorded(ctx context.Context, t thing, e entry, change func(db DB) (int64, error)) (int64, error) {
	if a.actor == "" {
		if err := a.see(ctx, a.db, t); err != nil {
			return 0, err
		}
		return change(a.db)
	}
	db, ok := a.db.(interface {
		Begin(ctx context.Context) (pgx.Tx, error)
	})
	if !ok {
		return 0, pg.Translate(e.verb(), pg.Invalid("it needs a pool, a connection or a transaction", "It records the change in the audit log."))
	}
	tx, err := db.Begin(ctx)
	if err != nil {
		return 0, pg.Translate(e.verb(), err)
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }() // nothing to do after a commit
	n, err := a.changeAndNote(ctx, tx, t, e, change)
	if err != nil {
		return 0, err
	}
	return n, pg.Translate(e.verb(), tx.Commit(ctx))
}

// changeAndNote notes the streams of a thing before and after the change, which may give
// it others.
func (a *Admin) changeAndNote(ctx context.Context, tx DB, t thing, e entry, change func(db DB) (int64, error)) (int64, error) {
	if err := a.see(ctx, tx, t); err != nil {
		return 0, err
	}
	before, err := a.streamsOf(ctx, tx, t)
	if err != nil {
		return 0, err
	}
	n, err := change(tx)
	if err != nil {
		return 0, err
	}
	after, err := a.streamsOf(ctx, tx, t)
	if err != nil {
		return 0, err
	}
	return n, a.note(ctx, tx, t, e, n, append(before, after...))
}

// Record records an action of another package on some streams, in the transaction of the
// database handle. Without an actor it does nothing.
func (a *Admin) Record(ctx context.Context, name, subject string, n int64, streams []string) error {
	if a.actor == "" {
		return nil
	}
	return a.note(ctx, a.db, thing{}, entry{name, subject, nil}, n, list(streams))
}

func (a *Admin) note(ctx context.Context, db DB, t thing, e entry, n int64, streams []string) error {
	if a.action != 0 {
		return pg.Exec(ctx, db, "count action", "select posthorn.count_action($1::bigint, $2::bigint)", a.action, n)
	}
	if e.detail == nil {
		e.detail = struct{}{}
	}
	document, err := json.Marshal(e.detail)
	if err != nil {
		return pg.Translate("record action", err)
	}
	return pg.Exec(ctx, db, "record action", `
		select posthorn.record_action($1::text, $2::text, $3::text, $4::text, $5::jsonb, $6::bigint, $7::text[], $8::text[], $9::text)`,
		a.namespace, a.actor, e.name, pg.Storable(e.subject), string(document), n, streams, list(a.hidden), pg.Optional(t.kind))
}

// entry is a change as the audit log shows it.
type entry struct {
	name    string // as the HTTP API names it
	subject string // the name or the number of the thing
	detail  any    // a JSON object; nil for none
}

// verb returns the name of the action for errors.
func (e entry) verb() string { return strings.ReplaceAll(e.name, "-", " ") }

// change runs a statement that changes one thing and returns nothing.
func (a *Admin) change(ctx context.Context, t thing, e entry, sql string, args ...any) error {
	_, err := a.recorded(ctx, t, e, func(db DB) (int64, error) {
		return 1, pg.Exec(ctx, db, e.verb(), sql, args...)
	})
	return err
}

// changed runs a statement that changes things and returns a value. A number is the number
// of things, and false stands for none.
func changed[T any](ctx context.Context, a *Admin, t thing, e entry, sql string, args ...any) (value T, err error) {
	_, err = a.recorded(ctx, t, e, func(db DB) (int64, error) {
		if value, err = pg.Value[T](ctx, db, e.verb(), sql, args...); err != nil {
			return 0, err
		}
		switch v := any(value).(type) {
		case int64:
			return v, nil
		case bool:
			if !v {
				return 0, nil
			}
		}
		return 1, nil
	})
	return value, err
}
