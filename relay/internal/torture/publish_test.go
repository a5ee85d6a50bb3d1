package torture

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/posthorn/posthorn"
)

var streams = []string{"orders", "stream:user:events", "payments", "mail {x}", "audit/log", "rare"}

// content is what an event says: which publisher made it, as its how manieth. A
// publisher goes on only when a transaction has ended, so within a stream its
// events depend on each other in that order.
type content struct {
	stream    string
	Publisher int `json:"publisher"`
	N         int `json:"n"`
}

// publish publishes until ctx ends: mostly one event in a transaction, sometimes
// some, sometimes slowly, sometimes in vain.
func publish(ctx context.Context, url string, publisher int, pause time.Duration) error {
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		return err
	}
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return err
	}
	defer pool.Close()
	ph, err := posthorn.Open(context.WithoutCancel(ctx), posthorn.Config{Pool: pool, Logger: quiet()})
	if err != nil {
		return err
	}
	defer ph.Close()
	// The last transaction is waited for.
	work := context.WithoutCancel(ctx)
	for n := 0; ctx.Err() == nil; {
		messages := make([]posthorn.Message, 1+rand.IntN(3)*rand.IntN(2))
		for i := range messages {
			messages[i] = posthorn.Message{Type: "torture.event", Stream: streams[rand.IntN(len(streams))], Payload: content{Publisher: publisher, N: n + i}}
		}
		err := pgx.BeginFunc(work, pool, func(tx pgx.Tx) error {
			if _, err := ph.Publish(work, tx, messages...); err != nil {
				return err
			}
			switch rand.IntN(40) {
			case 0:
				return errInVain
			case 1, 2:
				time.Sleep(time.Duration(rand.IntN(200)) * time.Millisecond)
			}
			return nil
		})
		if err == nil || !errors.Is(err, errInVain) {
			n += len(messages) // after trouble they may be there or not
		}
		time.Sleep(pause)
	}
	return nil
}

var errInVain = errors.New("rolled back on purpose")

// truth is what the log has, by id.
type truth map[int64]content

func readTruth(ctx context.Context, url string) (truth, error) {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return nil, err
	}
	defer conn.Close(ctx)
	rows, err := conn.Query(ctx, `select e.id, s.name, (e.payload->>'publisher')::int, (e.payload->>'n')::int
		from posthorn.events e join posthorn.streams s on s.id = e.stream_id`)
	if err != nil {
		return nil, err
	}
	all := truth{}
	var id int64
	var c content
	_, err = pgx.ForEachRow(rows, []any{&id, &c.stream, &c.Publisher, &c.N}, func() error {
		all[id] = c
		return nil
	})
	return all, err
}

// compare says what is wrong with the ids of a place. Repeats are counted, and
// wrong where each may be there but once.
func (all truth) compare(ids []int64, once, ordered bool) (repeats int, wrong error) {
	type line struct {
		stream    string
		publisher int
	}
	seen := map[int64]bool{}
	last := map[line]int{}
	for _, id := range ids {
		c, published := all[id]
		l := line{c.stream, c.Publisher}
		switch before, any := last[l]; {
		case !published:
			return repeats, fmt.Errorf("event %d was invented", id)
		case seen[id]:
			if repeats++; once {
				return repeats, fmt.Errorf("event %d is there twice", id)
			}
			continue
		case ordered && any && before >= c.N:
			return repeats, fmt.Errorf("event %d, the %dth of publisher %d, comes after its %dth in %s", id, c.N, c.Publisher, before, c.stream)
		}
		seen[id], last[l] = true, c.N
	}
	for id, c := range all {
		if !seen[id] {
			return repeats, fmt.Errorf("event %d of %s was lost; %d of %d are there", id, c.stream, len(seen), len(all))
		}
	}
	return repeats, nil
}

func TestCompare(t *testing.T) {
	t.Parallel()
	all := truth{1: {"s", 0, 0}, 2: {"s", 0, 1}, 3: {"t", 0, 2}, 4: {"s", 1, 0}}
	for _, c := range []struct {
		ids           []int64
		once, ordered bool
		repeats       int
		wrong         string
	}{
		{[]int64{3, 1, 4, 2}, true, true, 0, ""},
		{[]int64{2, 1, 3, 4}, true, false, 0, ""},
		{[]int64{2, 1, 3, 4}, true, true, 0, "comes after"},
		{[]int64{1, 2, 1, 2, 3, 4}, false, true, 2, ""},
		{[]int64{1, 2, 1, 3, 4}, true, true, 1, "twice"},
		{[]int64{1, 2, 3}, true, true, 0, "lost"},
		{[]int64{1, 2, 3, 4, 5}, true, true, 0, "invented"},
	} {
		repeats, wrong := all.compare(c.ids, c.once, c.ordered)
		if repeats != c.repeats || (wrong == nil) != (c.wrong == "") || wrong != nil && !strings.Contains(wrong.Error(), c.wrong) {
			t.Errorf("%v: %d repeats, %v", c, repeats, wrong)
		}
	}
}
