package pg

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// Finding is a result of one check of the installation.
type Finding struct {
	Check     string `json:"check"`
	Level     string `json:"level"` // ok, warn or fail
	Namespace string `json:"namespace,omitempty"`
	Subject   string `json:"subject,omitempty"` // the name of the group, relay, tag … that is in trouble
	Found     string `json:"found"`
	Advice    string `json:"advice,omitempty"`
}

// Doctor examines the installation, as far as the database can.
func Doctor(ctx context.Context, db DB) ([]Finding, error) {
	return Collect(ctx, db, "examine the installation", pgx.RowToStructByPos[Finding], `
		select d."check", d.level, coalesce(d.namespace, ''), coalesce(d.subject, ''), d.found, coalesce(d.advice, '')
		from posthorn.doctor() d`)
}

// NeededKeeper is a keeper that a stream needs.
type NeededKeeper struct {
	Name              string
	Namespace, Stream string // one of the streams
}

// NeededKeepers returns the keepers that streams need, or keys of theirs.
func NeededKeepers(ctx context.Context, db DB) ([]NeededKeeper, error) {
	return Collect(ctx, db, "read the keepers of streams", pgx.RowToStructByPos[NeededKeeper],
		"select keeper, namespace, stream from posthorn.needed_keepers()")
}

// Server is the version of a server, and whether it takes writes.
type Server struct {
	Number    int    // such as 180004
	Version   string // the same for people
	IsStandby bool
}

// ServerState reads the version of the server, and whether it takes writes.
func ServerState(ctx context.Context, db DB) (Server, error) {
	var s Server
	err := db.QueryRow(ctx, "select current_setting('server_version_num')::int, current_setting('server_version'), pg_is_in_recovery()").
		Scan(&s.Number, &s.Version, &s.IsStandby)
	return s, Translate("read the server's version", err)
}

// Rights are whether the role of the session may examine the installation.
type Rights struct {
	Role      string
	Examines  bool // true also when there is no schema yet
	AdminRole bool // the role posthorn_admin exists
}

// OwnRights reads the rights of the session's role. It needs none itself.
func OwnRights(ctx context.Context, db DB) (Rights, error) {
	var r Rights
	err := db.QueryRow(ctx, `
		select current_user::text, coalesce(bool_and(has_schema_privilege(n.oid, 'usage') and has_table_privilege(c.oid, 'select')), true),
			exists (select from pg_roles where rolname = 'posthorn_admin')
		from pg_namespace n
		join pg_class c on c.relnamespace = n.oid
		where n.nspname = 'posthorn' and c.relname in ('config', 'cursors', 'schema_version')`).Scan(&r.Role, &r.Examines, &r.AdminRole)
	return r, Translate("read the rights of this role", err)
}
