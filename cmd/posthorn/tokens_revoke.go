package main

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/admin"
	"github.com/posthorn/posthorn/internal/token"
	"github.com/posthorn/posthorn/op"
)

func newTokensRevoke(a *app) *cobra.Command {
	cmd := aboutOf(op.RevokeToken, `TOKEN is its id, its beginning, such as ph_k3J9xQ2m, or the whole token.

With --all every request is refused until there is another token. With --all
--open no request needs a token, as before the first one: servers answer requests
of this machine only. A server that was started while there were tokens requires
them until it is restarted.`).command()
	all := cmd.Flags().Bool("all", false, "all tokens, of every namespace")
	open := cmd.Flags().Bool("open", false, "with --all: requests need no token any more")
	yes := yesFlag(cmd)
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if *all {
			return cobra.NoArgs(cmd, args)
		}
		return cobra.ExactArgs(1)(cmd, args)
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if *open && !*all {
			return usageError{errors.New("--open needs --all: while there is a token, requests need one"), "give both, or leave --open out"}
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
	after := "requests still need one"
	if open {
		after = "requests need none; restart the servers that were started while there were tokens"
	}
	return printLine(cmd, "%s revoked; %s", op.Are(n, "token"), after)
}

// revokeToken revokes the token with an id or a prefix, or the given token itself.
func revokeToken(cmd *cobra.Command, adm *admin.Admin, given string) error {
	tokens, err := adm.AllTokens(cmd.Context())
	if err != nil {
		return err
	}
	if t, whole := token.Parse(given); whole {
		given = t.Prefix
	}
	for _, t := range tokens {
		if given != strconv.Itoa(t.ID) && given != t.Prefix {
			continue
		}
		revoked, err := adm.RevokeToken(cmd.Context(), t.ID)
		if err != nil {
			return err
		}
		sentence := "token %d (%s, %s) is revoked"
		if !revoked {
			sentence = "token %d (%s, %s) was revoked before"
		}
		return printLine(cmd, sentence, t.ID, t.Name, t.Prefix)
	}
	return hintError{
		fmt.Errorf("%w: there is no such token", posthorn.ErrNotFound),
		"give the id or the beginning of a token, as posthorn tokens list --all-namespaces prints it",
	}
}
