package main

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/admin"
	"github.com/posthorn/posthorn/internal/token"
)

func newTokensRevoke(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "revoke TOKEN|--all",
		Short: "End a token for good, or all of them",
		Long: `End a token for good. Within five seconds no server accepts it any more.

TOKEN is its id, how it begins, such as ph_k3J9xQ2m, or all of it: for a leaked
one, what was found suffices.

With --all nobody gets in any more, until there is another token. With --all
--open no request needs a token, as before there was one: only this machine is
answered. Servers that have needed tokens since they started need them until they
are restarted.`,
		Example: "  posthorn tokens revoke 3\n  posthorn tokens revoke --all --open",
	}
	all := cmd.Flags().Bool("all", false, "all tokens, of every namespace")
	open := cmd.Flags().Bool("open", false, "with --all: requests need no token from then on")
	yes := yesFlag(cmd)
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if *all {
			return cobra.NoArgs(cmd, args)
		}
		return cobra.ExactArgs(1)(cmd, args)
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if *open && !*all {
			return usageError{errors.New("--open is for --all: while there is a token, requests need one"), "say --all --open, or leave --open out"}
		}
		return a.withAdmin(cmd.Context(), func(adm *admin.Admin) error {
			if *all {
				return revokeAllTokens(cmd, adm, *open, *yes)
			}
			return revokeToken(cmd, adm, args[0])
		})
	}
	return cmd
}

func revokeAllTokens(cmd *cobra.Command, adm *admin.Admin, open, yes bool) error {
	question := "revoke all tokens, of every namespace"
	if open {
		question += ", and let in every program on this machine"
	}
	if err := confirm(cmd, yes, question); err != nil {
		return err
	}
	n, err := adm.RevokeTokens(cmd.Context(), open)
	if err != nil {
		return err
	}
	said := "%d tokens are revoked; requests still need one\n"
	if open {
		said = "%d tokens are revoked; requests need none; restart the servers that were started since there are tokens\n"
	}
	_, err = fmt.Fprintf(cmd.OutOrStdout(), said, n)
	return err
}

func revokeToken(cmd *cobra.Command, adm *admin.Admin, which string) error {
	tokens, err := adm.AllTokens(cmd.Context())
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
		revoked, err := adm.RevokeToken(cmd.Context(), t.ID)
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
		fmt.Errorf("%w: there is no such token", posthorn.ErrNotFound),
		"give an id or the beginning of a token, as posthorn tokens list --all-namespaces shows it",
	}
}
