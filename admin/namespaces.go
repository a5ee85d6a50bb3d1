package admin

import (
	"context"
	"encoding/json"
	"time"

	"github.com/posthorn/posthorn/internal/pg"
)

// Namespace separates one tenant of a database from the others.
type Namespace struct {
	Name      string          `json:"name" db:"namespace"`
	CreatedAt time.Time       `json:"created_at"`
	Metadata  json.RawMessage `json:"metadata"`

	ClosedAt time.Time `json:"closed_at,omitzero"` // it takes and hands out nothing since then
	MovedTo  string    `json:"moved_to,omitempty"` // where it goes on
	QuietAt  time.Time `json:"quiet_at,omitzero"`  // no transaction from before it was closed has been open since then

	DeletingAt time.Time `json:"deleting_at,omitzero"` // it is being deleted since then, and cannot be opened any more
}

// Namespaces returns all namespaces of the database, by name.
func (a *Admin) Namespaces(ctx context.Context) ([]Namespace, error) {
	return rows[Namespace](ctx, a.db, "list namespaces", `
		select namespace, created_at, metadata, closed_at, coalesce(moved_to, '') as moved_to, quiet_at, deleting_at from posthorn.namespaces
		where $1::text is null or namespace = $1::text order by namespace collate "C"`, a.boundTo())
}

// DefineNamespace makes the namespace, or replaces its metadata: a JSON object, or
// nil for none.
func (a *Admin) DefineNamespace(ctx context.Context, metadata json.RawMessage) error {
	return a.DefineNamespaceNamed(ctx, a.namespace, metadata)
}

// DefineNamespaceNamed is [Admin.DefineNamespace] for a namespace of any name. The audit log
// of that namespace has the entry.
func (a *Admin) DefineNamespaceNamed(ctx context.Context, name string, metadata json.RawMessage) error {
	return a.changeNamespace(ctx, name, entry{"define-namespace", name, nil}, "select posthorn.define_namespace($1::text, $2::json)",
		name, pg.Document(metadata))
}

// CloseNamespace closes a namespace that moves to another database, which movedTo names for
// people and programs; it may be empty. From then on every publish, enqueue and claim of it
// fails with posthorn.ErrMoved; work that has begun may end.
//
// CloseNamespace returns when nothing that began before can still commit. It waits for
// transactions from before at most as long as patience, and fails with posthorn.ErrConflict
// then: the namespace stays closed, and a second call waits again. The handle must not be a
// transaction.
func (a *Admin) CloseNamespace(ctx context.Context, name, movedTo string, patience time.Duration) error {
	const verb = "close namespace"
	if err := a.checkUnbound(verb); err != nil {
		return err
	}
	if err := a.checkStreamsNamed(ctx, verb, name); err != nil {
		return err
	}
	err := a.changeNamespace(ctx, name, entry{"close-namespace", name, struct {
		MovedTo string `json:"moved_to,omitempty"`
	}{movedTo}}, "select posthorn.close_namespace($1::text, $2::text)", name, pg.Optional(movedTo))
	if err != nil {
		return err
	}
	return pg.Exec(pg.Within(ctx, patience+pg.LeaseTime(0)), a.db, verb, "select posthorn.await_closed($1::text, $2::text::interval)", name, pg.Period(patience))
}

// OpenNamespace takes [Admin.CloseNamespace] back. It also opens the copy of a namespace in
// the database that it has moved to.
func (a *Admin) OpenNamespace(ctx context.Context, name string) error {
	const verb = "open namespace"
	if err := a.checkUnbound(verb); err != nil {
		return err
	}
	if err := a.checkStreamsNamed(ctx, verb, name); err != nil {
		return err
	}
	return a.changeNamespace(ctx, name, entry{"open-namespace", name, nil}, "select posthorn.open_namespace($1::text)", name)
}

// DeletedPart is the work of one call of [Admin.DeleteNamespace].
type DeletedPart struct {
	Part string `json:"part"`              // the table or the kind of thing; or what the deletion waits for
	Rows int64  `json:"rows" db:"deleted"` // about how many were deleted
	Done bool   `json:"done"`              // nothing of the namespace is left
}

