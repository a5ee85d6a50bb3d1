// Command posthorn runs and operates Posthorn, an event platform inside
// PostgreSQL.
//
// The package owns flags, output and exit codes. The work of a command is done by the
// packages that it calls.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, end := context.WithCancel(context.Background())
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		<-signals
		signal.Stop(signals) // a second signal ends the process at once, as soon as anybody sees that it ends
		end()
	}()
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}
