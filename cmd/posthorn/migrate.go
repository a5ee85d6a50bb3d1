package main

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"

	"github.com/posthorn/posthorn/admin"
	"github.com/posthorn/posthorn/schema"
)

const migrateLong = `Install the schema posthorn, or bring it to the version of this binary.

The migration is one transaction. Several processes may migrate at once: one
works, and the others wait for it. While a long transaction uses a table, migrate
retries with pauses, so that other transactions do not wait behind it.

The role must own the schema, or have the right to create it; it need not be a
superuser. A database that is newer than this binary is not changed.

With --plan, migrate changes nothing, and lists the locks for which reads or writes
of others would wait. They are held until the transaction ends.

With --with-pg-cron, the extension pg_cron runs upkeep and schedules, even while
no process of Posthorn runs. The extension must be installed on the server.`

const migrateExample = `  posthorn migrate --database-url postgres://app@localhost/shop
  posthorn migrate --status
  posthorn migrate --plan
  posthorn migrate --dry-run > upgrade.sql
  posthorn migrate --with-pg-cron`

func newMigrate(a *app) *cobra.Command {
	cmd := about{"migrate", "Install or upgrade the schema in the database", migrateLong, migrateExample}.command()
	status := cmd.Flags().Bool("status", false, "only compare the database with this binary")
	plan := cmd.Flags().Bool("plan", false, "only list what migrate would do, and what would wait for it")
	dryRun := cmd.Flags().Bool("dry-run", false, "only print the SQL that migrate would run")
	withPgCron := cmd.Flags().Bool("with-pg-cron", false, "let pg_cron run upkeep and schedules")
	asJSON := jsonFlag(cmd)
	cmd.MarkFlagsMutuallyExclusive("status", "plan", "dry-run", "with-pg-cron")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		conn, err := a.connectOnceReady(cmd.Context())
		if err != nil {
			return err
		}
		defer disconnect(cmd.Context(), conn)
		switch {
		case *status:
			return migrateStatus(cmd, conn, *asJSON)
		case *plan:
			return migratePlan(cmd, conn, *asJSON)
		case *dryRun:
			return migrateDryRun(cmd, conn, *asJSON)
		default:
			return a.migrate(cmd, conn, *withPgCron, *asJSON)
		}
	}
	return cmd
}

// migration is a migration as the command prints it.
type migration struct {
	schema.Report
	PgCronJob int64 `json:"pg_cron_job,omitempty"`
}

func (a *app) migrate(cmd *cobra.Command, conn *pgx.Conn, withPgCron, asJSON bool) error {
	report, err := schema.Migrate(cmd.Context(), conn, schema.Options{Logger: a.log})
	if err != nil {
		return err
	}
	if err := a.warnOfForeignObjects(cmd.Context(), conn); err != nil {
		return err
	}
	if err := a.warnOfRoles(cmd.Context(), conn); err != nil {
		return err
	}
	done := migration{Report: report}
	if withPgCron {
		if done.PgCronJob, err = a.usePgCron(cmd.Context(), conn); err != nil {
			return err
		}
	}
	if asJSON {
		return printJSON(cmd.OutOrStdout(), done)
	}
	return printMigrated(cmd.OutOrStdout(), done)
}

// usePgCron registers the job that does upkeep. pg_cron may be in another database of the
// server.
func (a *app) usePgCron(ctx context.Context, conn *pgx.Conn) (job int64, err error) {
	return admin.New(conn, a.namespace).UsePgCron(ctx, func(ctx context.Context, database string) (*pgx.Conn, error) {
		config := conn.Config()
		config.Database = database
		home, err := pgx.ConnectConfig(ctx, config)
		if err != nil {
			return nil, unreachable(config, err)
		}
		return home, nil
	})
}

// warnOfForeignObjects logs the objects of users in schema posthorn: dropping the schema
// would drop them too.
func (a *app) warnOfForeignObjects(ctx context.Context, conn *pgx.Conn) error {
	found, err := schema.Compare(ctx, conn)
	if err == nil && len(found.Unexpected) > 0 {
		a.log.Warn("schema posthorn has objects that are not Posthorn's; move them: alter table posthorn.NAME set schema public",
			"objects", found.Unexpected)
	}
	return err
}

// warnOfRoles logs what the doctor finds of the roles: a user who may not create roles migrates
// without them, and then only the owner can use anything. A user who may not ask the doctor finds
// the database up to date, and is told nothing.
func (a *app) warnOfRoles(ctx context.Context, conn *pgx.Conn) error {
	var may bool
	err := conn.QueryRow(ctx, "select has_function_privilege('posthorn.examine_roles()', 'execute')").Scan(&may)
	if err != nil || !may {
		return err
	}
	var found, advice string
	rows, _ := conn.Query(ctx, "select found, advice from posthorn.examine_roles() where level <> 'ok'")
	_, err = pgx.ForEachRow(rows, []any{&found, &advice}, func() error {
		a.log.Warn(found, "advice", advice)
		return nil
	})
	return err
}

