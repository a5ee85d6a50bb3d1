package main

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/posthorn/posthorn/internal/pg"
)

// usePgCron registers the one job that tends the database. pg_cron keeps its
// jobs in one database of the server: where that is another one, only that job
// can be made, and it fires all schedules.
func usePgCron(ctx context.Context, conn *pgx.Conn) (job int64, err error) {
	cron, err := pg.FindPgCron(ctx, conn)
	if err != nil {
		return 0, err
	}
	if cron.Home == cron.Here {
		return pg.UsePgCron(ctx, conn)
	}
	config := conn.Config()
	config.Database = cron.Home
	home, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return 0, unreachable(config, err)
	}
	defer func() { _ = home.Close(ctx) }()
	return cron.TendFromHome(ctx, home)
}
