package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/posthorn/posthorn/admin"
)

// A search reads so many events at a time, and looks at so many for them.
const (
	searchPage  = 1000
	searchLooks = 100_000
)

func newSearch(a *app) *cobra.Command {
	var f admin.EventFilter
	var limit int
	cmd := listCommand[admin.Event]{
		about: about{
			use:   "search",
			short: "Search the events of the log",
			long: `Search the events that match all of the flags, newest first. Reading changes
nothing, and affects no group.

In a pattern, * is one dotted part, and > is one part or more at the end. Without
--from a search may look at the whole log.

` + timeHelp,
			example: `  posthorn search --type 'order.*' --key 7
  posthorn search --payload '{"order": 7}' --from -1h --json
  posthorn search --stream orders --tag web --order oldest --limit 10`,
		},
		limit:   &limit,
		keepers: &keeperFlags{},
		list: func(adm *admin.Admin, ctx context.Context) ([]admin.Event, error) {
			return search(ctx, adm, f, limit)
		},
		columns: columns[admin.Event]{"id|published at|stream|type|key|payload", func(e admin.Event) []any {
			return []any{e.ID, e.PublishedAt, e.Stream, e.Type, e.Key, shorten(string(e.Payload), 60)}
		}},
	}.build(a)
	addFlags(cmd.Flags(), &f)
	limitVar(cmd.Flags(), &limit, 100, mostListed, "list so many")
	return cmd
}

// search finds events up to a limit.
func search(ctx context.Context, adm *admin.Admin, f admin.EventFilter, limit int) (all []admin.Event, err error) {
	f.MaxLooks = searchLooks
	for more := true; more && len(all) < limit; more = f.After != 0 {
		f.Limit = min(limit-len(all), searchPage)
		var found []admin.Event
		if found, f.After, err = adm.SearchEvents(ctx, f); err != nil {
			return nil, err
		}
		all = append(all, found...)
	}
	return all, nil
}
