package admin

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/posthorn/posthorn/internal/pg"
	"github.com/posthorn/posthorn/schema"
)

// The levels of findings.
const (
	OK   = "ok"
	Warn = "warn" // it works, but it is slow, unsafe or about to fail
	Fail = "fail" // it does not work, or loses events
)

// Finding is a result of one check of an installation.
type Finding struct {
	Check     string `json:"check"`
	Level     string `json:"level"`          // OK, Warn or Fail
	Kind      string `json:"kind,omitempty"` // such as "stalled jobs"; empty for most findings about the installation
	Namespace string `json:"namespace,omitempty"`
	Subject   string `json:"subject,omitempty"` // the name of the group, relay or other thing that is in trouble
	Found     string `json:"found"`
	Advice    string `json:"advice,omitempty"`

	Things     int64     `json:"things,omitempty"`  // that the finding is about: equal ones are told as one
	Failing    bool      `json:"failing,omitempty"` // something is tried now, and fails
	Size       int64     `json:"size,omitempty"`    // events or jobs that are concerned
	ExaminedAt time.Time `json:"examined_at"`

	Filter map[string]string `json:"filter,omitempty"` // the inputs of the list of jobs that shows those that the finding counts
}

const (
	oldestServer = 150000
	newestServer = 190000 // the first that is untested
	deadline     = 30 * time.Second
	// A smaller difference comes from the network. A larger one misleads readers of logs.
	clockTolerance = 2 * time.Second
	sealed         = "confidential streams" // the database has a check of that name too
)

// Doctor examines an installation, and changes nothing. Almost all checks are the
// function posthorn.doctor, which psql can call too; Doctor adds those that need the
// program: its schema, its clock and its keepers.
//
// Keepers are the keepers of this process for confidential streams, by name, each with
// the error that opening it returned. A check that cannot be made has failed.
func Doctor(ctx context.Context, db DB, keepers map[string]error) []Finding {
	ctx, cancel := context.WithTimeoutCause(ctx, deadline, fmt.Errorf("no answer within %s", deadline))
	defer cancel()
	var findings []Finding
	add := func(check string, examine func(context.Context, DB) ([]Finding, error)) {
		found, err := examine(ctx, db)
		if err != nil {
			found = []Finding{fail("could not be examined: "+cause(ctx, err).Error(), "run it as the owner of the schema, or as a role with posthorn_admin")}
		}
		for i := range found {
			found[i].Check = cmp.Or(found[i].Check, check)
			found[i].Things = max(found[i].Things, 1)
			if found[i].ExaminedAt.IsZero() {
				found[i].ExaminedAt = time.Now()
			}
		}
		findings = append(findings, found...)
	}
	for _, required := range []struct {
		name    string
		examine func(context.Context, DB) ([]Finding, error)
	}{{"server", server}, {"rights", rights}, {"schema", installed}} {
		if add(required.name, required.examine); Worst(findings) == Fail {
			return findings
		}
	}
	add("clock", clock)
	add("doctor", inDatabase)
	known := len(findings)
	add(sealed, func(ctx context.Context, db DB) ([]Finding, error) { return checkKeepers(ctx, db, keepers) })
	if len(findings) > known { // then ok would be wrong
		findings = slices.DeleteFunc(findings, func(f Finding) bool { return f.Check == sealed && f.Level == OK })
	}
	return findings
}

// cause returns the cause for which the context ended, or else the error of a check.
func cause(ctx context.Context, err error) error {
	if ended := context.Cause(ctx); ended != nil {
		return ended
	}
	return err
}

// Worst returns the most severe level among findings.
func Worst(findings []Finding) string {
	worst := OK
	for _, f := range findings {
		if f.Level == Fail || worst == OK {
			worst = f.Level
		}
	}
	return worst
}

func ok(found string) Finding { return Finding{Level: OK, Found: found} }

func warn(found, advice string) Finding { return Finding{Level: Warn, Found: found, Advice: advice} }

func fail(found, advice string) Finding { return Finding{Level: Fail, Found: found, Advice: advice} }

func inDatabase(ctx context.Context, db DB) ([]Finding, error) {
	return rows[Finding](ctx, db, "examine the installation", "select *, posthorn.finding_filter(kind, examined_at) as filter from posthorn.diagnose()")
}

func server(ctx context.Context, db DB) ([]Finding, error) {
	var number int
	var version string
	var standby bool
	if err := db.QueryRow(ctx, "select current_setting('server_version_num')::int, current_setting('server_version'), pg_is_in_recovery()").
		Scan(&number, &version, &standby); err != nil {
		return nil, err
	}
	found := "PostgreSQL " + version
	switch {
	case number < oldestServer:
		return []Finding{fail(found, "upgrade it: Posthorn needs PostgreSQL 15 or newer")}, nil
	case standby:
		return []Finding{fail(found+", a standby", "connect to the primary: publishing and claiming both write")}, nil
	case number >= newestServer:
		return []Finding{warn(found, "this binary was tested with PostgreSQL 15 to 18; look for a newer one")}, nil
	}
	return []Finding{ok(found)}, nil
}

