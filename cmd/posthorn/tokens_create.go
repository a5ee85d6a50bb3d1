package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/posthorn/posthorn/admin"
)

const tokensCreateLong = `Make a token for the HTTP API and print it, this once: Posthorn keeps only its
hash. Requests send it as "Authorization: Bearer TOKEN".

NAME tells people whose token it is. SCOPE is one of:

  read         read events, groups, jobs and everything else
  publish      publish events
  consume      make groups and subscriptions, claim and settle events
  jobs:create  make and cancel jobs
  jobs:work    take jobs, and complete or fail them
  admin        everything else: seek, pause, redrive, delete, schedules, webhooks
  all          all of these

No other scope includes another one. As soon as there is a token, every request
needs one; posthorn tokens revoke --all --open ends that. Only tokens that name a
restricted stream may use it.`

const tokensCreateExample = `  posthorn tokens create shop-backend --scope publish --scope read
  TOKEN=$(posthorn tokens create ci --scope jobs:create --expires-in 90d)
  posthorn tokens create payroll --scope consume --stream stream:payroll`

type tokenFlags struct {
	scopes, streams []string
	expiresIn       string
	all             bool
}

func newTokensCreate(a *app) *cobra.Command {
	cmd := about{"create NAME --scope SCOPE...", "Make a token, and print it once", tokensCreateLong, tokensCreateExample}.command()
	var f tokenFlags
	flags := cmd.Flags()
	flags.StringArrayVar(&f.scopes, "scope", nil, "a scope; may be repeated")
	flags.StringArrayVar(&f.streams, "stream", nil, "a restricted stream that it may read and publish to; may be repeated")
	flags.StringVar(&f.expiresIn, "expires-in", "", "how long it is valid, such as 12h or 90d (default: until it is revoked)")
	flags.BoolVar(&f.all, "all-namespaces", false, "valid in every namespace")
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return a.withAdmin(cmd.Context(), func(adm *admin.Admin) error { return a.createToken(cmd, adm, args[0], f, *asJSON) })
	}
	return cmd
}

func (a *app) createToken(cmd *cobra.Command, adm *admin.Admin, name string, f tokenFlags, asJSON bool) error {
	ctx := cmd.Context()
	t := admin.NewToken{Name: name, AllNamespaces: f.all, Scopes: f.scopes, Streams: f.streams}
	var err error
	if t.ExpiresAt, err = f.expiry(ctx, adm); err != nil {
		return err
	}
	before, err := adm.TokensRequired(ctx)
	if err != nil {
		return err
	}
	made, err := adm.CreateToken(ctx, t)
	if err != nil {
		return err
	}
	if asJSON {
		return printJSON(cmd.OutOrStdout(), struct {
			ID        int       `json:"id"`
			Name      string    `json:"name"`
			Prefix    string    `json:"prefix"`
			Token     string    `json:"token"`
			ExpiresAt time.Time `json:"expires_at,omitzero"`
		}{made.ID, name, made.Prefix, made.Secret, t.ExpiresAt})
	}
	where := "namespace " + a.namespace
	if f.all {
		where = "every namespace"
	}
	// The standard output gets only the token, for scripts.
	_, err = fmt.Fprintf(cmd.ErrOrStderr(), "token %d, %s, for %s; it is shown only this once\n", made.ID, made.Prefix, where)
	if err == nil && !before {
		_, err = fmt.Fprintln(cmd.ErrOrStderr(), "it is the first: from now on every request needs a token; posthorn tokens revoke --all --open ends that")
	}
	_, printed := fmt.Fprintln(cmd.OutOrStdout(), made.Secret)
	return errors.Join(err, printed)
}

// expiry is the time by the database's clock at which the token expires.
func (f tokenFlags) expiry(ctx context.Context, adm *admin.Admin) (time.Time, error) {
	if f.expiresIn == "" {
		return time.Time{}, nil
	}
	lifetime, err := parseLifetime(f.expiresIn)
	if err != nil {
		return time.Time{}, err
	}
	now, err := adm.Now(ctx)
	return now.Add(lifetime), err
}

// parseLifetime reads a duration, or a number of days.
func parseLifetime(text string) (time.Duration, error) {
	const longest = 100 * 365 // days
	lifetime, err := time.ParseDuration(text)
	if days, found := strings.CutSuffix(text, "d"); found {
		var n uint64
		n, err = strconv.ParseUint(days, 10, 32)
		lifetime = time.Duration(min(n, longest)) * 24 * time.Hour
	}
	if err != nil || lifetime <= 0 {
		return 0, usageError{fmt.Errorf("%q is no lifetime", text), "write it like 12h or 90d"}
	}
	return lifetime, nil
}
