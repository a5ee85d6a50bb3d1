package doctor

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/posthorn/posthorn/internal/pg"
	"github.com/posthorn/posthorn/schema"
)

const (
	oldestServer = 150000
	newestServer = 190000 // the first that is untested
)

func server(ctx context.Context, db pg.DB) ([]Finding, error) {
	s, err := pg.ServerState(ctx, db)
	if err != nil {
		return nil, err
	}
	found := "PostgreSQL " + s.Version
	switch {
	case s.Number < oldestServer:
		return []Finding{fail(found, "upgrade it: Posthorn needs PostgreSQL 15 or newer")}, nil
	case s.InRecovery:
		return []Finding{fail(found+", a standby", "connect to the primary: publishing and claiming both write")}, nil
	case s.Number >= newestServer:
		return []Finding{warn(found, "this binary was tested with PostgreSQL 15 to 18; look for a newer one")}, nil
	}
	return []Finding{ok(found)}, nil
}

// rights speaks only when they are missing: one line instead of one for each check.
func rights(ctx context.Context, db pg.DB) ([]Finding, error) {
	r, err := pg.OwnRights(ctx, db)
	if err != nil || r.Reads {
		return nil, err
	}
	role := pgx.Identifier{r.Role}.Sanitize()
	advice := "as the owner of the schema: grant posthorn_admin to " + role
	if !r.AdminRole {
		advice = "as the owner of the schema: select posthorn.grant_role('admin', '" + strings.ReplaceAll(r.Role, "'", "''") + "')"
	}
	return []Finding{fail("role "+role+" may not read Posthorn's tables, so nothing can be examined", advice)}, nil
}

func installed(ctx context.Context, db pg.DB) ([]Finding, error) {
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

const objectsShown = 10

// objects compares the schema with the list of its objects.
func objects(ctx context.Context, db pg.DB, well string) ([]Finding, error) {
	compared, err := schema.Compare(ctx, db)
	if err != nil {
		return nil, err
	}
	var findings []Finding
	if len(compared.Missing) > 0 {
		findings = append(findings, fail("it lacks "+some(compared.Missing, objectsShown),
			"make functions and views again: update posthorn.schema_version set functions_hash = ''; then run: posthorn migrate; restore tables from a backup"))
	}
	if len(compared.Unexpected) > 0 {
		findings = append(findings, warn("schema posthorn holds objects that are not Posthorn's: "+some(compared.Unexpected, objectsShown),
			"move them, since removing Posthorn would remove them: alter table posthorn.NAME set schema public"))
	}
	return orOK(findings, well), nil
}

func settings(ctx context.Context, db pg.DB) ([]Finding, error) {
	s, err := pg.ServerState(ctx, db)
	if err != nil {
		return nil, err
	}
	var findings []Finding
	for _, rule := range []struct{ name, bad, means, advice string }{
		{"fsync", "off", "a crash of the machine may destroy the database", "set fsync = on, unless nobody needs the data"},
		{"full_page_writes", "off", "a crash of the machine may destroy the database", "set full_page_writes = on, unless nobody needs the data"},
		{"synchronous_commit", "off", "a crash loses events whose publishing had succeeded", "set synchronous_commit = on; claims relax it by themselves"},
		{"autovacuum", "off", "dead rows pile up, and claims get slower", "set autovacuum = on"},
		{"plan_cache_mode", "force_custom_plan", "each claim is planned anew", "set plan_cache_mode = auto"},
	} {
		if s.Settings[rule.name] == rule.bad {
			findings = append(findings, warn(fmt.Sprintf("%s is %s: %s", rule.name, rule.bad, rule.means), rule.advice))
		}
	}
	if limit, err := strconv.Atoi(s.Settings["max_connections"]); err == nil && s.Connections > limit*8/10 {
		findings = append(findings, warn(fmt.Sprintf("%d of %d connections are in use", s.Connections, limit),
			"raise max_connections, or put a pooler in front"))
	}
	return orOK(findings, "durable, with autovacuum"), nil
}

// Without the roles only the owner can use anything.
func roles(ctx context.Context, db pg.DB) ([]Finding, error) {
	roles, err := pg.Roles(ctx, db)
	if err != nil {
		return nil, err
	}
	var findings []Finding
	for _, r := range roles {
		switch {
		case !r.Exists:
			findings = append(findings, warn("role "+r.Name+" does not exist",
				"migrate as a role that may create roles, or grant the same to a role of yours with posthorn.grant_role"))
		case !r.Granted:
			findings = append(findings, warn("role "+r.Name+" may not do what it is for",
				"run posthorn.grant_role for it, as the owner of the schema"))
		}
	}
	return orOK(findings, "posthorn_publisher, posthorn_consumer and posthorn_admin have their rights"), nil
}

func cluster(ctx context.Context, db pg.DB) ([]Finding, error) {
	c, err := pg.ClusterState(ctx, db)
	if err != nil {
		return nil, err
	}
	var findings []Finding
	if c.Restored {
		findings = append(findings, fail("the database was restored from another cluster: positions of groups mean nothing here",
			"run once: posthorn rebase"))
	}
	if c.SequenceCache != 1 {
		findings = append(findings, fail(fmt.Sprintf("sequence posthorn.event_id caches %d ids per session: groups may miss events", c.SequenceCache),
			"run: alter sequence posthorn.event_id cache 1"))
	}
	if c.ClockWentBack {
		findings = append(findings, warn("the server's clock once went back by more than an hour",
			"keep it in step with NTP; nothing is lost, but groups search more partitions than they need"))
	}
	return orOK(findings, "the one that the log comes from"), nil
}

// A small difference is the network; a larger one confuses people who compare logs.
const clockTolerance = 2 * time.Second

func clock(ctx context.Context, db pg.DB) ([]Finding, error) {
	before := time.Now()
	theirs, err := pg.Now(ctx, db)
	if err != nil {
		return nil, err
	}
	ours := before.Add(time.Since(before) / 2)
	difference := theirs.Sub(ours)
	if difference.Abs() <= clockTolerance {
		return []Finding{ok("database and client agree to " + difference.Abs().Round(time.Millisecond).String())}, nil
	}
	which := "ahead of"
	if difference < 0 {
		which = "behind"
	}
	return []Finding{warn(fmt.Sprintf("the database is %s %s this machine", rough(difference.Abs()), which),
		"keep both in step with NTP; the database's clock decides everything")}, nil
}