func printMigrated(w io.Writer, done migration) error {
	var err error
	if len(done.Applied) == 0 {
		_, err = fmt.Fprintf(w, "nothing to do: the database has schema %s\n", done.To)
	} else {
		err = printReport(w, done.Report)
	}
	if err == nil && done.PgCronJob != 0 {
		_, err = fmt.Fprintf(w, "job %d of pg_cron runs upkeep and schedules\n", done.PgCronJob)
	}
	return err
}

// printReport names the migrations. It leaves out the functions: they are many, and all of
// them are applied each time.
func printReport(w io.Writer, r schema.Report) error {
	for _, file := range r.Applied {
		if strings.HasPrefix(file, "migrations/") {
			if _, err := fmt.Fprintf(w, "applied %s\n", file); err != nil {
				return err
			}
		}
	}
	var err error
	switch {
	case r.From == (schema.Version{}):
		_, err = fmt.Fprintf(w, "installed schema %s\n", r.To)
	case r.From.String() == r.To.String():
		_, err = fmt.Fprintf(w, "replaced the functions of schema %s with those of this build\n", r.To)
	default:
		_, err = fmt.Fprintf(w, "upgraded schema %s to %s\n", r.From, r.To)
	}
	return err
}

func migrateStatus(cmd *cobra.Command, conn *pgx.Conn, asJSON bool) error {
	state, err := schema.Status(cmd.Context(), conn)
	if err != nil {
		return err
	}
	if asJSON {
		return printJSON(cmd.OutOrStdout(), state)
	}
	return printState(cmd.OutOrStdout(), state)
}

func printState(w io.Writer, s schema.State) error {
	database := s.Database.String()
	if s.Standing == schema.Absent {
		database = ""
	}
	return columns[schema.State]{"status|database|binary|applied at|applied by|pending files", func(s schema.State) []any {
		return []any{s.Standing, database, s.Binary, s.AppliedAt, s.AppliedBy, len(s.Pending)}
	}}.print(w, []schema.State{s})
}

func migratePlan(cmd *cobra.Command, conn *pgx.Conn, asJSON bool) error {
	plan, err := schema.PlanMigration(cmd.Context(), conn)
	if err != nil {
		return err
	}
	if asJSON {
		return printJSON(cmd.OutOrStdout(), plan)
	}
	return printPlan(cmd.OutOrStdout(), plan)
}

// lockedBy is a lock with the step that takes it.
type lockedBy struct {
	schema.PlannedLock
	step string
}

func printPlan(w io.Writer, plan schema.Plan) error {
	var locks []lockedBy
	free := 0
	for _, step := range plan.Steps {
		for _, l := range step.Locks {
			locks = append(locks, lockedBy{l, step.Name})
		}
		if len(step.Locks) == 0 {
			free++
		}
	}
	var does string
	switch {
	case len(plan.Steps) == 0:
		_, err := fmt.Fprintf(w, "nothing to do: the database has schema %s\n", plan.To)
		return err
	case plan.From == (schema.Version{}):
		does = fmt.Sprintf("install schema %s", plan.To)
	case plan.From.String() == plan.To.String():
		does = fmt.Sprintf("replace the functions of schema %s with those of this build", plan.To)
	default:
		does = fmt.Sprintf("upgrade schema %s to %s", plan.From, plan.To)
	}
	if len(locks) == 0 {
		_, err := fmt.Fprintf(w, "migrate would %s: %d steps, for which nobody waits\n", does, free)
		return err
	}
	if _, err := fmt.Fprintf(w, "migrate would %s, in one transaction that holds these locks until it ends:\n\n", does); err != nil {
		return err
	}
	err := columns[lockedBy]{"step|relation|lock|what waits", func(l lockedBy) []any {
		return []any{l.step, l.Relation, l.Lock, l.Waits}
	}}.print(w, locks)
	if err == nil {
		_, err = fmt.Fprintf(w, "\nNobody waits for the %d other steps. If a lock is not free within 900 ms, migrate releases all of them, and tries\n"+
			"again after a pause.\n", free)
	}
	return err
}

func migrateDryRun(cmd *cobra.Command, conn *pgx.Conn, asJSON bool) error {
	steps, err := schema.DryRun(cmd.Context(), conn)
	if err != nil {
		return err
	}
	out := cmd.OutOrStdout()
	if asJSON {
		return printJSON(out, append([]schema.Step{}, steps...))
	}
	if len(steps) == 0 {
		_, err = fmt.Fprintln(out, "-- nothing to do")
		return err
	}
	for _, step := range steps {
		if _, err := fmt.Fprintf(out, "-- %s\n\n%s\n", step.Name, step.SQL); err != nil {
			return err
		}
	}
	return nil
}
