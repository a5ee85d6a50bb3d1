package torture

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
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
			messages[i] = posthorn.Message{Type: "torture.event", Stream: streams[rand.IntN(len(streams))], Payload: content{publisher, n + i}}
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

// truth is what the log has, by stream.
type truth map[string]map[int64]content

func readTruth(ctx context.Context, url string) (truth, error) {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return nil, err
	}
	defer conn.Close(ctx)
	rows, err := conn.Query(ctx, `select e.id, s.name, (e.payload->>'publisher')::int, (e.payload->>'n')::int
		from posthorn.events e join posthorn.streams s on s.id = e.stream_id where e.type = 'torture.event'`)
	if err != nil {
		return nil, err
	}
	all := truth{}
	var id int64
	var stream string
	var c content
	_, err = pgx.ForEachRow(rows, []any{&id, &stream, &c.Publisher, &c.N}, func() error {
		if all[stream] == nil {
			all[stream] = map[int64]content{}
		}
		all[stream][id] = c
		return nil
	})
	return all, err
}

// compare says what is wrong with what a place has of a stream: repeats are
// dropped, if it may have them.
func (all truth) compare(stream string, ids []int64, once bool) (repeats int, wrong error) {
	seen := map[int64]bool{}
	last := map[int]int{}
	for _, id := range ids {
		c, published := all[stream][id]
		switch {
		case !published:
			return repeats, fmt.Errorf("%s: event %d was invented", stream, id)
		case seen[id]:
			if repeats++; once {
				return repeats, fmt.Errorf("%s: event %d is there twice", stream, id)
			}
			continue
		}
		if before, any := last[c.Publisher]; any && before >= c.N {
			return repeats, fmt.Errorf("%s: event %d, the %dth of publisher %d, comes after its %dth", stream, id, c.N, c.Publisher, before)
		}
		seen[id], last[c.Publisher] = true, c.N
	}
	for id := range all[stream] {
		if !seen[id] {
			return repeats, fmt.Errorf("%s: event %d was lost; %d of %d are there", stream, id, len(seen), len(all[stream]))
		}
	}
	return repeats, nil
}
