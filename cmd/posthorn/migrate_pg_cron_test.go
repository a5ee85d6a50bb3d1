package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/posthorn/posthorn/internal/test/testpg/pgcron"
)

// Each database has one job for upkeep, in whichever database pg_cron is installed.
func TestMigrateWithPgCron(t *testing.T) {
	t.Parallel()
	home := pgcron.Start(t).URL()
	conn := connectTo(t, home)
	typed(t, conn, "create database other")
	other := strings.Replace(home, "/posthorn?", "/other?", 1)
	for _, url := range []string{home, home, other, other} {
		var out, errs bytes.Buffer
		if code := run(t.Context(), []string{"migrate", "--with-pg-cron", "--database-url", url}, &out, &errs); code != exitOK {
			t.Fatalf("exit %d: %s", code, &errs)
		}
		if !strings.Contains(out.String(), "of pg_cron runs upkeep and schedules") {
			t.Errorf("printed %s", &out)
		}
	}
	var jobs string
	err := conn.QueryRow(t.Context(), "select string_agg(concat_ws(' ', jobname, database, command), ', ' order by jobid) from cron.job").Scan(&jobs)
	if want := "posthorn_tend_posthorn posthorn select posthorn.tend(), posthorn_tend_other other select posthorn.tend()"; err != nil || jobs != want {
		t.Errorf("jobs %q (%v), want %q", jobs, err, want)
	}
}
