// The worker publishes events and enqueues jobs, until its standard input ends, and handles those of all workers, until
// SIGTERM. It is compiled with the library of this tree and with that of the last release, so it uses only the public names.
package main

import (
	"context"
	"fmt"
	"io"
	"log"
	"os"
	"os/signal"
	"syscall"

	"github.com/jackc/pgx/v5"

	"github.com/posthorn/posthorn"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1]); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, name string) error {
	ph, err := posthorn.Open(ctx, posthorn.Config{DatabaseURL: os.Getenv("DATABASE_URL")})
	if err != nil {
		return err
	}
	defer ph.Close()
	record := func(ctx context.Context, tx pgx.Tx, kind string, id int64) error {
		_, err := tx.Exec(ctx, "insert into ledger (kind, id, worker) values ($1, $2, $3)", kind, id, name)
		return err
	}
	ph.Group("ledger", posthorn.GroupConfig{Start: posthorn.Beginning, BatchSize: 5}).HandleTx("record", "counted", func(ctx context.Context, tx pgx.Tx, e posthorn.Event) error {
		return record(ctx, tx, "event", e.ID)
	})
	ph.WorkTx([]string{"counted"}, posthorn.WorkConfig{BatchSize: 5}, func(ctx context.Context, tx pgx.Tx, job posthorn.Job) error {
		return record(ctx, tx, "job", job.ID)
	})
	go func() {
		if err := publish(ctx, ph, name); err != nil {
			log.Fatal(err)
		}
		fmt.Println("published")
	}()
	return ph.Run(ctx)
}

// publish publishes until the standard input ends.
func publish(ctx context.Context, ph *posthorn.Client, name string) error {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = io.Copy(io.Discard, os.Stdin)
	}()
	for {
		select {
		case <-ended:
			return nil
		default:
		}
		err := pgx.BeginFunc(ctx, ph.Pool(), func(tx pgx.Tx) error {
			_, err := ph.Publish(ctx, tx, posthorn.Message{
				Type: "counted", Key: name, Tags: []string{"by " + name}, Metadata: map[string]any{"by": name}, Payload: map[string]string{"by": name},
			})
			if err == nil {
				_, err = ph.Enqueue(ctx, tx, posthorn.NewJob{Title: "count", Tags: []string{"counted"}})
			}
			return err
		})
		if err != nil {
			return err
		}
	}
}
