// Command posthorn runs and operates Posthorn, an event platform inside
// PostgreSQL.
//
// The package owns flags, output and exit codes: one file per command, all of
// them thin. What a command does belongs to the packages it calls.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	// After the first signal a second one ends the process at once.
	context.AfterFunc(ctx, stop)
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}
