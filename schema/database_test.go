package schema_test

import (
	"context"
	"fmt"
	"testing"
	"testing/fstest"

	"github.com/jackc/pgx/v5"

	"github.com/posthorn/posthorn/schema"
)

func connect(t *testing.T, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(context.Background(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close(context.Background()) })
	return conn
}

func run(t *testing.T, conn *pgx.Conn, sql string) {
	t.Helper()
	if _, err := conn.Exec(context.Background(), sql); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

// value returns the only value of a query's result.
func value[T any](t *testing.T, conn *pgx.Conn, sql string) T {
	t.Helper()
	var v T
	if err := conn.QueryRow(context.Background(), sql).Scan(&v); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return v
}

// small is the schema that most tests extend: one table, and one function that
// returns a number.
func small(revision, answer int, migrations ...string) fstest.MapFS {
	fsys := fstest.MapFS{
		"revision":                      file(fmt.Sprintf("%d x\n", revision)),
		"functions/core/log/answer.sql": file(answerSQL(answer)),
		"migrations/001_parts.sql":      file("create table posthorn.parts (id int);\n"),
	}
	for i, sql := range migrations {
		fsys[fmt.Sprintf("migrations/%03d_more.sql", i+2)] = file(sql)
	}
	return fsys
}

func answerSQL(answer int) string {
	return fmt.Sprintf("create or replace function posthorn.answer() returns int language sql as 'select %d';\n", answer)
}

func file(content string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(content)} }

func migrate(t *testing.T, b schema.Bundle, db schema.DB) schema.Report {
	t.Helper()
	report, err := b.Migrate(t.Context(), db, schema.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return report
}

func standing(t *testing.T, b schema.Bundle, db schema.Querier) schema.Standing {
	t.Helper()
	state, err := b.Status(t.Context(), db)
	if err != nil {
		t.Fatal(err)
	}
	return state.Standing
}