// rights has a finding only if the role lacks rights: one instead of one for each check.
// It needs no rights itself.
func rights(ctx context.Context, db DB) ([]Finding, error) {
	var role string
	var examines, adminRole bool // examines is true where there is no schema yet
	err := db.QueryRow(ctx, `
		select current_user::text, coalesce(bool_and(has_schema_privilege(n.oid, 'usage') and has_table_privilege(c.oid, 'select')), true),
			exists (select from pg_roles where rolname = 'posthorn_admin')
		from pg_namespace n
		join pg_class c on c.relnamespace = n.oid
		where n.nspname = 'posthorn' and c.relname in ('config', 'cursors', 'schema_version')`).Scan(&role, &examines, &adminRole)
	if err != nil || examines {
		return nil, err
	}
	quoted := pgx.Identifier{role}.Sanitize()
	advice := "as the owner of the schema: grant posthorn_admin to " + quoted
	if !adminRole {
		advice = "as the owner of the schema: select posthorn.grant_role('admin', '" + strings.ReplaceAll(role, "'", "''") + "')"
	}
	return []Finding{fail("role "+quoted+" may not read Posthorn's tables, so nothing can be examined", advice)}, nil
}

func installed(ctx context.Context, db DB) ([]Finding, error) {
	s, err := schema.Status(ctx, db)
	if err != nil {
		return nil, err
	}
	found := fmt.Sprintf("%s: database has %s, binary %s", s.Standing, s.Database, s.Binary)
	switch s.Standing {
	case schema.Absent:
		return []Finding{fail("not installed", "run: posthorn migrate")}, nil
	case schema.Behind:
		return []Finding{fail(found, "run: posthorn migrate")}, nil
	case schema.TooNew:
		return []Finding{fail(found, "upgrade this binary; "+s.AppliedBy+" migrated the database")}, nil
	case schema.OtherHistory:
		return []Finding{fail(found, "use a new database, or delete all events with: drop schema posthorn cascade; then run: posthorn migrate")}, nil
	case schema.Ahead:
		return []Finding{warn(found, "upgrade this binary; it works meanwhile")}, nil
	default:
		return objects(ctx, db, found)
	}
}

// objects compares the schema with the list of its objects.
func objects(ctx context.Context, db DB, well string) ([]Finding, error) {
	compared, err := schema.Compare(ctx, db)
	if err != nil {
		return nil, err
	}
	var findings []Finding
	if len(compared.Missing) > 0 {
		findings = append(findings, fail("it lacks "+first(compared.Missing),
			"make functions and views again: update posthorn.schema_version set functions_hash = ''; then run: posthorn migrate; restore tables from a backup"))
	}
	if len(compared.Unexpected) > 0 {
		findings = append(findings, warn("schema posthorn holds objects that are not Posthorn's: "+first(compared.Unexpected),
			"move them, since removing Posthorn would remove them: alter table posthorn.NAME set schema public"))
	}
	if len(findings) == 0 {
		findings = append(findings, ok(well))
	}
	return findings, nil
}

// first lists the first ten of names.
func first(names []string) string {
	if more := len(names) - 10; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:10], ", "), more)
	}
	return strings.Join(names, ", ")
}

func clock(ctx context.Context, db DB) ([]Finding, error) {
	before := time.Now()
	theirs, err := pg.Value[time.Time](ctx, db, "read the time", "select posthorn.now()")
	if err != nil {
		return nil, err
	}
	difference := theirs.Sub(before.Add(time.Since(before) / 2))
	if difference.Abs() <= clockTolerance {
		return []Finding{ok("database and client agree to " + difference.Abs().Round(time.Millisecond).String())}, nil
	}
	which := "ahead of"
	if difference < 0 {
		which = "behind"
	}
	return []Finding{warn(fmt.Sprintf("the database is %s %s this machine", difference.Abs().Round(time.Second), which),
		"keep both in step with NTP; the database's clock decides everything")}, nil
}

// checkKeepers finds keepers that do not open, such as key files that other users may
// read, and keepers that streams need and this process does not have.
func checkKeepers(ctx context.Context, db DB, given map[string]error) ([]Finding, error) {
	type need struct {
		Keeper    string `db:"keeper"`
		Namespace string `db:"namespace"`
		Stream    string `db:"stream"`
	}
	needed, err := rows[need](ctx, db, "read the keepers of streams", "select * from posthorn.needed_keepers()")
	if err != nil {
		return nil, err
	}
	var findings []Finding
	for name, err := range given {
		if err != nil {
			findings = append(findings, fail(fmt.Sprintf("%s does not open: %v", keeperNamed(name), err), "see docs/sealing.md"))
		}
	}
	for _, k := range needed {
		if _, have := given[k.Keeper]; have {
			continue
		}
		flag := "--seal-key URL"
		if k.Keeper != "" {
			flag = "--keeper " + k.Keeper + "=URL"
		}
		findings = append(findings, Finding{
			Level: Warn, Namespace: k.Namespace, Subject: k.Stream,
			Found:  fmt.Sprintf("%s, which stream %s of namespace %s needs, is not configured here", keeperNamed(k.Keeper), k.Stream, k.Namespace),
			Advice: "a process with these settings cannot read or publish there; give " + flag,
		})
	}
	return findings, nil
}

// keeperNamed describes a keeper. The keeper of --seal-key has no name.
func keeperNamed(name string) string {
	if name == "" {
		return "the keeper of --seal-key"
	}
	return fmt.Sprintf("keeper %q", name)
}
