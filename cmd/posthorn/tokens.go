package main

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"github.com/posthorn/posthorn/admin"
	"github.com/posthorn/posthorn/op"
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
	in := &op.ListTokensInput{}
	cmd := listCommand[admin.TokenStatus]{
		about: aboutOf(op.ListTokens, "Without --namespace the tokens of every namespace are listed."),
		list: func(adm *admin.Admin, ctx context.Context) ([]admin.TokenStatus, error) {
			in.AllNamespaces = in.AllNamespaces || !a.namespaceGiven
			return op.ListTokens.Call(ctx, adm, in)
		},
		columns: columns[admin.TokenStatus]{"id|name|namespace|token|state|scopes|streams|expires|last used", func(k admin.TokenStatus) []any {
			return []any{
				k.ID, k.Name, namespaceOf(k), k.Prefix, k.State, strings.Join(k.Scopes, ", "), strings.Join(k.Streams, ", "), k.ExpiresAt, k.LastUsedAt,
			}
		}},
	}.build(a)
	addFlags(cmd.Flags(), in)
	return cmd
}

func namespaceOf(t admin.TokenStatus) string {
	if t.Namespace == nil {
		return "(all)"
	}
	return *t.Namespace
}
