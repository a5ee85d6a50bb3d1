package archive_test

import (
	"context"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/archive"
)

// A program that publishes events and archives them.
func Example() {
	run := func(ctx context.Context, ph *posthorn.Client) error {
		store, err := archive.Open(ctx, "s3://events?region=eu-central-1")
		if err != nil {
			return err
		}
		defer store.Close()
		return archive.New(ph.Pool(), store, archive.Config{Namespace: "shop"}).Run(ctx)
	}
	_ = run
}
