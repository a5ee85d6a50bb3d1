package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/spf13/cobra"

	"github.com/posthorn/posthorn/admin"
	"github.com/posthorn/posthorn/op"
)

const schedulesAddLong = `Make a schedule that publishes an event of TYPE, or with --job enqueues a job, or
replace the schedule of that name. A paused schedule stays paused.

CRON is five fields, minute hour day month weekday, such as '30 8 * * mon-fri';
or @hourly, @daily, @weekly, @monthly, @yearly, '@every 90s', '@every 1h30m', or
'@at 2026-12-01T08:00:00Z' for one time. PAYLOAD is JSON, {} if it is left out; -
reads it from the standard input.

--catch-up decides about the times that were missed because no process ran: once
publishes one event for all of them, all one for each, skip none.`

const schedulesAddExample = `  posthorn schedules add nightly '0 2 * * *' report.due
  posthorn schedules add invoices '0 8 1 * *' invoices.due '{"kind": "monthly"}' --time-zone Europe/Berlin
  posthorn schedules add poll '@every 30s' poll.due --catch-up skip
  posthorn schedules add report '0 7 * * *' 'Send the report' '{"to": "ann"}' --job --tag mail`

type scheduleFlags struct {
	schedule admin.Schedule
	metadata string
	paused   bool
	asJob    bool
	tags     []string
	priority int
}

func newSchedulesAdd(a *app) *cobra.Command {
	var f scheduleFlags
	cmd := changeCommand{
		about:   about{"add NAME CRON TYPE [PAYLOAD]", op.PutSchedule.Does, schedulesAddLong, schedulesAddExample},
		json:    true,
		prepare: f.prepare,
		do: func(ctx context.Context, adm *admin.Admin, args []string) (result, error) {
			id, err := adm.DefineSchedule(ctx, f.schedule)
			if err != nil {
				return result{}, err
			}
			made, err := adm.Schedule(ctx, args[0])
			if isDenied(err) { // publishers may make schedules, but not look at them
				return result{fmt.Sprintf("schedule %s is made", args[0]), madeSchedule{args[0], id}}, nil
			}
			return result{fmt.Sprintf("schedule %s is %s; next: %s", made.Name, made.State, cell(made.NextRunAt)), made}, err
		},
	}.build(a)
	flags := cmd.Flags()
	flags.StringVar(&f.schedule.TimeZone, "time-zone", "", "the time zone of the fields, such as Europe/Berlin (default UTC)")
	flags.StringVar(&f.schedule.CatchUp, "catch-up", "", "skip, once or all (default once)")
	flags.StringVar(&f.schedule.Stream, "stream", "", `the stream of the event (default "default")`)
	flags.StringVar(&f.schedule.Key, "key", "", "the key of the event")
	flags.StringVar(&f.metadata, "metadata", "", "JSON that is stored beside the payload")
	flags.BoolVar(&f.asJob, "job", false, "enqueue a job instead of an event: TYPE is its title")
	flags.StringArrayVar(&f.tags, "tag", nil, "a tag of the job; may be repeated")
	numberVar(flags, &f.priority, "priority", 0, -mostInSQL, mostInSQL, "the priority of the job; higher goes first")
	flags.BoolVar(&f.paused, "paused", false, "make it paused; posthorn schedules resume starts it")
	return cmd
}

// madeSchedule is printed for a role that may not look at schedules.
type madeSchedule struct {
	Name   string `json:"name"`
	TaskID string `json:"task_id"`
}

// isDenied reports whether the database refused a statement because the user lacks a right.
func isDenied(err error) bool {
	denied, ok := errors.AsType[*pgconn.PgError](err)
	return ok && denied.Code == "42501"
}

// prepare completes the schedule with the arguments and the flags.
func (f *scheduleFlags) prepare(cmd *cobra.Command, args []string) (err error) {
	s := &f.schedule
	s.Name, s.Cron, s.Type = args[0], args[1], args[2]
	if cmd.Flags().Changed("paused") {
		active := !f.paused
		s.Active = &active
	}
	if s.Payload, err = payload(input{cmd.Context(), cmd.InOrStdin()}, args[3:]); err != nil {
		return err
	}
	if s.Metadata, err = document("metadata", []byte(f.metadata)); err != nil {
		return err
	}
	switch {
	case f.asJob && (s.Stream != "" || s.Key != ""):
		return usageError{errors.New("--stream and --key are for events"), "leave them out with --job"}
	case !f.asJob && (len(f.tags) > 0 || cmd.Flags().Changed("priority")):
		return usageError{errors.New("--tag and --priority are for jobs"), "give --job too"}
	case f.asJob:
		s.Job, err = f.job()
	}
	return err
}

// job is the job that the schedule enqueues.
func (f *scheduleFlags) job() (json.RawMessage, error) {
	s := f.schedule
	job := map[string]any{"title": s.Type, "tags": append([]string{}, f.tags...), "priority": f.priority}
	if s.Payload != nil {
		job["payload"] = s.Payload
	}
	if s.Metadata != nil {
		job["metadata"] = s.Metadata
	}
	return json.Marshal(job)
}
