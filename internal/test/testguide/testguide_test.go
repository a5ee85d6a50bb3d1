package testguide

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/posthorn/posthorn/posthorntest"
)

func TestMain(m *testing.M) { posthorntest.Main(m) }

const page = "# A\n\nThe examples need the\n[role](operations.md#roles) `posthorn_consumer`.\n\n```sql\none\n```\n\n```\nnone\n```\n" +
	"## B\n\n    posthorn two\n\n### C\n\nThe examples need the owner of the schema. Other words.\n\n```sh\nthree\n```\n### D\n```go\nfour\n```\n" +
	"## E\n\nThe examples need a server with the [roles](operations.md#roles) `posthorn_consumer` and `posthorn_publisher`, and `create on database`.\n\n```js\nfive\n```\n" +
	"| there | here | why |\n|---|---|---|\n| `6` | `select six()` | |\n| 7 | [seven](c.md) | |\n"

// A sentence holds under its heading, and the next one under the same heading replaces it.
func TestWhereASentenceHolds(t *testing.T) {
	t.Parallel()
	found, err := read(page)
	if err != nil {
		t.Fatal(err)
	}
	want := []Example{
		{"sql", "one\n", "posthorn_consumer", ""},
		{"sh", "posthorn two\n", "posthorn_consumer", ""},
		{"sh", "three\n", Owner, ""},
		{"go", "four\n", "posthorn_consumer", ""},
		{"js", "five\n", "posthorn_consumer,posthorn_publisher,create on database", ""},
		{"row", "select six()", "posthorn_consumer,posthorn_publisher,create on database", "E"},
	}
	if diff := cmp.Diff(want, found); diff != "" {
		t.Errorf("examples (-want +got):\n%s", diff)
	}
}

func TestPagesMustSayWhatTheyNeed(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"# A\n```sql\none\n```\n": "no sentence says what this example needs:\none",
		"# A\n## B\nThe examples need the owner of the schema.\n## C\n    posthorn two\n": "no sentence says what this example needs:\nposthorn two",
		"# A\nThe examples need posthorn_admin.\n":                                        "has not the form of the other guides",
	} {
		if _, err := read(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

// A user has the rights that are named, and loses those from before.
func TestUsersHaveTheNamedRights(t *testing.T) {
	t.Parallel()
	database := posthorntest.Database(t)
	u := NewUser(t, database)
	u.Own("create table mine (id int)")
	can := func(statement string) bool {
		conn, err := pgx.Connect(t.Context(), u.url)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close(t.Context())
		_, err = conn.Exec(t.Context(), statement)
		return err == nil
	}
	for _, step := range []struct {
		needs                            Needs
		publish, claim, schema, inPublic bool
	}{
		{needs: ""},
		{needs: "posthorn_publisher,create on database", publish: true, schema: true},
		{needs: "posthorn_consumer,posthorn_publisher", publish: true, claim: true},
		{needs: "posthorn_consumer,create on schema public", claim: true, inPublic: true},
	} {
		u.With(step.needs)
		got := step
		got.publish = can("select posthorn.publish('default', 'a')")
		got.claim = can("select * from posthorn.list_streams('default')")
		got.schema = can("create schema new")
		got.inPublic = can("create table public.new ()")
		if got != step {
			t.Errorf("got %+v, want %+v", got, step)
		}
		if !can("select from mine") {
			t.Error("the user does not own the table")
		}
	}
	if u.With(Owner) != database {
		t.Error("the owner is another user")
	}
}
