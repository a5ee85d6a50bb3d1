package main

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/posthorn/posthorn/admin"
)

// names lists the values that an argument of a command may have.
type names func(ctx context.Context, adm *admin.Admin) ([]string, error)

func namesOf[T any](list func(*admin.Admin, context.Context) ([]T, error), name func(T) string) names {
	return func(ctx context.Context, adm *admin.Admin) ([]string, error) {
		found, err := list(adm, ctx)
		all := make([]string, len(found))
		for i, x := range found {
			all[i] = name(x)
		}
		return all, err
	}
}

// mostStreams limits the streams that completion offers.
const mostStreams = 200

var (
	groupNames  = namesOf((*admin.Admin).Groups, func(g admin.GroupStatus) string { return g.Group })
	streamNames = namesOf(func(adm *admin.Admin, ctx context.Context) ([]admin.Stream, error) {
		return adm.Streams(ctx, admin.StreamFilter{Limit: mostStreams})
	}, func(s admin.Stream) string { return s.Name })
	namespaceNames = namesOf((*admin.Admin).Namespaces, func(n admin.Namespace) string { return n.Name })

	// namesFor has the names that the subcommands of a command take as their first argument.
	namesFor = map[string]names{
		"groups":      groupNames,
		"imports":     namesOf((*admin.Admin).Imports, func(i admin.ImportStatus) string { return i.Import }),
		"projections": namesOf((*admin.Admin).Projections, func(p admin.ProjectionStatus) string { return p.Projection }),
		"relays":      namesOf((*admin.Admin).Relays, func(r admin.RelayStatus) string { return r.Relay }),
		"schedules":   namesOf((*admin.Admin).Schedules, func(s admin.ScheduleStatus) string { return s.Name }),
		"streams":     streamNames,
		"nodes":       namesOf((*admin.Admin).Nodes, func(n admin.NodeStatus) string { return n.ID }),
		"webhooks":    namesOf((*admin.Admin).Webhooks, func(w admin.Webhook) string { return w.Name }),
	}
)

// completeNames makes the shell complete names with those that exist in the database.
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

// makes reports whether the command's first argument is the name of something new.
func makes(cmd *cobra.Command) bool {
	return slices.Contains([]string{"define", "add", "create"}, cmd.Name())
}

func (a *app) firstOnly(complete cobra.CompletionFunc) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveDefault
		}
		return complete(cmd, args, typed)
	}
}

// completionTime limits the wait after the Tab key.
const completionTime = 2 * time.Second

func (a *app) completion(list names) cobra.CompletionFunc {
	return func(cmd *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
		ctx, cancel := context.WithTimeout(cmd.Context(), completionTime)
		defer cancel()
		a.fromEnvironment()
		var found []string
		err := a.withAdmin(ctx, func(adm *admin.Admin) (err error) {
			found, err = list(ctx, adm)
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
