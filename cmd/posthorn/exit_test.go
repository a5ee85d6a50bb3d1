package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/posthorn/posthorn/schema"
)

func TestExitCode(t *testing.T) {
	for _, test := range []struct {
		err  error
		want int
	}{
		{errors.New("anything"), exitError},
		{usageError{errors.New("unknown flag"), ""}, exitUsage},
		{context.Canceled, exitInterrupted},
		{schema.ErrNotMigrated, exitRefused},
		{schema.ErrTooNew, exitRefused},
		{schema.ErrOtherHistory, exitRefused},
		{&pgconn.PgError{Code: "PH001"}, exitNotFound},
		{&pgconn.PgError{Code: "PH002"}, exitConflict},
		{&pgconn.PgError{Code: "PH003"}, exitConflict},
		{&pgconn.PgError{Code: "PH004"}, exitUsage},
		{&pgconn.PgError{Code: "PH005"}, exitRefused},
		{&pgconn.PgError{Code: "42601"}, exitError},
	} {
		if got := exitCode(fmt.Errorf("publish: %w", test.err)); got != test.want {
			t.Errorf("exit code of %q is %d, want %d", test.err, got, test.want)
		}
	}
}

func TestErrorIsOneLineAndHint(t *testing.T) {
	var out bytes.Buffer
	printError(&out, fmt.Errorf("publish: %w", &pgconn.PgError{
		Severity: "ERROR", Code: "PH001", Message: "there is no namespace\n\"shop\"", Hint: "call define_namespace",
	}))
	want := "posthorn: publish: ERROR: there is no namespace \"shop\" (SQLSTATE PH001)\nhint: call define_namespace\n"
	if got := out.String(); got != want {
		t.Errorf("printed %q, want %q", got, want)
	}
}

// An interrupt is the normal end of a tail that follows. A tail with --no-follow may not
// have printed all events.
func TestInterruptedTail(t *testing.T) {
	t.Parallel()
	ctx, interrupt := context.WithCancel(t.Context())
	interrupt()
	tail := []string{"tail", "--database-url", "postgres://127.0.0.1:1/none"}
	if got := run(ctx, tail, io.Discard, io.Discard); got != exitOK {
		t.Errorf("following: exit code %d", got)
	}
	if got := run(ctx, append(tail, "--no-follow"), io.Discard, io.Discard); got != exitInterrupted {
		t.Errorf("to the end: exit code %d", got)
	}
}