// DeleteNamespace deletes a part of a closed namespace, about ten thousand rows, and says
// whether that was the last one. Call it until it is done: a process that ends before may leave the
// rest to another one. After the first call the namespace cannot be opened any more.
//
// The first part is recorded in the audit log of the namespace default, for those of the namespace
// are deleted with it. The handle must not be a transaction.
func (a *Admin) DeleteNamespace(ctx context.Context, name string) (DeletedPart, error) {
	const verb = "delete namespace"
	if err := a.checkUnbound(verb); err != nil {
		return DeletedPart{}, err
	}
	ctx = pg.Within(ctx, time.Minute)
	if err := a.checkStreamsNamed(ctx, verb, name); err != nil {
		return DeletedPart{}, err
	}
	begun, err := pg.Value[bool](ctx, a.db, verb, "select exists (select from posthorn.namespaces where namespace = $1::text and deleting_at is not null)", name)
	if err != nil {
		return DeletedPart{}, err
	}
	if begun {
		return deletePart(ctx, a.db, name)
	}
	other := *a
	other.namespace = "default"
	var deleted DeletedPart
	_, err = other.recorded(ctx, noStream, entry{"delete-namespace", name, nil}, func(db DB) (_ int64, err error) {
		deleted, err = deletePart(ctx, db, name)
		return 1, err
	})
	return deleted, err
}

func deletePart(ctx context.Context, db DB, name string) (DeletedPart, error) {
	found, err := rows[DeletedPart](ctx, db, "delete namespace", "select * from posthorn.delete_namespace($1::text)", name)
	if err != nil {
		return DeletedPart{}, err
	}
	return found[0], nil // it returns one row
}

// KeepNamespace is for the promoted copy of a database from which a namespace has moved. It
// opens the namespace, closes all others for good, and returns those: call [Admin.DeleteNamespace]
// for each until it is done. The namespace default is one of them; it stays, without what was in it. A second call
// returns those that are left.
//
// It fails with posthorn.ErrConflict in the database where the namespace was closed, and in a copy
// that was promoted before the close had reached it.
func (a *Admin) KeepNamespace(ctx context.Context, name string) ([]string, error) {
	const verb = "keep namespace"
	if err := a.checkUnbound(verb); err != nil {
		return nil, err
	}
	ctx = pg.Within(ctx, time.Minute)
	if err := a.checkStreamsNamed(ctx, verb, ""); err != nil {
		return nil, err
	}
	other := *a
	other.namespace = name
	var left []string
	_, err := other.recorded(ctx, noStream, entry{"keep-namespace", name, nil}, func(db DB) (n int64, err error) {
		left, err = pg.Value[[]string](ctx, db, verb, "select coalesce(array_agg(n), '{}') from posthorn.keep_namespace($1::text) n", name)
		return int64(len(left)), err
	})
	return left, err
}

// checkUnbound refuses a token that is valid in one namespace: whether a tenant moves is not decided by the tenant.
func (a *Admin) checkUnbound(verb string) error {
	if a.boundTo() == nil {
		return nil
	}
	return pg.Translate(verb, pg.Refused("a token that is valid in one namespace cannot close, open, keep or delete it", "Use posthorn namespaces, SQL, or a token that is valid in all."))
}

// checkStreamsNamed refuses a token that does not name each restricted stream of a namespace, or with "" of all.
func (a *Admin) checkStreamsNamed(ctx context.Context, verb, namespace string) error {
	if a.held == nil || a.held.ID == 0 {
		return nil
	}
	return pg.Exec(ctx, a.db, verb, "select posthorn.check_streams_named($1::text, $2::text[])", pg.Optional(namespace), a.held.Streams)
}

// changeNamespace changes a namespace of any name. The audit log of that namespace has the entry.
func (a *Admin) changeNamespace(ctx context.Context, name string, e entry, sql string, args ...any) error {
	if own := a.boundTo(); own != nil && *own != name {
		return pg.Translate(e.verb(), pg.Refused("the token is valid in its own namespace only", "Use posthorn namespaces, or SQL."))
	}
	other := *a
	other.namespace = name
	return other.change(ctx, noStream, e, sql, args...)
}

// CheckNamespace fails with posthorn.ErrNotFound when the namespace does not exist.
func (a *Admin) CheckNamespace(ctx context.Context) error {
	return pg.Exec(ctx, a.db, "look up namespace", "select posthorn.namespace_id($1::text)", a.namespace)
}
