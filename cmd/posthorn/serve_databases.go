package main

import (
	"context"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/server"
)

const (
	openTimeout = 15 * time.Second // of an attempt to open a database
	firstOpen   = 5 * time.Second  // for which the start waits for all first attempts
	openPause   = 2 * time.Second  // between two attempts
)

// serveDatabases serves several databases until ctx ends. One that is away takes nothing else with it: it is tried again and
// again.
func (a *app) serveDatabases(cmd *cobra.Command, web *web, databases []namedDatabase) error {
	if err := web.openKeepers(cmd.Context()); err != nil {
		return err
	}
	var names []string
	for _, db := range databases {
		names = append(names, db.name)
	}
	web.access = web.accessOfMany()
	many, err := server.NewDatabases(names, a.namespace, a.log, web.options())
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(cmd.Context())
	defer cancel()
	served := make(chan struct{})
	var attended sync.WaitGroup
	var attendants []*attendant
	for _, db := range databases {
		t := &attendant{app: a.of(db), web: web, name: db.name, many: many, served: served, tried: make(chan struct{})}
		attendants = append(attendants, t)
		attended.Go(func() { t.attend(ctx) })
	}
	err = web.printMany(ctx, cmd.OutOrStdout(), attendants)
	if err == nil {
		err = many.Serve(ctx, web.listener, web.tls())
	}
	cancel()
	close(served)
	attended.Wait()
	return err
}

// accessOfMany is the access of each database. One that has no token yet does not keep the others from being served, so it
// requires one at an address that other machines can reach.
func (w *web) accessOfMany() access {
	switch {
	case isLoopback(w.listener.Addr()):
		return accessLocal
	case w.flags.insecure:
		return accessEverybody
	}
	return accessTokens
}

// printMany prints the addresses, after the first attempt to open each database.
func (w *web) printMany(ctx context.Context, out io.Writer, all []*attendant) error {
	if err := w.print(out); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, firstOpen)
	defer cancel()
	for _, t := range all {
		select {
		case <-t.tried:
		case <-ctx.Done():
		}
		if _, err := fmt.Fprintf(out, "database %s: %s/d/%s/, %s\n", t.name, w.url(), t.name, t.state()); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintln(out, "posthorn is ready")
	return err
}

// attendant opens one of several databases, serves it while it is there, and tries again after an error.
type attendant struct {
	app    *app // of the database
	web    *web
	name   string
	many   *server.Databases
	served <-chan struct{} // closed when HTTP is served no more

	once  sync.Once
	tried chan struct{} // closed after the first attempt
	first error         // of it
	told  string        // the last error that was logged
}

// state says how the first attempt has ended.
func (t *attendant) state() string {
	select {
	case <-t.tried:
		if t.first == nil {
			return "open"
		}
	default:
	}
	return "away"
}

func (t *attendant) attend(ctx context.Context) {
	for ctx.Err() == nil {
		err := t.open(ctx)
		if err != nil && ctx.Err() == nil {
			t.tell(err)
		}
		t.firstTried(err)
		select {
		case <-ctx.Done():
		case <-time.After(openPause):
		}
	}
}

// firstTried notes how the first attempt has ended.
func (t *attendant) firstTried(err error) {
	t.once.Do(func() {
		t.first = err
		close(t.tried)
	})
}

// tell logs an error, unless the last one was the same.
func (t *attendant) tell(err error) {
	if text := err.Error(); text != t.told {
		t.told = text
		t.app.log.Warn("the database is away, and is tried again", "error", err, "hint", posthorn.Hint(err))
	}
}

// open opens the database, and serves it until ctx ends or its node ends with an error.
func (t *attendant) open(ctx context.Context) error {
	opening, cancel := context.WithCancel(ctx) // lives as long as the client
	defer cancel()
	late := time.AfterFunc(openTimeout, cancel)
	ph, err := t.app.client(opening, "posthorn serve", t.web.keepers)
	inTime := late.Stop()
	if err == nil {
		defer ph.Close()
	}
	if !inTime && ctx.Err() == nil {
		return fmt.Errorf("it was not open within %s", openTimeout)
	} else if err != nil {
		return err
	}
	defer deliverWebhooks(ph, t.web.webhooks).Close()
	t.many.Open(t.name, ph)
	if t.told != "" {
		t.app.log.Info("the database is there")
		t.told = ""
	}
	t.firstTried(nil)
	err = ph.Run(ctx)
	if ctx.Err() != nil {
		<-t.served // requests that are under way need the client
	}
	t.many.Close(context.WithoutCancel(ctx), t.name)
	return err
}
