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
	"github.com/posthorn/posthorn/internal/test/await"
	"github.com/posthorn/posthorn/internal/test/testredis"
	"github.com/posthorn/posthorn/relay/redis"
)

var _ posthorn.Trimmer = (*redis.Sink)(nil)

// needs is the callback of an archive that still has to write some events.
func needs(events ...int64) func(context.Context, []int64) ([]int64, error) {
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
		"without keep and keep_for": {"", nil, 1},
		"keep":                      {"?keep=700", nil, 2301},
		"keep all":                  {"?keep=3001", nil, 1},
		"needed before keep":        {"?keep=700", []int64{2000, 1500, 2999}, 1500},
		"needed within keep":        {"?keep=700", []int64{2999}, 2301},
		"the first is needed":       {"?keep=700", []int64{1}, 1},
		"keep_for, all younger":     {"?keep_for=1h", nil, 1},
		"keep_for protects more":    {"?keep_for=1h&keep=10", nil, 1},
		"keep_for, all older":       {"?keep_for=1ns", nil, 3000},
		"keep protects more":        {"?keep_for=1ns&keep=100", nil, 2901},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := testredis.NewDatabase(t)
			s := open(t, server.URL()+test.parameters)
			trim(t, s, needs()) // the stream does not exist yet
			write(t, s, events("a", 1, 3000))
			if strings.Contains(test.parameters, "keep_for=1ns") {
				awaitNextSecond(t, server.Client)
			}
			trim(t, s, needs(test.needed...))
			equal(t, "events after trimming", ids(t, server.Client, "a"), numbers(test.first, 3000))
			write(t, s, events("a", max(2999, test.first), 3002)) // what is left of 2999 and 3000 is not repeated
			equal(t, "events after writing", ids(t, server.Client, "a"), numbers(test.first, 3002))
		})
	}
}

// awaitNextSecond waits until all entries are older than the current second of the
// server, since trimming counts the age of entries in whole seconds.
func awaitNextSecond(t *testing.T, client *goredis.Client) {
	t.Helper()
	await.True(t, "the server's clock shows another second", func() bool {
		now, err := client.Time(t.Context()).Result()
		last, err2 := client.XRevRangeN(t.Context(), "a", "+", "-", 1).Result()
		return errors.Join(err, err2) == nil && last[0].ID < fmt.Sprintf("%d-0", now.Truncate(time.Second).UnixMilli())
	})
}

// Seed 003.14: trimming never removes entries that a registered consumer has not read,
// be it an import or a consumer group of another program.
func TestTrimNeverPassesGroups(t *testing.T) {
	t.Parallel()
	server := testredis.NewDatabase(t)
	s, src := open(t, server.URL()+"?keep=1"), source(t, server.URL())
	write(t, s, events("a", 1, 1000))
	entries := readAll(t, src, map[string]string{"a": ""}, 1000, 1000)
	expect := func(name string, first int64) {
		t.Helper()
		trim(t, s, needs())
		equal(t, name, ids(t, server.Client, "a"), numbers(first, 1000))
	}
	keep := func(group string, passed int) {
		t.Helper()
		if err := src.SavePosition(t.Context(), group, "a", entries[passed-1].Position); err != nil {
			t.Fatal(err)
		}
	}
	if err := src.SavePosition(t.Context(), "ours", "a", ""); err != nil {
		t.Fatal(err)
	}
	expect("a group at the beginning", 1)
	keep("ours", 300)
	expect("the group has passed 300, the entry of its position", 300)
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
	expect("the foreign group has not acknowledged entries", 401)
	for _, m := range got[0].Messages[:40] {
		if err := server.Client.XAck(t.Context(), "a", "others", m.ID).Err(); err != nil {
			t.Fatal(err)
		}
	}
	expect("the foreign group has acknowledged some entries", 441)
	if err := server.Client.XGroupDestroy(t.Context(), "a", "others").Err(); err != nil {
		t.Fatal(err)
	}
	expect("the foreign group is deleted", 900)
	if err := server.Client.XGroupDestroy(t.Context(), "a", "ours").Err(); err != nil {
		t.Fatal(err)
	}
	expect("all groups are deleted", 1000)
}

// Trimming respects a group that is created between reading the head and removing it.
func TestTrimSeesNewGroups(t *testing.T) {
	t.Parallel()
	server := testredis.NewDatabase(t)
	s, src := open(t, server.URL()+"?keep=1"), source(t, server.URL())
	write(t, s, events("a", 1, 50))
	trim(t, s, func(ctx context.Context, _ []int64) ([]int64, error) {
		return nil, src.SavePosition(ctx, "late", "a", "")
	})
	equal(t, "events after trimming", ids(t, server.Client, "a"), numbers(1, 50))
}

func TestTrimAsksBeforeItRemoves(t *testing.T) {
	t.Parallel()
	server := testredis.NewDatabase(t)
	s := open(t, server.URL()+"?keep=1")
	write(t, s, events("a", 1, 50))
	broken := errors.New("the database is down")
	err := s.Trim(t.Context(), "shop", "a", func(context.Context, []int64) ([]int64, error) { return nil, broken })
	if !errors.Is(err, broken) {
		t.Errorf("got %v", err)
	}
	equal(t, "events after trimming", ids(t, server.Client, "a"), numbers(1, 50))
}

func TestTrimInACluster(t *testing.T) {
	t.Parallel()
	servers, prefix := testredis.SharedCluster(t)
	s := open(t, servers.URL()+"?keep=10&prefix="+prefix)
	write(t, s, events("a", 1, 300), events("b{x}", 301, 600))
	trim(t, s, needs())
	client := servers.Client(t)
	equal(t, "a", ids(t, client, prefix+"a"), numbers(291, 300))
	equal(t, "b", ids(t, client, prefix+"b{x}"), numbers(301, 600))
}
