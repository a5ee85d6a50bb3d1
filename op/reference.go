package op

import (
	"fmt"
	"strings"
)

var faces = []Face{HTTP, Command, Page}

// Reference is docs/reference.md: each operation and its names in Go, SQL, HTTP, on the
// command line and on the page.
func Reference() string {
	var b strings.Builder
	b.WriteString("# Operations\n\n" +
		"Each operation, and how it is reached. `make generate` writes this page from package `op`; the\n" +
		"[SQL reference](sql.md) and `/openapi.json` have the arguments, and [tools.json](tools.json) has them as JSON schemas.\n" +
		"Protocols, such as publishing, claiming and streams, are not operations in this sense, and topics that are not listed are still written by hand.\n\n" +
		"`scope` is what a token needs, over HTTP and on the page. In SQL, in Go and on the command line the\n" +
		"[role](operations.md#roles) of the database user decides: it must be granted the function.\n")
	topic := ""
	for _, o := range All() {
		d := o.Describe()
		if d.Topic.Many != topic {
			topic = d.Topic.Many
			fmt.Fprintf(&b, "\n## %s\n\n| operation | scope | Go | SQL | HTTP | command | page |\n|---|---|---|---|---|---|---|\n", strings.ToUpper(topic[:1])+topic[1:])
		}
		fmt.Fprintf(&b, "| %s | %s | `Admin.%s` | `%s` | %s | %s | %s |\n", d.Does, d.Scope, d.Go, d.SQL,
			d.reached(HTTP, d.Method+" "+d.Path), d.reached(Command, "posthorn "+d.Command), d.reached(Page, d.Page))
	}
	b.WriteString("\n## Where an operation is missing, and why\n\n")
	for _, o := range All() {
		d := o.Describe()
		for _, face := range faces {
			if reason := d.Without[face]; reason != "" {
				fmt.Fprintf(&b, "- %s, %s: %s.\n", d.Name, face, reason)
			}
		}
	}
	return b.String()
}

func (a About) reached(face Face, name string) string {
	if a.Without[face] != "" {
		return "–"
	}
	return "`" + strings.ReplaceAll(name, "|", `\|`) + "`"
}
