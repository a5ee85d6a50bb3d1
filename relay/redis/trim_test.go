package redis_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/internal/await"
	"github.com/posthorn/posthorn/internal/testredis"
	"github.com/posthorn/posthorn/relay/redis"
)

var _ posthorn.Trimmer = (*redis.Sink)(nil)

// wanting is what an archive says that has yet to write some events.
func wanting(events ...int64) func(context.Context, []int64) ([]int64, error) {
	return func(_ context.Context, ids []int64) ([]int64, error) {
		return slices.DeleteFunc(slices.Clone(ids), func(id int64) bool { return !slices.Contains(events, id) }), nil
	}
}

func trim(t *testing.T, s *redis.Sink, needed func(context.Context, []int64) ([]int64, error)) {
	t.Helper()
	if err := s.Trim(t.Context(), "shop", "a", needed); err != nil {
		t.Fatalf("%v (%s)", err, posthorn.Hint(err))
	}
}

func TestTrim(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		parameters string
		needed     []int64
		first      int64
	}{
		"nothing is asked":             {"", nil, 1},
		"a count":                      {"?keep=700", nil, 2301},
		"more than there are":          {"?keep=3001", nil, 1},
		"needed":                       {"?keep=700", []int64{2000, 1500, 2999}, 1500},
		"needed and younger":           {"?keep=700", []int64{2999}, 2301},
		"the first is needed":          {"?keep=700", []int64{1}, 1},
		"young":                        {"?keep_for=1h", nil, 1},
		"young, and too many":          {"?keep_for=1h&keep=10", nil, 1},
		"older than nothing but an ms": {"?keep_for=1ns", nil, 3000},
		"the same, but few":            {"?keep_for=1ns&keep=100", nil, 2901},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := testredis.NewDatabase(t)
			s := open(t, server.URL()+test.parameters)
			trim(t, s, wanting()) // there is no stream yet
			write(t, s, events("a", 1, 3000))
			if strings.Contains(test.parameters, "keep_for=1ns") {
				awaitNextSecond(t, server.Client)
			}
			trim(t, s, wanting(test.needed...))
			equal(t, "what is left", ids(t, server.Client, "a"), numbers(test.first, 3000))
			write(t, s, events("a", 2999, 3002)) // goes on, without repeats
			equal(t, "what is there then", ids(t, server.Client, "a"), numbers(test.first, 3002))
		})
	}
}

// awaitNextSecond waits until all entries are older than the second that the server
// is in: the age of entries is counted in whole seconds.
func awaitNextSecond(t *testing.T, client *goredis.Client) {
	t.Helper()
	await.True(t, "the server's clock shows another second", func() bool {
		now, err := client.Time(t.Context()).Result()
		last, err2 := client.XRevRangeN(t.Context(), "a", "+", "-", 1).Result()
		return errors.Join(err, err2) == nil && last[0].ID < fmt.Sprintf("%d-0", now.Truncate(time.Second).UnixMilli())
	})
}

// Seed 003.14: trimming never passes what a registered consumer has not read, one of
// ours or of others.
func TestTrimNeverPassesGroups(t *testing.T) {
	t.Parallel()
	server := testredis.NewDatabase(t)
	s, src := open(t, server.URL()+"?keep=1"), source(t, server.URL())
	write(t, s, events("a", 1, 1000))
	entries := readAll(t, src, map[string]string{"a": ""}, 1000, 1000)
	expect := func(what string, first int64) {
		t.Helper()
		trim(t, s, wanting())
		equal(t, what, ids(t, server.Client, "a"), numbers(first, 1000))
	}
	keep := func(group string, passed int) {
		t.Helper()
		if err := src.Keep(t.Context(), group, "a", entries[passed-1].Position); err != nil {
			t.Fatal(err)
		}
	}
	if err := src.Keep(t.Context(), "ours", "a", ""); err != nil {
		t.Fatal(err)
	}
	expect("a group at the beginning", 1)
	keep("ours", 300)
	expect("it has passed 300, which stays as its place", 300)
	if err := server.Client.XGroupCreate(t.Context(), "a", "others", strings.Split(entries[399].Position, "/")[0]).Err(); err != nil {
		t.Fatal(err)
	}
	keep("ours", 900)
	expect("a foreign group", 400)
	got, err := server.Client.XReadGroup(t.Context(), &goredis.XReadGroupArgs{
		Group: "others", Consumer: "c", Streams: []string{"a", ">"}, Count: 100,
	}).Result()
	if err != nil {
		t.Fatal(err)
	}
	expect("what it was handed is not acknowledged", 401)
	for _, m := range got[0].Messages[:40] {
		if err := server.Client.XAck(t.Context(), "a", "others", m.ID).Err(); err != nil {
			t.Fatal(err)
		}
	}
	expect("some of it is", 441)
	if err := server.Client.XGroupDestroy(t.Context(), "a", "others").Err(); err != nil {
		t.Fatal(err)
	}
	expect("ours is the last", 900)
	if err := server.Client.XGroupDestroy(t.Context(), "a", "ours").Err(); err != nil {
		t.Fatal(err)
	}
	expect("nobody reads", 1000)
}

// A group that comes while the head is looked at is not passed either.
func TestTrimSeesGroupsThatCome(t *testing.T) {
	t.Parallel()
	server := testredis.NewDatabase(t)
	s, src := open(t, server.URL()+"?keep=1"), source(t, server.URL())
	write(t, s, events("a", 1, 50))
	trim(t, s, func(ctx context.Context, _ []int64) ([]int64, error) { return nil, src.Keep(ctx, "late", "a", "") })
	equal(t, "what is left", ids(t, server.Client, "a"), numbers(1, 50))
}

func TestTrimAsksBeforeItRemoves(t *testing.T) {
	t.Parallel()
	server := testredis.NewDatabase(t)
	s := open(t, server.URL()+"?keep=1")
	write(t, s, events("a", 1, 50))
	broken := errors.New("the database is away")
	err := s.Trim(t.Context(), "shop", "a", func(context.Context, []int64) ([]int64, error) { return nil, broken })
	if !errors.Is(err, broken) {
		t.Errorf("got %v", err)
	}
	equal(t, "what is left", ids(t, server.Client, "a"), numbers(1, 50))
}

func TestTrimInACluster(t *testing.T) {
	t.Parallel()
	servers, prefix := testredis.SharedCluster(t)
	s := open(t, servers.URL()+"?keep=10&prefix="+prefix)
	write(t, s, events("a", 1, 300), events("b{x}", 301, 600))
	trim(t, s, wanting())
	client := servers.Client(t)
	equal(t, "a", ids(t, client, prefix+"a"), numbers(291, 300))
	equal(t, "b", ids(t, client, prefix+"b{x}"), numbers(301, 600))
}
