package main

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"github.com/posthorn/posthorn/admin"
)

func newTokens(a *app) *cobra.Command {
	return parent(about{
		use:   "tokens",
		short: "Manage the tokens for the HTTP API",
		long: `API tokens are the keys to the HTTP API of posthorn serve and posthorn up. As soon
as there is a token, every request needs one, even when all tokens are revoked or
have expired.`,
	}, newTokensList(a), newTokensCreate(a), newTokensRevoke(a))
}

func newTokensList(a *app) *cobra.Command {
	var all bool
	cmd := listCommand[admin.TokenStatus]{
		about: about{
			use:   "list",
			short: "List tokens, and when they were last used",
			long: `List the tokens of every namespace, or those that are valid in the namespace of
--namespace. Posthorn does not have their secrets, and cannot show them.`,
			example: "  posthorn tokens list --namespace shop",
		},
		list: func(adm *admin.Admin, ctx context.Context) ([]admin.TokenStatus, error) {
			if all || !a.namespaceGiven {
				return adm.AllTokens(ctx)
			}
			return adm.Tokens(ctx)
		},
		columns: columns[admin.TokenStatus]{"id|name|namespace|token|state|scopes|streams|expires|last used", func(k admin.TokenStatus) []any {
			return []any{
				k.ID, k.Name, namespaceOf(k), k.Prefix, k.State, strings.Join(k.Scopes, ", "), strings.Join(k.Streams, ", "), k.ExpiresAt, k.LastUsedAt,
			}
		}},
	}.build(a)
	cmd.Flags().BoolVar(&all, "all-namespaces", false, "the tokens of every namespace, even with --namespace")
	return cmd
}

func namespaceOf(t admin.TokenStatus) string {
	if t.Namespace == nil {
		return "(all)"
	}
	return *t.Namespace
}
