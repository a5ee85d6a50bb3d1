package main

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/posthorn/posthorn/archive"
)

// rangeFlags say what of an archive is meant.
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

const archiveVerifyLong = `Read an archive and compare it with its manifests: every segment is there, its
size and checksum are right, and so are the number and order of its events. This
needs the store alone.

If a database is given, each event of its log must be in the archive too, as it is
in the log. What an archiver has yet to write is counted, and is no problem.

It exits with 1 if anything is wrong, or the store cannot be read, with 3 if there
is no archive, and with 5 if the store refuses the credentials.

` + rangeHelp

func newArchiveVerify(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "verify URL",
		Short: "Check that an archive is whole",
		Long:  archiveVerifyLong,
		Example: `  posthorn archive verify file:///var/archive --all
  posthorn archive verify s3://events?region=eu-central-1 --stream orders --from 2026-01-01 --json
  posthorn archive verify file:///var/archive --database-url postgres://localhost/shop`,
		Args: cobra.ExactArgs(1),
	}
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
			fmt.Errorf("the archive is damaged: %d problems", int64(len(report.Problems))+report.Further),
			"docs/archive.md says what each means, and what to do",
		}
	}
	return err
}

func printVerified(cmd *cobra.Command, report archive.Report, compared bool) error {
	for _, problem := range report.Problems {
		fmt.Fprintln(cmd.OutOrStdout(), oneLine.Replace(problem.Description))
	}
	fmt.Fprintf(cmd.OutOrStdout(), "read %d events in %d segments of %d streams, %s\n", report.Events, report.Segments, report.Streams, roughBytes(report.Size))
	if compared {
		fmt.Fprintf(cmd.OutOrStdout(), "compared %d events of the log; %d are still to be written\n", report.Compared, report.Waiting)
	}
	if len(report.Problems) > 0 {
		return nil
	}
	_, err := fmt.Fprintln(cmd.OutOrStdout(), "all is well")
	return err
}

const archiveReplayLong = `Let a group handle archived events again, or publish them anew.

--to-group gives the group the events as they were, with their ids and times;
nobody else gets them, and the log need not have them any more. --to-stream
publishes copies with new ids, whose metadata says archived_id, archived_stream
and archived_at.

Interrupted or killed, the same command goes on where it stopped and repeats
nothing. Sealed payloads stay sealed: they go to groups, or to their own stream.

` + rangeHelp

func newArchiveReplay(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "replay URL --to-group GROUP | --to-stream STREAM",
		Short: "Bring archived events back to a group or a stream",
		Long:  archiveReplayLong,
		Example: `  posthorn archive replay file:///var/archive --to-group billing --stream orders --from 2026-01-01 --to 2026-02-01
  posthorn archive replay s3://events?region=eu-central-1 --to-stream orders-again --from 4711 --to 4800`,
		Args: cobra.ExactArgs(1),
	}
	var f rangeFlags
	f.add(cmd)
	var config archive.ReplayConfig
	flags := cmd.Flags()
	flags.StringVar(&config.ToGroup, "to-group", "", "the group that gets them again")
	flags.StringVar(&config.ToStream, "to-stream", "", "the stream that they are published in")
	flags.StringVar(&config.Name, "name", "", "what the position is kept under (default: made of all the rest)")
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
			return usageError{errors.New("a time ago is another time when the replay is gone on with"), "give a date, an id, or a --name"}
		}
	}
	store, ph, err := a.storeAndClient(ctx, url, archive.OpenExisting)
	if err != nil {
		return err
	}
	defer func() { _ = store.Close() }()
	defer ph.Close()
	p := newProgress(cmd.ErrOrStderr(), "replayed")
	defer p.end()
	config.Progress = func(n int64) { p.at(int(n)) }
	n, err := store.Replay(ctx, ph.Pool(), config)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(cmd.OutOrStdout(), "replayed %d events\n", n)
	return err
}

const archiveRestoreLong = `Write all events of an archive to the log of an empty installation, with their
ids and times: all namespaces and streams that are in the store. Whatever reads
that log finds them like events that were just published.

It is refused where anything was published. Until it is complete, publish nothing.
Interrupted or killed, the same command goes on.

Retention counts from an event's own time: what is older than
partition_retention_period would be dropped again, and is refused. Raise it in
posthorn.config, or leave old events out with --from.`

func newArchiveRestore(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "restore URL",
		Short:   "Make a log from an archive",
		Long:    archiveRestoreLong,
		Example: "  posthorn archive restore s3://events?region=eu-central-1 --from 2026-01-01",
		Args:    cobra.ExactArgs(1),
	}
	from := cmd.Flags().String("from", "", "leave out what was published before this time, such as 2026-01-31")
	cmd.RunE = func(cmd *cobra.Command, args []string) error { return a.restoreArchive(cmd, args[0], *from) }
	return cmd
}

func (a *app) restoreArchive(cmd *cobra.Command, url, from string) error {
	ctx := cmd.Context()
	var config archive.RestoreConfig
	if from != "" {
		var err error
		if config.From, err = pastTime(from, time.Now()); err != nil {
			return err
		}
	}
	store, ph, err := a.storeAndClient(ctx, url, archive.OpenExisting)
	if err != nil {
		return err
	}
	defer func() { _ = store.Close() }()
	defer ph.Close()
	p := newProgress(cmd.ErrOrStderr(), "restored")
	defer p.end()
	config.Progress = func(n int64) { p.at(int(n)) }
	n, err := store.Restore(ctx, ph.Pool(), config)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(cmd.OutOrStdout(), "restored %d events\n", n)
	return err
}
