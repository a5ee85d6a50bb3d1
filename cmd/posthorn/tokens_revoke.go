package main

import (
	"fmt"
	"strconv"

	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"

	"github.com/posthorn/posthorn/internal/pg"
	"github.com/posthorn/posthorn/internal/token"
)

func newTokensRevoke(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "revoke TOKEN",
		Short: "End a token for good",
		Long: `End a token for good. Within five seconds no server accepts it any more.

TOKEN is its id, how it begins, such as ph_k3J9xQ2m, or all of it: for a leaked
one, what was found suffices.`,
		Example: "  posthorn tokens revoke 3",
		Args:    cobra.ExactArgs(1),
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return a.withDatabase(cmd.Context(), func(conn *pgx.Conn) error { return revokeToken(cmd, conn, args[0]) })
	}
	return cmd
}

func revokeToken(cmd *cobra.Command, conn *pgx.Conn, which string) error {
	tokens, err := pg.ListTokens(cmd.Context(), conn, "")
	if err != nil {
		return err
	}
	if t, whole := token.Parse(which); whole {
		which = t.Prefix
	}
	for _, t := range tokens {
		if which != strconv.Itoa(t.ID) && which != t.Prefix {
			continue
		}
		revoked, err := pg.RevokeToken(cmd.Context(), conn, t.ID)
		if err != nil {
			return err
		}
		said := "token %d (%s, %s) is revoked\n"
		if !revoked {
			said = "token %d (%s, %s) was revoked before\n"
		}
		_, err = fmt.Fprintf(cmd.OutOrStdout(), said, t.ID, t.Name, t.Prefix)
		return err
	}
	return hintError{
		fmt.Errorf("%w: there is no such token", pg.ErrNotFound),
		"give an id or the beginning of a token, as posthorn tokens list --all-namespaces shows it",
	}
}
