package main

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/posthorn/posthorn/admin"
)

func newTokens(a *app) *cobra.Command {
	return holding(about{
		use:   "tokens",
		short: "Say who may use the HTTP API",
		long: `API tokens say who may use the HTTP API of posthorn serve and posthorn up, and
for what. From the first token on nobody gets in without one, also when all of
them are revoked or have expired.`,
	}, newTokensList(a), newTokensCreate(a), newTokensRevoke(a))
}

func newTokensList(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List tokens, and when they were used last",
		Long: `List the tokens of every namespace, or those that are good in the one that
--namespace names. Of their secrets there is nothing to show: Posthorn does not
have them.`,
		Example: "  posthorn tokens list --namespace shop",
		Args:    cobra.NoArgs,
	}
	all := cmd.Flags().Bool("all-namespaces", false, "those of every namespace, whatever --namespace says")
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return a.withAdmin(cmd.Context(), func(adm *admin.Admin) error {
			list := adm.Tokens
			if *all || !a.namespaceGiven {
				list = adm.AllTokens
			}
			tokens, err := list(cmd.Context())
			if err != nil {
				return err
			}
			return tokenColumns.printOrJSON(cmd.OutOrStdout(), tokens, *asJSON)
		})
	}
	return cmd
}

var tokenColumns = columns[admin.TokenStatus]{"id|name|namespace|token|state|scopes|streams|expires|last used", func(k admin.TokenStatus) []any {
	return []any{
		k.ID, k.Name, namespaceOf(k), k.Prefix, k.State, strings.Join(k.Scopes, ", "), strings.Join(k.Streams, ", "), k.ExpiresAt, k.LastUsedAt,
	}
}}

func namespaceOf(t admin.TokenStatus) string {
	if t.Namespace == nil {
		return "(all)"
	}
	return *t.Namespace
}
