package main

import (
	"context"
	"errors"
	"fmt"

	goredis "github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"

	"github.com/posthorn/posthorn"
)

var errUnknownBroker = usageError{errors.New("the URL of the broker is of no kind that is known"), "write it like redis://host:6379 or nats://host:4222"}

// brokerClient opens the client of posthorn relay or posthorn import. It also returns a
// name for each URL: the given ones, or that of the command for a single URL.
func (a *app) brokerClient(ctx context.Context, command string, names, urls []string) (*posthorn.Client, []string, error) {
	if len(names) == 0 && len(urls) == 1 {
		names = []string{command}
	}
	if len(names) != len(urls) {
		return nil, nil, usageError{
			fmt.Errorf("%d URLs and %d names", len(urls), len(names)),
			"give each " + command + " a --name, in the order of the URLs: it remembers under it how far it is",
		}
	}
	goredis.SetLogger(&logging.VoidLogger{}) // it would repeat every failed attempt; Posthorn's own log says what is wrong
	ph, err := a.client(ctx, "posthorn "+command, nil)
	return ph, names, err
}
