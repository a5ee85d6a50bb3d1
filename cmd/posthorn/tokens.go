package main

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/posthorn/posthorn/admin"
)

func newTokens(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "tokens",
		Short: "Say who may use the HTTP API",
		Long: `API tokens say who may use the HTTP API of posthorn serve and posthorn up, and
for what. From the first token on nobody gets in without one, also when all of
them are revoked or have expired.`,
		Args: cobra.NoArgs,
		RunE: help,
	}
	cmd.AddCommand(newTokensList(a), newTokensCreate(a), newTokensRevoke(a))
	return cmd
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
			if *asJSON {
				return printJSON(cmd.OutOrStdout(), append([]admin.TokenStatus{}, tokens...))
			}
			t := newTable(cmd.OutOrStdout(), "id", "name", "namespace", "token", "state", "scopes", "streams", "expires", "last used")
			for _, k := range tokens {
				t.row(k.ID, k.Name, namespaceOf(k), k.Prefix, k.State, strings.Join(k.Scopes, ", "), strings.Join(k.Streams, ", "),
					k.ExpiresAt, k.LastUsedAt)
			}
			return t.flush()
		})
	}
	return cmd
}

func namespaceOf(t admin.TokenStatus) string {
	if t.Namespace == nil {
		return "(all)"
	}
	return *t.Namespace
}
