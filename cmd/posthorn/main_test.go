package main

import (
	"errors"
	"net/url"
	"os/exec"
	"strconv"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/posthorn/posthorn/posthorntest"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"posthorn": main})
}

// Each script has an empty database of its own in DATABASE_URL, and in
// MISSING_DATABASE_URL one that the server does not know.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: "testdata",
		Setup: func(env *testscript.Env) error {
			database := posthorntest.EmptyDatabase(env.T().(testing.TB))
			missing, err := url.Parse(database)
			if err != nil {
				return err
			}
			missing.Path += "_missing"
			env.Setenv("DATABASE_URL", database)
			env.Setenv("MISSING_DATABASE_URL", missing.String())
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"exits": exits},
	})
}

// exits runs a program that has to end with the given code: exits 2 posthorn …
func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits code program [args...]")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	var exit *exec.ExitError
	got := 0
	if err := ts.Exec(args[1], args[2:]...); errors.As(err, &exit) {
		got = exit.ExitCode()
	} else {
		ts.Check(err)
	}
	if got != want {
		ts.Fatalf("exit code %d, want %d", got, want)
	}
}
