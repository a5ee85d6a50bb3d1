package main

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/archive"
	"github.com/posthorn/posthorn/op"
)

// rangeFlags select events of an archive.
type rangeFlags struct {
	streams  []string
	from, to string
}

func (f *rangeFlags) add(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringArrayVar(&f.streams, "stream", nil, "only this stream; may be repeated")
	flags.StringVar(&f.from, "from", "", "from this event id or TIME on")
	flags.StringVar(&f.to, "to", "", "up to this event id, or before this TIME")
}

const rangeHelp = `--from and --to take ids, or times. ` + timeHelp

func (f *rangeFlags) parse(namespaces ...string) (archive.Range, error) {
	r := archive.Range{Namespaces: namespaces, Streams: f.streams}
	var err error
	if r.FromID, r.From, err = idOrTime(f.from); err == nil {
		r.ToID, r.To, err = idOrTime(f.to)
	}
	return r, err
}

func idOrTime(text string) (id int64, at time.Time, err error) {
	if text == "" {
		return 0, at, nil
	}
	if id, err = strconv.ParseInt(text, 10, 64); err == nil && id > 0 {
		return id, at, nil
	}
	at, err = pastTime(text, time.Now())
	return 0, at, err
}

const archiveVerifyLong = `Read an archive and compare it with its manifests: every segment exists, its size
and checksum are right, and so are the number and order of its events. This needs
only the store.

If a database is given, each event of its log must also be in the archive, as it
is in the log. Events that an archiver has not written yet are only counted.

It exits with 1 if something is wrong or the store cannot be read, with 3 if there
is no archive, and with 5 if the store refuses the credentials.

` + rangeHelp

func newArchiveVerify(a *app) *cobra.Command {
	cmd := about{"verify URL", "Check that an archive is complete", archiveVerifyLong, `  posthorn archive verify file:///var/archive --all
  posthorn archive verify s3://events?region=eu-central-1 --stream orders --from 2026-01-01 --json
  posthorn archive verify file:///var/archive --database-url postgres://localhost/shop`}.command()
	var f rangeFlags
	f.add(cmd)
	all := cmd.Flags().Bool("all", false, "all namespaces of the store, and no database")
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error { return a.verifyArchive(cmd, args[0], f, *all, *asJSON) }
	return cmd
}

func (a *app) verifyArchive(cmd *cobra.Command, url string, f rangeFlags, all, asJSON bool) error {
	ctx := cmd.Context()
	store, err := archive.OpenExisting(ctx, url)
	if err != nil {
		return err
	}
	defer func() { _ = store.Close() }()
	p := newProgress(cmd.ErrOrStderr(), "verified")
	defer p.end()
	config := archive.VerifyConfig{Progress: func(n int64) { p.at(int(n)) }}
	if config.Range, err = f.parse(a.namespace); err != nil {
		return err
	}
	if all {
		config.Namespaces = nil
	} else if a.databaseURL != "" {
		conn, err := a.connect(ctx)
		if err != nil {
			return err
		}
		defer disconnect(ctx, conn)
		config.Log = conn
	}
	report, err := store.Verify(ctx, config)
	if err != nil {
		return err
	}
	if asJSON {
		err = printJSON(cmd.OutOrStdout(), report)
	} else {
		err = printVerified(cmd, report, config.Log != nil)
	}
	if err == nil && len(report.Problems) > 0 {
		err = hintError{
			fmt.Errorf("the archive is damaged: %s", op.Counted(int64(len(report.Problems))+report.Further, "problem")),
			"docs/archive.md explains each problem, and its remedy",
		}
	}
	return err
}

func printVerified(cmd *cobra.Command, report archive.Report, compared bool) error {
	for _, problem := range report.Problems {
		fmt.Fprintln(cmd.OutOrStdout(), oneLine.Replace(problem.Description))
	}
	fmt.Fprintf(cmd.OutOrStdout(), "read %s in %s of %s, %s\n", op.Counted(report.Events, "event"),
		op.Counted(report.Segments, "segment"), op.Counted(report.Streams, "stream"), roughBytes(report.Size))
	if compared {
		fmt.Fprintf(cmd.OutOrStdout(), "compared %s of the log; %s still to be written\n", op.Counted(report.Compared, "event"),
			op.Are(report.Waiting, "event"))
	}
	if len(report.Problems) > 0 {
		return nil
	}
	return printLine(cmd, "all is well")
}

