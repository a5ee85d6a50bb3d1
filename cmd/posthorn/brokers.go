package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strings"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
	"github.com/spf13/cobra"

	"github.com/posthorn/posthorn"
)

// brokerFlags are the flags that posthorn relay and posthorn import share.
type brokerFlags struct {
	names, streams []string
	batch          int
	takeOverAfter  time.Duration
	prefix         string
}

func (f *brokerFlags) add(cmd *cobra.Command, batchUsage string) {
	kind := cmd.Name()
	flags := cmd.Flags()
	flags.StringArrayVar(&f.names, "name", nil, fmt.Sprintf("the %[1]s's name, one for each URL (default %[1]q)", kind))
	flags.StringArrayVar(&f.streams, "stream", nil, "only streams that match this pattern; may be repeated")
	flags.IntVar(&f.batch, "batch-size", 0, batchUsage)
	flags.DurationVar(&f.takeOverAfter, "take-over-after", 0, "how long after the end of this process another one takes over (default 10s)")
	flags.StringVar(&f.prefix, "prefix", "", "the prefix of keys, or of names of streams, at the broker")
}

// run runs posthorn relay or posthorn import. start registers the part for one URL with
// the client, and returns the connection to the broker.
func (f *brokerFlags) run(
	ctx context.Context, a *app, kind string, urls []string, start func(ph *posthorn.Client, name, url string) (io.Closer, error),
) error {
	names := f.names
	if len(names) == 0 && len(urls) == 1 {
		names = []string{kind}
	}
	if len(names) != len(urls) {
		return usageError{
			fmt.Errorf("%d URLs and %d names", len(urls), len(names)),
			"give each " + kind + " a --name, in the order of the URLs: its position is stored under the name",
		}
	}
	goredis.SetLogger(&logging.VoidLogger{}) // it would log every failed attempt, which Posthorn's log reports once
	ph, err := a.client(ctx, "posthorn "+kind, nil)
	if err != nil {
		return err
	}
	defer ph.Close()
	for i, text := range urls {
		broker, err := start(ph, names[i], text)
		if err != nil {
			return err
		}
		defer func() { _ = broker.Close() }() // nothing is lost: the broker has acknowledged the position
	}
	return ph.Run(ctx)
}

var errUnknownBroker = usageError{errors.New("the URL of the broker has an unknown scheme"), "write it like redis://host:6379, nats://host:4222 or kafka://host:9092"}

const urlHint = "posthorn relay --help has examples of URLs"

func isNATS(scheme string) bool { return scheme == "nats" || scheme == "tls" }

// withoutSecrets is the URL of a broker for the log.
func withoutSecrets(text string) string {
	u, err := url.Parse(text)
	if err != nil {
		scheme, _, _ := strings.Cut(text, "://")
		return scheme + "://…"
	}
	return u.Scheme + "://" + u.Host + u.Path
}
