package main

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/posthorn/posthorn/admin"
)

const schedulesAddLong = `Make a schedule that publishes an event of TYPE, or change the one of that name:
it becomes what is given here. A paused one stays paused.

CRON is five fields, minute hour day month weekday, such as '30 8 * * mon-fri';
or @hourly, @daily, @weekly, @monthly, @yearly, '@every 90s', '@every 1h30m', or
'@at 2026-12-01T08:00:00Z' for one time. PAYLOAD is JSON, {} if it is left out; -
reads it from the standard input.

When nobody was there to fire it, --catch-up says what happens afterwards: once
publishes one event for all times that were missed, all one for each, skip none.`

const schedulesAddExample = `  posthorn schedules add nightly '0 2 * * *' report.due
  posthorn schedules add invoices '0 8 1 * *' invoices.due '{"kind": "monthly"}' --time-zone Europe/Berlin
  posthorn schedules add poll '@every 30s' poll.due --catch-up skip
  posthorn schedules add report '0 7 * * *' 'Send the report' '{"to": "ann"}' --job --tag mail`

func newSchedulesAdd(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "add NAME CRON TYPE [PAYLOAD]",
		Short:   "Make a schedule, or change it",
		Long:    schedulesAddLong,
		Example: schedulesAddExample,
		Args:    cobra.RangeArgs(3, 4),
	}
	var s admin.Schedule
	var metadata string
	var tags []string
	var priority int
	flags := cmd.Flags()
	flags.StringVar(&s.TimeZone, "time-zone", "", "the time zone of the fields, such as Europe/Berlin (default UTC)")
	flags.StringVar(&s.CatchUp, "catch-up", "", "skip, once or all (default once)")
	flags.StringVar(&s.Stream, "stream", "", `the stream of the event (default "default")`)
	flags.StringVar(&s.Key, "key", "", "the key of the event")
	flags.StringVar(&metadata, "metadata", "", "JSON that goes along with the payload")
	asJob := flags.Bool("job", false, "enqueue a job instead of an event: TYPE is its title")
	flags.StringArrayVar(&tags, "tag", nil, "a tag of the job; may be repeated")
	numberVar(flags, &priority, "priority", 0, -mostInSQL, mostInSQL, "the priority of the job; higher goes first")
	paused := flags.Bool("paused", false, "do not start it: that is for resume")
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		s.Name, s.Cron, s.Type = args[0], args[1], args[2]
		if cmd.Flags().Changed("paused") {
			active := !*paused
			s.Active = &active
		}
		var err error
		if s.Payload, err = payload(input{cmd.Context(), cmd.InOrStdin()}, args[3:]); err != nil {
			return err
		}
		if s.Metadata, err = document("metadata", []byte(metadata)); err != nil {
			return err
		}
		if *asJob {
			if s.Stream != "" || s.Key != "" {
				return usageError{errors.New("--stream and --key are for events"), "leave them out with --job"}
			}
			if s.Job, err = scheduledJob(s, tags, priority); err != nil {
				return err
			}
		} else if len(tags) > 0 || flags.Changed("priority") {
			return usageError{errors.New("--tag and --priority are for jobs"), "give --job too"}
		}
		return a.addSchedule(cmd, s, *asJSON)
	}
	return cmd
}

func scheduledJob(s admin.Schedule, tags []string, priority int) (json.RawMessage, error) {
	job := map[string]any{"title": s.Type, "tags": append([]string{}, tags...), "priority": priority}
	if s.Payload != nil {
		job["payload"] = s.Payload
	}
	if s.Metadata != nil {
		job["metadata"] = s.Metadata
	}
	return json.Marshal(job)
}

func (a *app) addSchedule(cmd *cobra.Command, s admin.Schedule, asJSON bool) error {
	ctx := cmd.Context()
	return a.withAdmin(ctx, func(adm *admin.Admin) error {
		if _, err := adm.DefineSchedule(ctx, s); err != nil {
			return err
		}
		status, err := adm.Schedule(ctx, s.Name)
		if err != nil {
			return err
		}
		if asJSON {
			return printJSON(cmd.OutOrStdout(), status)
		}
		_, err = fmt.Fprintf(cmd.OutOrStdout(), "schedule %s is %s; next: %s\n", s.Name, status.State, cell(status.NextRunAt))
		return err
	})
}
