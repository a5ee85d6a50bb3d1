// Package testguide reads the examples of the guides in docs, with the rights that the
// guides name for them, and makes users of the database who have these rights and no others.
package testguide

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/posthorn/posthorn/internal/test/await"
)

// Example is a block of a guide, an indented command, or a row of a table, see [Rows].
type Example struct {
	Language string // sh, sql, go, js, ts or row
	Text     string
	Needs    Needs
	Section  string // the heading of the second level above it; "" if there is none
	Output   string // the block of text right under the example, see [CheckOutput]; "" if there is none
}

// Needs are the rights that a guide names for an example: [Owner], or roles of Posthorn
// and privileges such as "create on schema public", with commas between them.
type Needs string

// Owner is the owner of the schema.
const Owner Needs = "owner"

var (
	// part is a block of code, an indented command, a heading, a row of three cells of which the
	// second is code, or a sentence about rights.
	part = regexp.MustCompile("(?ms)^```([a-z]*)\n(.*?)^```$|^ {4}(posthorn [^\n]*)$|^(#+) ([^\n]*)$|" +
		"^\\|[^|\n]*\\| `([^`\n]+)` \\|[^|\n]*\\|$|The examples need (.*?)\\.\\s")
	sentence = regexp.MustCompile("^(?:a server with )?the (?:" +
		"\\[role\\]\\((?:docs/)?operations\\.md#roles\\) (`posthorn_[a-z]+`)|" +
		"\\[roles\\]\\((?:docs/)?operations\\.md#roles\\) (`posthorn_[a-z]+`) and (`posthorn_[a-z]+`))" +
		"(?:, and (`create on [a-z ]+`)(?: and (`create on [a-z ]+`))?)?$")
)

// Examples returns the examples of a page. A sentence "The examples need …" holds for the
// examples that follow it under its heading and the lower ones. The test fails if an
// example has none, or if a sentence has another form.
func Examples(t testing.TB, page string) []Example {
	t.Helper()
	return slices.DeleteFunc(readPage(t, page), func(e Example) bool { return e.Language == "row" })
}

// Rows returns the rows of a page's tables that have three cells, of which the second is a
// statement, request or command. Rights are named as for [Examples].
func Rows(t testing.TB, page string) []Example {
	t.Helper()
	return slices.DeleteFunc(readPage(t, page), func(e Example) bool { return e.Language != "row" })
}

func readPage(t testing.TB, page string) []Example {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	examples, err := read(string(text))
	if err != nil {
		t.Fatalf("%s: %v", page, err)
	}
	return examples
}

func read(text string) (examples []Example, err error) {
	named, section := []Needs{""}, "" // named is by level of heading
	end := -1                         // of the last example
	for _, at := range part.FindAllStringSubmatchIndex(text, -1) {
		match := groups(text, at)
		language, code, command, heading, row, said := match[1], match[2], match[3], match[4], match[6], match[7]
		if language == "text" && at[0] == end+1 {
			examples[len(examples)-1].Output = code
		}
		switch level := len(heading); {
		case level > 0:
			for len(named) <= level {
				named = append(named, named[len(named)-1])
			}
			named = named[:level+1]
			named[level] = named[level-1]
			if level == 2 {
				section = match[5]
			}
		case said != "":
			if named[len(named)-1], err = needs(said); err != nil {
				return nil, err
			}
		case row != "":
			examples = append(examples, Example{Language: "row", Text: row, Needs: named[len(named)-1], Section: section})
		default:
			if command != "" {
				language, code = "sh", command+"\n"
			}
			if !slices.Contains([]string{"sh", "sql", "go", "js", "ts"}, language) {
				continue
			}
			example := Example{Language: language, Text: code, Needs: named[len(named)-1], Section: section}
			if example.Needs == "" {
				return nil, fmt.Errorf("no sentence says what this example needs:\n%s", code)
			}
			examples, end = append(examples, example), at[1]
		}
	}
	return examples, nil
}

// groups are the texts of a match.
func groups(text string, at []int) (all []string) {
	for i := 0; i < len(at); i += 2 {
		if at[i] < 0 {
			all = append(all, "")
		} else {
			all = append(all, text[at[i]:at[i+1]])
		}
	}
	return all
}

