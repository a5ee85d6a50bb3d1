package consume_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/internal/test/testworld"
	"github.com/posthorn/posthorn/posthorntest"
)

// Guarantee 3: ordered groups never run two events of a slot at once, and keep
// their order over several processes, while events fail.
func TestOrderIsKept(t *testing.T) {
	for _, transactional := range []bool{false, true} {
		t.Run(fmt.Sprintf("transactional %v", transactional), func(t *testing.T) {
			w := newWorld(t)
			config := quick
			config.Order, config.Attempts = posthorn.OrderKey, posthorn.Unlimited
			const keys, each = 5, 30
			for range 3 {
				ph := w.OpenWith(posthorn.Config{})
				g := ph.Group("billing", config)
				handler := func(e posthorn.Event) error {
					w.say("begin %s", e.Key)
					defer w.say("end %s", e.Key)
					if e.ID%7 == 0 && e.Delivery == 1 {
						return errors.New("not yet")
					}
					w.say("done %s %d", e.Key, e.ID)
					return nil
				}
				if transactional {
					g.HandleTx("charge", ">", func(_ context.Context, _ pgx.Tx, e posthorn.Event) error { return handler(e) })
				} else {
					g.Handle("charge", ">", func(_ context.Context, e posthorn.Event) error { return handler(e) })
				}
				testworld.Run(t, ph)
			}
			ph := w.OpenWith(posthorn.Config{})
			want := map[string][]string{}
			for range each {
				for key := range keys {
					k := fmt.Sprint("k", key)
					id := posthorntest.Publish(t, ph, posthorn.Message{Type: "a", Key: k})[0]
					want[k] = append(want[k], fmt.Sprint(id))
				}
			}
			w.settled("billing")
			got, running := map[string][]string{}, map[string]int{}
			for _, line := range w.lines() {
				words := strings.Fields(line)
				key := words[1]
				switch words[0] {
				case "begin":
					if running[key]++; running[key] > 1 {
						t.Errorf("two events of %s at once", key)
					}
				case "end":
					running[key]--
				case "done":
					got[key] = append(got[key], words[2])
				}
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("order (-want +got):\n%s", diff)
			}
		})
	}
}

// SetAside lets the others pass.
func TestSetAside(t *testing.T) {
	w := newWorld(t)
	ph := w.OpenWith(posthorn.Config{})
	config := quick
	config.Order, config.SetAside = posthorn.OrderTotal, true
	ids := posthorntest.Publish(t, ph, slices.Repeat([]posthorn.Message{{Type: "a"}}, 4)...)
	ph.Group("billing", config).Handle("charge", ">", func(_ context.Context, e posthorn.Event) error {
		if e.ID == ids[1] && e.Delivery == 1 {
			return errors.New("not yet")
		}
		w.say("%d", e.ID)
		return nil
	})
	testworld.Run(t, ph)
	w.awaitLines(4)
	w.settled("billing")
	want := []string{fmt.Sprint(ids[0]), fmt.Sprint(ids[2]), fmt.Sprint(ids[3]), fmt.Sprint(ids[1])}
	if diff := cmp.Diff(want, w.lines()); diff != "" {
		t.Errorf("order (-want +got):\n%s", diff)
	}
}
