package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/posthorn/posthorn/admin"
)

const projectionsRebuildLong = `Empty the tables of a projection and replay the log into them. The truncate and
the move to the beginning are one transaction. The replaying is done by the
programs that keep the projection, so one has to run. This command waits for them
and shows how far they are; when it is interrupted they go on.

Name every table that the projection writes to, and no other: what is left in one
is doubled. The command needs the right to truncate them, and the rights of an
admin.

It is refused when retention has removed events that the projection had applied,
since it would lack them. With --partial it is rebuilt from what the log still
has.`

type rebuildFlags struct {
	tables          []string
	partial, noWait bool
	yes             *bool
}

func newProjectionsRebuild(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "rebuild NAME --truncate TABLE",
		Short: "Empty a projection's tables and replay the log into them",
		Long:  projectionsRebuildLong,
		Example: `  posthorn projections rebuild totals --truncate shop.totals
  posthorn projections rebuild totals --truncate totals --truncate total_lines --yes`,
		Args: cobra.ExactArgs(1),
	}
	f := rebuildFlags{yes: yesFlag(cmd)}
	flags := cmd.Flags()
	flags.StringArrayVar(&f.tables, "truncate", nil, "a table of the projection, named as in SQL; once for each")
	flags.BoolVar(&f.partial, "partial", false, "also if the log no longer has all events")
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
		if err := confirm(cmd, *f.yes, fmt.Sprintf("truncate %s and replay the log into projection %s", strings.Join(f.tables, ", "), name)); err != nil {
			return err
		}
		if err := adm.RebuildProjection(ctx, name, admin.RebuildConfig{Truncate: f.tables, Partial: f.partial}); err != nil {
			return err
		}
		if f.noWait {
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "projection %s is being rebuilt\n", name)
			return err
		}
		if err := awaitRebuilt(cmd, adm, name); err != nil {
			return err
		}
		_, err := fmt.Fprintf(cmd.OutOrStdout(), "projection %s is rebuilt\n", name)
		return err
	})
}

// awaitRebuilt shows how far a rebuild is, until it is done.
func awaitRebuilt(cmd *cobra.Command, adm *admin.Admin, name string) error {
	p := newProgress(cmd.ErrOrStderr(), "replayed")
	defer p.end()
	complained := ""
	return adm.AwaitRebuilt(cmd.Context(), name, func(s admin.ProjectionStatus) {
		p.at(int(s.RebuildDone))
		if s.Error != "" && s.Error != complained {
			complained = s.Error
			fmt.Fprintf(cmd.ErrOrStderr(), "posthorn: the projection stands still at event %d: %s\n", s.FailedEvent, oneLine.Replace(s.Error))
		}
	})
}
