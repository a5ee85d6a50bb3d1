package main

import (
	"context"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"

	"github.com/posthorn/posthorn/internal/pg"
)

// names lists the names that an argument of a command may have.
type names func(ctx context.Context, conn *pgx.Conn, namespace string) ([]string, error)

func namesOf[T any](list func(context.Context, pg.DB, string) ([]T, error), name func(T) string) names {
	return func(ctx context.Context, conn *pgx.Conn, namespace string) ([]string, error) {
		found, err := list(ctx, conn, namespace)
		all := make([]string, len(found))
		for i, x := range found {
			all[i] = name(x)
		}
		return all, err
	}
}

// mostStreams is how many streams a shell is offered.
const mostStreams = 200

var (
	groupNames  = namesOf(pg.ListGroups, func(g pg.GroupStatus) string { return g.Group })
	streamNames = namesOf(func(ctx context.Context, db pg.DB, namespace string) ([]pg.Stream, error) {
		return pg.ListStreams(ctx, db, namespace, "", mostStreams)
	}, func(s pg.Stream) string { return s.Name })
	namespaceNames = namesOf(func(ctx context.Context, db pg.DB, _ string) ([]pg.Namespace, error) {
		return pg.ListNamespaces(ctx, db)
	}, func(n pg.Namespace) string { return n.Name })

	// By the command that holds others, whose first argument is such a name.
	namesFor = map[string]names{
		"groups":      groupNames,
		"imports":     namesOf(pg.ListImports, func(i pg.ImportStatus) string { return i.Import }),
		"projections": namesOf(pg.ListProjections, func(p pg.ProjectionStatus) string { return p.Projection }),
		"relays":      namesOf(pg.ListRelays, func(r pg.RelayStatus) string { return r.Relay }),
		"schedules":   namesOf(pg.ListSchedules, func(s pg.ScheduleStatus) string { return s.Name }),
		"streams":     streamNames,
		"nodes":       namesOf(pg.ListNodes, func(n pg.NodeStatus) string { return n.ID }),
	}
)

// completeNames lets the shell complete the names that exist in the database.
func (a *app) completeNames(root *cobra.Command) {
	_ = root.RegisterFlagCompletionFunc("namespace", a.completion(namespaceNames))
	for _, cmd := range root.Commands() {
		for _, sub := range append(cmd.Commands(), cmd) {
			for flag, list := range map[string]names{"group": groupNames, "stream": streamNames} {
				if sub.Flags().Lookup(flag) != nil {
					_ = sub.RegisterFlagCompletionFunc(flag, a.completion(list))
				}
			}
			list, ok := namesFor[cmd.Name()]
			if _, argument, takes := strings.Cut(sub.Use, " "); ok && takes && sub != cmd && argument != "" && !makes(sub) {
				sub.ValidArgsFunction = a.firstOnly(a.completion(list))
			}
		}
	}
}

// makes reports that the command's first argument is the name of something new.
func makes(cmd *cobra.Command) bool { return cmd.Name() == "define" || cmd.Name() == "add" }

func (a *app) firstOnly(complete cobra.CompletionFunc) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveDefault
		}
		return complete(cmd, args, typed)
	}
}

// completionTime is how long somebody who has pressed Tab waits at most.
const completionTime = 2 * time.Second

func (a *app) completion(list names) cobra.CompletionFunc {
	return func(cmd *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
		ctx, cancel := context.WithTimeout(cmd.Context(), completionTime)
		defer cancel()
		a.fromEnvironment()
		var found []string
		err := a.withDatabase(ctx, func(conn *pgx.Conn) (err error) {
			found, err = list(ctx, conn, a.namespace)
			return err
		})
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		var fitting []string
		for _, name := range found {
			if strings.HasPrefix(name, typed) {
				fitting = append(fitting, name)
			}
		}
		return fitting, cobra.ShellCompDirectiveNoFileComp
	}
}