const archiveReplayLong = `Give archived events to a group again, or publish copies of them.

--to-group gives the group the events with their ids and times; no other group
gets them, and the log need not have them any more. --to-stream publishes copies
with new ids, whose metadata has archived_id, archived_stream and archived_at.

After an interrupt or a crash, the same command continues where it stopped, and
repeats nothing. Sealed payloads stay sealed: they can go to a group, or to their
own stream.

` + rangeHelp

func newArchiveReplay(a *app) *cobra.Command {
	cmd := about{
		"replay URL --to-group GROUP | --to-stream STREAM", "Give archived events to a group or a stream", archiveReplayLong,
		`  posthorn archive replay file:///var/archive --to-group billing --stream orders --from 2026-01-01 --to 2026-02-01
  posthorn archive replay s3://events?region=eu-central-1 --to-stream orders-again --from 4711 --to 4800`,
	}.command()
	var f rangeFlags
	f.add(cmd)
	var config archive.ReplayConfig
	flags := cmd.Flags()
	flags.StringVar(&config.ToGroup, "to-group", "", "the group that gets the events")
	flags.StringVar(&config.ToStream, "to-stream", "", "the stream for the copies")
	flags.StringVar(&config.Name, "name", "", "the name under which the position is stored (default: made from the other arguments)")
	cmd.MarkFlagsOneRequired("to-group", "to-stream")
	cmd.MarkFlagsMutuallyExclusive("to-group", "to-stream")
	cmd.RunE = func(cmd *cobra.Command, args []string) error { return a.replayArchive(cmd, args[0], f, config) }
	return cmd
}

func (a *app) replayArchive(cmd *cobra.Command, url string, f rangeFlags, config archive.ReplayConfig) error {
	ctx := cmd.Context()
	var err error
	if config.Range, err = f.parse(a.namespace); err != nil {
		return err
	}
	for _, text := range []string{f.from, f.to} {
		if _, at, _ := idOrTime(text); !at.IsZero() && plainMinus(text)[0] == '-' && config.Name == "" {
			return usageError{errors.New("a time ago is another time when the replay continues"), "give a date, an id, or a --name"}
		}
	}
	return a.copyArchive(cmd, url, "replayed", func(store *archive.Store, ph *posthorn.Client, progress func(int64)) (int64, error) {
		config.Progress = progress
		return store.Replay(ctx, ph.Pool(), config)
	})
}

// copyArchive copies events of an archive to the database, and prints their number.
func (a *app) copyArchive(
	cmd *cobra.Command, url, verb string, write func(store *archive.Store, ph *posthorn.Client, progress func(int64)) (int64, error),
) error {
	return a.withStore(cmd.Context(), url, archive.OpenExisting, func(store *archive.Store, ph *posthorn.Client) error {
		p := newProgress(cmd.ErrOrStderr(), verb)
		n, err := write(store, ph, func(n int64) { p.at(int(n)) })
		p.end()
		if err != nil {
			return err
		}
		return printLine(cmd, "%s %s", verb, op.Counted(n, "event"))
	})
}

const archiveRestoreLong = `Write all events of an archive to the log of an empty installation, with their ids
and times: all namespaces and streams of the store. Groups and readers get them
like events that were just published.

It is refused if an event was published before. Publish nothing until it is
complete. After an interrupt or a crash, the same command continues.

Retention counts from the time of an event, so it would drop events that are older
than partition_retention_period at once; such an archive is refused. Raise the
period in posthorn.config, or leave old events out with --from.`

func newArchiveRestore(a *app) *cobra.Command {
	cmd := about{
		"restore URL", "Make a log from an archive", archiveRestoreLong,
		"  posthorn archive restore s3://events?region=eu-central-1 --from 2026-01-01",
	}.command()
	from := cmd.Flags().String("from", "", "leave out events that were published before this time, such as 2026-01-31")
	cmd.RunE = func(cmd *cobra.Command, args []string) error { return a.restoreArchive(cmd, args[0], *from) }
	return cmd
}

func (a *app) restoreArchive(cmd *cobra.Command, url, from string) error {
	var config archive.RestoreConfig
	if from != "" {
		var err error
		if config.From, err = pastTime(from, time.Now()); err != nil {
			return err
		}
	}
	return a.copyArchive(cmd, url, "restored", func(store *archive.Store, ph *posthorn.Client, progress func(int64)) (int64, error) {
		config.Progress = progress
		return store.Restore(cmd.Context(), ph.Pool(), config)
	})
}