func needs(said string) (Needs, error) {
	said = strings.Join(strings.Fields(said), " ")
	if said == "the owner of the schema" {
		return Owner, nil
	}
	match := sentence.FindStringSubmatch(said)
	if match == nil {
		return "", fmt.Errorf("%q has not the form of the other guides", "The examples need "+said)
	}
	rights := slices.DeleteFunc(match[1:], func(right string) bool { return right == "" })
	return Needs(strings.ReplaceAll(strings.Join(rights, ","), "`", "")), nil
}

// User is a role of a database that may log in.
type User struct {
	t      testing.TB
	conn   *pgx.Conn // of the owner
	owner  string    // the URL of the owner
	url    string
	name   string
	rights []string
}

// NewUser makes a user without any rights of Posthorn. When the test ends, the user and
// the user's tables are dropped. database is the URL of a superuser who owns the schema.
func NewUser(t testing.TB, database string) *User {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), database)
	if err != nil {
		t.Fatal(err)
	}
	u := &User{t: t, conn: conn, owner: database}
	parsed, err := url.Parse(database)
	if err != nil {
		t.Fatal(err)
	}
	// Users belong to the cluster, which other tests share.
	var n int
	if err := conn.QueryRow(t.Context(), "select count(*) from pg_roles where starts_with(rolname, current_database() || '_user')").Scan(&n); err != nil {
		t.Fatal(err)
	}
	u.name = fmt.Sprintf("%s_user_%d", conn.Config().Database, n+1)
	u.Exec("create role " + u.name + " login password 'secret'")
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), await.Limit)
		defer cancel()
		defer conn.Close(ctx)
		if _, err := conn.Exec(ctx, "drop owned by "+u.name+"; drop role "+u.name, pgx.QueryExecModeSimpleProtocol); err != nil {
			t.Error(err)
		}
	})
	parsed.User = url.UserPassword(u.name, "secret")
	u.url = parsed.String()
	return u
}

// Exec executes statements as the owner.
func (u *User) Exec(statements string) {
	u.t.Helper()
	if _, err := u.conn.Exec(context.WithoutCancel(u.t.Context()), statements, pgx.QueryExecModeSimpleProtocol); err != nil {
		u.t.Fatalf("%s: %v", statements, err)
	}
}

// Ask returns the answer to a query of one boolean, as the owner. Without a row it is false.
func (u *User) Ask(query string) (holds bool) {
	u.t.Helper()
	err := u.conn.QueryRow(u.t.Context(), "select coalesce(("+query+"), false)").Scan(&holds)
	if err != nil {
		u.t.Fatalf("%s: %v", query, err)
	}
	return holds
}

// Own executes statements as the user. Meanwhile the user may create tables in public.
func (u *User) Own(statements string) {
	u.t.Helper()
	u.Exec("grant create on schema public to " + u.name + "; set role " + u.name)
	u.Exec(statements)
	u.Exec("reset role")
	if !slices.Contains(u.rights, "create on schema public") {
		u.Exec("revoke create on schema public from " + u.name)
	}
}

// With gives the user these rights, and takes all others away. It returns the URL of the
// user's database, or the owner's URL for [Owner].
func (u *User) With(needs Needs) (url string) {
	u.t.Helper()
	if needs == Owner {
		return u.owner
	}
	before := u.rights
	u.rights = strings.FieldsFunc(string(needs), func(r rune) bool { return r == ',' })
	for _, right := range u.rights {
		u.Exec("grant " + u.grantable(right) + " to " + u.name)
	}
	for _, right := range before { // after the grants, so that a program in the background keeps rights that it still needs
		if !slices.Contains(u.rights, right) {
			u.Exec("revoke " + u.grantable(right) + " from " + u.name)
		}
	}
	return u.url
}

func (u *User) grantable(right string) string {
	if right == "create on database" {
		return right + " " + u.conn.Config().Database
	}
	return right
}

// Guides returns the paths of all guides that have examples in one of the languages. docs
// is the path of the directory.
func Guides(t testing.TB, docs string, languages ...string) (pages []string) {
	t.Helper()
	all, err := filepath.Glob(filepath.Join(docs, "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, page := range all {
		if slices.ContainsFunc(Examples(t, page), func(e Example) bool { return slices.Contains(languages, e.Language) }) {
			pages = append(pages, page)
		}
	}
	if len(pages) < 3 {
		t.Fatalf("only %v have examples; the fences have changed", pages)
	}
	return pages
}
