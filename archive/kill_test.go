package archive_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/posthorn/posthorn/archive"
)

// In the environment, they make the test binary a process that archives, or
// replays, and is killed: the database, a space, and the store.
const (
	asArchiver = "POSTHORN_TEST_ARCHIVER"
	asReplayer = "POSTHORN_TEST_REPLAYER"
)

func openEnvironment(name string) (*pgxpool.Pool, *archive.Store) {
	var database, store string
	if _, err := fmt.Sscan(os.Getenv(name), &database, &store); err != nil {
		panic(err)
	}
	db, err := pgxpool.New(context.Background(), database)
	if err != nil {
		panic(err)
	}
	s, err := archive.Open(context.Background(), store)
	if err != nil {
		panic(err)
	}
	return db, s
}

func beArchiver() {
	db, store := openEnvironment(asArchiver)
	err := archive.New(db, store, archive.Config{
		SegmentEvents: 50, SegmentAge: 100 * time.Millisecond, Workers: 2, Logger: slog.New(slog.DiscardHandler),
	}).Run(context.Background())
	fmt.Println(err)
	os.Exit(1)
}

func beReplayer() {
	db, store := openEnvironment(asReplayer)
	_, err := store.Replay(context.Background(), db, archive.ReplayConfig{
		Range: archive.Range{Namespaces: []string{"default"}}, ToStream: "again", Progress: func(n int64) { fmt.Println(n) },
	})
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	os.Exit(0)
}
