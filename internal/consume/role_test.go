package consume_test

import (
	"context"
	"net/url"
	"testing"

	"github.com/posthorn/posthorn"
)

// as is the database's URL for a new user who has a role of ours.
func (w *world) as(user, role string) string {
	w.t.Helper()
	database := ask[string](w, "select current_database()")
	user += "_" + database // users belong to the cluster, which other tests share
	w.exec("create role " + user + " login password 'secret' in role " + role)
	w.t.Cleanup(func() {
		_, _ = w.pool.Exec(context.Background(), "drop role "+user)
	})
	parsed, err := url.Parse(w.url)
	if err != nil {
		w.t.Fatal(err)
	}
	parsed.User = url.UserPassword(user, "secret")
	return parsed.String()
}

// The roles that docs/operations.md names are enough for a program.
func TestRolesAreEnough(t *testing.T) {
	w := newWorld(t)
	consumer := w.openAs(w.as("worker", "posthorn_consumer"))
	consumer.Group("billing", quick).Handle("charge", ">", func(_ context.Context, e posthorn.Event) error {
		w.say("%d", e.ID)
		return nil
	})
	w.run(consumer)
	publisher := w.openAs(w.as("shop", "posthorn_publisher"))
	if _, err := publisher.Publish(t.Context(), publisher.Pool(), posthorn.Message{Type: "a"}, posthorn.Message{Type: "b"}); err != nil {
		t.Fatal(err)
	}
	w.awaitLines(2)
	w.settled("billing")
}
