package consume_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/internal/test/testguide"
	"github.com/posthorn/posthorn/internal/test/testworld"
)

// The roles that docs/operations.md names are enough for a program. Consumers make
// subscriptions with filters, and handle those that an admin has
// made with conditions, which they may not.
func TestRolesAreEnough(t *testing.T) {
	w := newWorld(t)
	w.Exec(`select posthorn.subscribe('default', 'billing', 'large', '{"conditions_sql": "e.key = s.params->>''key''", "params": {"key": "7"}}')`)
	url := testguide.NewUser(t, w.URL).With("posthorn_consumer")
	consumer := w.OpenWith(posthorn.Config{DatabaseURL: url})
	billing := consumer.Group("billing", quick)
	billing.Subscribe("some", posthorn.Subscription{Filter: posthorn.Filter{Types: []string{"a"}}, ExpireAfter: time.Hour})
	for _, name := range []string{"some", "large"} {
		billing.Handle(name, posthorn.Subscribed, func(_ context.Context, e posthorn.Event) error {
			w.say("%s %s", name, e.Type)
			return nil
		})
	}
	testworld.Run(t, consumer)
	w.Await("select count(*) = 2 from posthorn.subscriptions")
	publisher := w.OpenWith(posthorn.Config{DatabaseURL: testguide.NewUser(t, w.URL).With("posthorn_publisher")})
	_, err := publisher.Publish(t.Context(), publisher.Pool(), posthorn.Message{Type: "a"}, posthorn.Message{Type: "b", Key: "7"}, posthorn.Message{Type: "b"})
	if err != nil {
		t.Fatal(err)
	}
	lines := w.awaitLines(2)
	w.settled("billing")
	slices.Sort(lines)
	if diff := cmp.Diff([]string{"large b", "some a"}, lines); diff != "" {
		t.Errorf("handled (-want +got):\n%s", diff)
	}
	if found, err := consumer.Admin().Subscriptions(t.Context(), "billing"); err != nil || len(found) != 2 {
		t.Errorf("subscriptions %+v, %v", found, err)
	}

	group := w.OpenWith(posthorn.Config{DatabaseURL: url}).Group("other", quick)
	group.Subscribe("mine", posthorn.Subscription{Condition: "true"})
	if _, err := group.Fetch(t.Context(), 1); !errors.Is(err, posthorn.ErrRefused) || posthorn.Hint(err) == "" {
		t.Errorf("a consumer made a condition: %v", err)
	}
}
