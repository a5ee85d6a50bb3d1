package pg_test

import (
	"testing"
	"time"

	"github.com/posthorn/posthorn/internal/pg"
)

func TestTakeRelay(t *testing.T) {
	everyMode(t, func(t *testing.T, pool *pg.Pool) {
		group := must(pg.DefineRelay(t.Context(), pool, ns, "out", pg.RelayConfig{}))(t)
		lead := must(pg.LeadRelay(t.Context(), pool, group, "supervisor-h-1-0123abcd", time.Minute, 0))(t)
		var want []pg.Event
		for i, m := range messages {
			m.Stream = []string{"a", "b"}[i%2]
			want = append(want, delivered(m, publish(t, pool, m)))
		}
		next := pg.RelayTake{Lead: lead, MaxEvents: 100, LeaseFor: time.Minute}
		w := must(pool.TakeRelay(t.Context(), next))(t)
		diffEvents(t, want, w.Events)
		if !w.Held() || w.Retries || len(w.StreamIDs) != len(want) {
			t.Fatalf("took %+v", w)
		}

		ids := map[string][]int64{}
		streams := map[string]int64{}
		for i, e := range want {
			ids[e.Stream] = append(ids[e.Stream], e.ID)
			streams[e.Stream] = w.StreamIDs[i]
		}
		next.Settled = &w
		next.Report = pg.RelayReport{
			Relayed: []pg.Relayed{{StreamID: streams["a"], First: ids["a"][0], Last: ids["a"][len(ids["a"])-1]}},
			Aside:   []pg.Aside{{StreamID: streams["b"], IDs: ids["b"]}},
		}
		if after := must(pool.TakeRelay(t.Context(), next))(t); after.Held() {
			t.Errorf("took %+v after all events", after)
		}
		aside := must(pool.TakeAside(t.Context(), lead, []int64{streams["a"], streams["b"]}, time.Minute))(t)
		if len(aside) != 1 || !aside[0].Held() || aside[0].StreamIDs[0] != streams["b"] {
			t.Fatalf("took %+v of the events that were set aside", aside)
		}
		var wantAside []pg.Event
		for _, e := range want {
			if e.Stream == "b" {
				wantAside = append(wantAside, e)
			}
		}
		diffEvents(t, wantAside, aside[0].Events)
	})
}
