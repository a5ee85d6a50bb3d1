package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/posthorn/posthorn/admin"
	"github.com/posthorn/posthorn/seal/keeper"
)

const doctorLong = `Examine the installation: versions, missing functions, settings, roles, open
transactions that hold the log back, clocks, partitions, upkeep, groups and jobs
that no worker has taken for 5 minutes, projections that stand still, jobs that
failed for good, relays, imports, archives, webhooks, schedules, dead rows, and the
keys of confidential streams. Nothing is changed. It needs the rights of
posthorn_admin.

Each line begins with ok, warn or fail, and advice follows where there is any.
Equal findings of a namespace are one line. A fail makes the exit status 1.

With --database it examines several databases at the same time. One that cannot be
reached is a fail, and the findings of the others are printed all the same.`

func newDoctor(a *app) *cobra.Command {
	cmd := about{"doctor", "Examine the installation, and print advice", doctorLong, "  posthorn doctor --json\n  posthorn doctor --database orders=postgres://db1.example/shop --database billing=postgres://db2.example/billing"}.command()
	var f keeperFlags
	f.add(cmd)
	var several databasesFlag
	several.add(cmd)
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		databases, err := a.databases(several)
		if err != nil {
			return err
		}
		if len(databases) > 0 {
			return a.doctorOfDatabases(cmd, databases, f, *asJSON)
		}
		conn, err := a.connect(cmd.Context())
		if err != nil {
			return err
		}
		defer disconnect(cmd.Context(), conn)
		urls, err := f.urls()
		if err != nil {
			return err
		}
		findings := admin.Doctor(cmd.Context(), conn, tryKeepers(cmd.Context(), urls))
		if err := cmd.Context().Err(); err != nil {
			return err
		}
		if *asJSON {
			err = printJSON(cmd.OutOrStdout(), findings)
		} else {
			err = printFindings(cmd.OutOrStdout(), findings)
		}
		if err == nil && admin.Worst(findings) == admin.Fail {
			err = errors.New("the database needs attention")
		}
		return err
	}
	return cmd
}

// tryKeepers opens each keeper, and returns the errors by name.
func tryKeepers(ctx context.Context, urls map[string]string) map[string]error {
	tried := map[string]error{}
	for name, url := range urls {
		open, err := keeper.Open(ctx, url)
		if tried[name] = err; err == nil {
			_ = open.Close()
		}
	}
	return tried
}

func printFindings(w io.Writer, findings []admin.Finding) error {
	var lines strings.Builder
	for _, f := range findings {
		fmt.Fprintf(&lines, "%-4s  %s: %s\n", f.Level, f.Check, oneLine.Replace(f.Found))
		if f.Advice != "" {
			lines.WriteString("      → " + f.Advice + "\n")
		}
	}
	_, err := io.WriteString(w, lines.String())
	return err
}
