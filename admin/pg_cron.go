package admin

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/posthorn/posthorn/internal/pg"
)

// pgCron tells where pg_cron runs.
type pgCron struct {
	Here    string `db:"here"` // this database
	Home    string `db:"home"` // the database in which pg_cron keeps the jobs of all databases of the server
	JobName string `db:"name"` // of the job for this database
}

// UsePgCron lets pg_cron run upkeep and schedules, and returns the number of the job
// that calls posthorn.tend. Doing it again changes nothing.
//
// pg_cron keeps its jobs in one database of the server. If that is another database, the
// job is made there, through connect, and it fires all schedules.
func (a *Admin) UsePgCron(ctx context.Context, connect func(ctx context.Context, database string) (*pgx.Conn, error)) (job int64, err error) {
	found, err := rows[pgCron](ctx, a.db, "look for pg_cron", `
		select current_database() as here, current_setting('cron.database_name', true) as home, posthorn.pg_cron_job_name() as name`)
	switch {
	case err != nil:
		return 0, err
	case found[0].Home == "":
		return 0, pg.Translate("look for pg_cron", pg.Refused("this server does not run pg_cron",
			"Put pg_cron into shared_preload_libraries and restart Postgres. Without it, posthorn up does upkeep and fires schedules."))
	case found[0].Home == found[0].Here:
		return pg.Value[int64](ctx, a.db, "use pg_cron", "select posthorn.use_pg_cron()")
	}
	home, err := connect(ctx, found[0].Home)
	if err != nil {
		return 0, err
	}
	defer func() { _ = home.Close(ctx) }()
	return found[0].tendFromHome(ctx, home)
}

// tendFromHome registers the job in pg_cron's own database, in which Posthorn need not
// be installed.
func (c pgCron) tendFromHome(ctx context.Context, home DB) (int64, error) {
	job, err := pg.Value[int64](ctx, home, "use pg_cron", `
		select cron.schedule_in_database($1::text,
			case when string_to_array(substring(extversion from '^[0-9]+[.][0-9]+'), '.')::int[] >= array[1, 5]
				then '10 seconds' else '* * * * *' end,
			'select posthorn.tend()', $2::text)
		from pg_extension
		where extname = 'pg_cron'`, c.JobName, c.Here)
	if errors.Is(err, pgx.ErrNoRows) {
		err = pg.Translate("use pg_cron", pg.Refused("pg_cron is not installed in database "+c.Home, "Run there, as a superuser: create extension pg_cron;"))
	}
	return job, err
}
