package main

import (
	"github.com/spf13/cobra"

	"github.com/posthorn/posthorn/admin"
	"github.com/posthorn/posthorn/op"
)

func newNamespaces(a *app) *cobra.Command {
	return parent(about{
		use:   "namespaces",
		short: "List, make, close, open and delete namespaces",
		long: `A namespace is a log of its own, with its groups, jobs and everything else, such as
one for each tenant. Other commands work in the one that --namespace names.`,
	},
		list(a, op.ListNamespaces, "", namespaceColumns),
		change(a, op.DefineNamespace),
		change(a, op.CloseNamespace),
		change(a, op.OpenNamespace),
		newKeepNamespace(a),
		newDeleteNamespace(a),
	)
}

var namespaceColumns = columns[admin.Namespace]{"namespace|created|metadata|closed|moved to", func(n admin.Namespace) []any {
	return []any{n.Name, n.CreatedAt, string(n.Metadata), n.ClosedAt, n.MovedTo}
}}
