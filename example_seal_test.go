package posthorn_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/posthorntest"
	"github.com/posthorn/posthorn/relay/redis"
	"github.com/posthorn/posthorn/seal"
	"github.com/posthorn/posthorn/seal/keeper"
)

func ExampleSealConfig() {
	dsn := os.Getenv("DATABASE_URL")
	key, err := keeper.Open(ctx, "file:///etc/posthorn/seal.key")
	if err != nil {
		log.Fatal(err)
	}
	defer key.Close()
	ph, err := posthorn.Open(ctx, posthorn.Config{
		DatabaseURL: dsn,
		Seal:        posthorn.SealConfig{Keepers: seal.Keepers{"": key}},
	})
	if err != nil {
		log.Fatal(err)
	}
	defer ph.Close()
}

// A program that reads a confidential stream from a broker gets its keys from the
// database of the publisher.
func ExampleKeysFrom() {
	dsn, clinic := os.Getenv("DATABASE_URL"), os.Getenv("CLINIC_DATABASE_URL")
	key, err := keeper.Open(ctx, "file:///etc/posthorn/seal.key")
	if err != nil {
		log.Fatal(err)
	}
	defer key.Close()
	ph, err := posthorn.Open(ctx, posthorn.Config{
		DatabaseURL: dsn,
		Seal: posthorn.SealConfig{
			Keepers:  seal.Keepers{"": key},
			KeysFrom: posthorn.KeysFrom{DatabaseURL: clinic},
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	defer ph.Close()
	source, err := redis.OpenSource(ctx, "redis://localhost:6379", redis.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer source.Close()
	ph.Import("clinic", posthorn.ImportConfig{Streams: []string{"patients"}}, source)
}

// What is published to a confidential stream is sealed in the log, and opened for
// who reads it.
func Example_confidential() {
	tb := &exampleTB{ctx: context.Background()}
	dsn, dir := posthorntest.Database(tb), tempDir()
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "seal.key")
	if err := keeper.NewKeyFile(path); err != nil {
		log.Fatal(err)
	}
	ctx := tb.ctx
	key, err := keeper.Open(ctx, "file://"+path)
	if err != nil {
		log.Fatal(err)
	}
	defer key.Close()
	ph, err := posthorn.Open(ctx, posthorn.Config{DatabaseURL: dsn, Seal: posthorn.SealConfig{Keepers: seal.Keepers{"": key}}})
	if err != nil {
		log.Fatal(err)
	}
	defer func() {
		ph.Close()
		for _, cleanup := range tb.cleanups {
			cleanup()
		}
	}()
	if _, err := ph.Pool().Exec(ctx, "select posthorn.set_stream_policy('default', 'patients', 'confidential')"); err != nil {
		log.Fatal(err)
	}
	if _, err := ph.Publish(ctx, ph.Pool(), posthorn.Message{Type: "diagnosed", Stream: "patients", Payload: "measles"}); err != nil {
		log.Fatal(err)
	}
	for e, err := range ph.Reader(posthorn.ReaderConfig{}).Events(ctx) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(string(e.Payload), e.Confidential)
	}
	for e := range ph.Reader(posthorn.ReaderConfig{Sealed: true}).Events(ctx) {
		fmt.Println(seal.IsSealed(e.Payload))
	}
	// Output:
	// "measles" true
	// true
}

func tempDir() string {
	dir, err := os.MkdirTemp("", "")
	if err != nil {
		log.Fatal(err)
	}
	return dir
}
