package testguide

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/posthorn/posthorn/posthorntest"
)

func TestMain(m *testing.M) { posthorntest.Main(m) }

const page = "# A\n\nThe examples need the\n[role](operations.md#roles) `posthorn_consumer`.\n\n```sql\none\n```\n```text\n1\n```\n\n```\nnone\n```\n" +
	"## B\n\n    posthorn two\n\n### C\n\nThe examples need the owner of the schema. Other words.\n\n```sh\nthree\n```\n### D\n```go\nfour\n```\n" +
	"## E\n\nThe examples need a server with the [roles](operations.md#roles) `posthorn_consumer` and `posthorn_publisher`, and `create on database`.\n\n```js\nfive\n```\n" +
	"```ts\nsix\n```\n" +
	"| there | here | why |\n|---|---|---|\n| `7` | `select seven()` | |\n| 8 | [eight](c.md) | |\n"

// A sentence holds under its heading, and the next one under the same heading replaces it.
func TestWhereASentenceHolds(t *testing.T) {
	t.Parallel()
	found, err := read(page)
	if err != nil {
		t.Fatal(err)
	}
	want := []Example{
		{Language: "sql", Text: "one\n", Needs: "posthorn_consumer", Output: "1\n"},
		{Language: "sh", Text: "posthorn two\n", Needs: "posthorn_consumer", Section: "B"},
		{Language: "sh", Text: "three\n", Needs: Owner, Section: "B"},
		{Language: "go", Text: "four\n", Needs: "posthorn_consumer", Section: "B"},
		{Language: "js", Text: "five\n", Needs: "posthorn_consumer,posthorn_publisher,create on database", Section: "E"},
		{Language: "ts", Text: "six\n", Needs: "posthorn_consumer,posthorn_publisher,create on database", Section: "E"},
		{Language: "row", Text: "select seven()", Needs: "posthorn_consumer,posthorn_publisher,create on database", Section: "E"},
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

// Dots stand for text or lines, and times and widths may differ; other differences count.
func TestCheckOutput(t *testing.T) {
	t.Parallel()
	const printed = "BEGIN\n ID   AT\n-------+-----\n 1    2026-11-27 09:41:03.5 +00:00\n{\"id\":1,\"status\":\"PENDING\"}\n"
	for block, right := range map[string]bool{
		"…\nID AT\n----+---\n1  2020-01-01 00:00:00 +00:00\n{\"id\":1,…}\n": true,
		"…\n": true,
		"ID AT\n----+---\n1  2020-01-01 00:00:00 +00:00\n{\"id\":1,…}\n":    false,
		"…\nID AT\n----+---\n2  2020-01-01 00:00:00 +00:00\n{\"id\":1,…}\n": false,
		"…\nID AT\n----+---\n1  2020-01-01 00:00:00 +00:00\n":               false,
	} {
		if err := CheckOutput(printed, block); (err == nil) != right {
			t.Errorf("%s: %v", block, err)
		}
	}
}
