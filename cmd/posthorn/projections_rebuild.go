package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/posthorn/posthorn/admin"
	"github.com/posthorn/posthorn/op"
)

const projectionsRebuildLong = `Empty the tables of a projection and apply the log to them again. One
transaction truncates the tables and moves the projection to the beginning. The
programs that run the projection apply the log, so at least one of them must
run. This command waits and prints the progress; an interrupt ends it, but not
the programs.

Name every table that the projection writes to, and no other: the rows of a table
that is not named would be there twice. The command needs the right to truncate
the tables, and the role posthorn_admin.

A rebuild is refused if retention has removed events that the projection had
applied. With --partial it begins with the oldest event that the log still has.`

type rebuildFlags struct {
	tables          []string
	partial, noWait bool
	yes             *bool
}

func newProjectionsRebuild(a *app) *cobra.Command {
	cmd := about{
		"rebuild NAME --truncate TABLE", op.RebuildProjection.Does, projectionsRebuildLong,
		`  posthorn projections rebuild totals --truncate shop.totals
  posthorn projections rebuild totals --truncate totals --truncate total_lines --yes`,
	}.command()
	f := rebuildFlags{yes: yesFlag(cmd)}
	flags := cmd.Flags()
	flags.StringArrayVar(&f.tables, "truncate", nil, "a table of the projection, named as in SQL; once for each")
	flags.BoolVar(&f.partial, "partial", false, "even if the log no longer has all events")
	flags.BoolVar(&f.noWait, "no-wait", false, "do not wait until it is done")
	_ = cmd.MarkFlagRequired("truncate") // it was just defined
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return a.rebuildProjection(cmd, args[0], f)
	}
	return cmd
}

func (a *app) rebuildProjection(cmd *cobra.Command, name string, f rebuildFlags) error {
	ctx := cmd.Context()
	return a.withAdmin(ctx, func(adm *admin.Admin) error {
		if _, err := adm.Projection(ctx, name); err != nil {
			return err
		}
		if err := confirm(cmd, *f.yes, fmt.Sprintf("truncate %s and apply the log to projection %s again", strings.Join(f.tables, ", "), name)); err != nil {
			return err
		}
		if err := adm.RebuildProjection(ctx, name, admin.RebuildConfig{Truncate: f.tables, Partial: f.partial}); err != nil {
			return err
		}
		if f.noWait {
			return printLine(cmd, "projection %s is being rebuilt", name)
		}
		if err := awaitRebuilt(cmd, adm, name); err != nil {
			return err
		}
		return printLine(cmd, "projection %s is rebuilt", name)
	})
}

// awaitRebuilt prints the progress of a rebuild until its end.
func awaitRebuilt(cmd *cobra.Command, adm *admin.Admin, name string) error {
	p := newProgress(cmd.ErrOrStderr(), "applied")
	defer p.end()
	reported := ""
	return adm.AwaitRebuilt(cmd.Context(), name, func(s admin.ProjectionStatus) {
		p.at(int(s.RebuildDone))
		if s.Error != "" && s.Error != reported {
			reported = s.Error
			fmt.Fprintf(cmd.ErrOrStderr(), "posthorn: the projection stands still at event %d: %s\n", s.FailedEvent, oneLine.Replace(s.Error))
		}
	})
}
