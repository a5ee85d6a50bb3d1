package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"

	"github.com/posthorn/posthorn/admin"
	"github.com/posthorn/posthorn/internal/pg"
	"github.com/posthorn/posthorn/internal/sealing"
)

const publishLong = `Publish one event and print its id, or with --lines many.

PAYLOAD is JSON, {} if it is left out; - reads it from the standard input.

With --lines each line of the standard input is a message, a JSON object with
the fields type, payload, stream, key, tags, metadata, deliver_at and dedup_key;
only type is required. Messages are published in order, up to 1,000 in one
transaction. At the first line that is wrong it stops; all lines before it are
published, and it says how many that are. Interrupted, it
finishes the transaction under way first. If the connection breaks in a
transaction, it says of which lines it does not know whether they are written.

` + keeperHelp

const publishExample = `  posthorn publish order.placed '{"order": 7}'
  posthorn publish order.placed --stream orders --key 7 --tag web < /dev/null
  echo '{"order": 7}' | posthorn publish order.placed -
  posthorn publish reminder --deliver-at 2h --dedup-key reminder-7
  posthorn publish --lines < events.jsonl`

type publishFlags struct {
	stream, key, metadata, deliverAt, dedupKey string

	tags    []string
	keepers keeperFlags
}

func newPublish(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "publish TYPE [PAYLOAD] | publish --lines",
		Short:   "Publish events",
		Long:    publishLong,
		Example: publishExample,
	}
	var f publishFlags
	flags := cmd.Flags()
	flags.StringVar(&f.stream, "stream", "", `the stream (default "default")`)
	flags.StringVar(&f.key, "key", "", "what the event is about: ordered groups keep the order of equal keys")
	flags.StringArrayVar(&f.tags, "tag", nil, "a tag; may be repeated")
	flags.StringVar(&f.metadata, "metadata", "", "JSON that goes along with the payload")
	flags.StringVar(&f.deliverAt, "deliver-at", "", "when it shall enter the log: a time, or a duration from now")
	f.keepers.add(cmd)
	flags.StringVar(&f.dedupKey, "dedup-key", "", "published again under this key, it stays one event")
	asJSON := jsonFlag(cmd)
	oneOrLines(cmd, "read messages from the standard input, one a line",
		[]string{"stream", "key", "tag", "metadata", "deliver-at", "dedup-key"},
		func(args []string) error { return a.publishOne(cmd, args, f, *asJSON) },
		func() error { return a.publishLines(cmd, f.keepers, *asJSON) })
	return cmd
}

func (a *app) publishOne(cmd *cobra.Command, args []string, f publishFlags, asJSON bool) error {
	m, err := f.message(input{cmd.Context(), cmd.InOrStdin()}, args)
	if err != nil {
		return err
	}
	ctx := cmd.Context()
	return a.withDatabase(ctx, func(conn *pgx.Conn) error {
		var err error
		if m.DeliverAt, err = timeFlag(ctx, conn, f.deliverAt); err != nil {
			return err
		}
		return f.keepers.withBox(ctx, conn, a.log, func(box *sealing.Box) error {
			sealed, err := box.Seal(ctx, a.namespace, []pg.Message{m})
			if err != nil {
				return err
			}
			id, err := pg.Publish(ctx, conn, a.namespace, sealed[0])
			if err != nil {
				return err
			}
			return printID(cmd, id, asJSON)
		})
	})
}

// oneOrLines makes a command that does one thing, by its arguments, or with --lines
// many, by its standard input; flags are of the one only.
func oneOrLines(cmd *cobra.Command, usage string, flags []string, one func(args []string) error, lines func() error) {
	fromLines := cmd.Flags().Bool("lines", false, usage)
	for _, flag := range flags {
		cmd.MarkFlagsMutuallyExclusive("lines", flag)
	}
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if *fromLines {
			return cobra.NoArgs(cmd, args)
		}
		return cobra.RangeArgs(1, 2)(cmd, args)
	}
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		switch {
		case *fromLines:
			return lines()
		case args[0] == "-":
			hint := "to read many from the standard input: " + cmd.CommandPath() + " --lines"
			return usageError{errors.New("the first argument cannot be -"), hint}
		}
		return one(args)
	}
}

// timeFlag is the time that a flag gives, by the database's clock; none if it is
// empty.
func timeFlag(ctx context.Context, conn *pgx.Conn, value string) (*time.Time, error) {
	if value == "" {
		return nil, nil
	}
	now, err := admin.New(conn, "").Now(ctx)
	if err != nil {
		return nil, err
	}
	at, err := futureTime(value, now)
	return &at, err
}

func printID(cmd *cobra.Command, id int64, asJSON bool) error {
	if asJSON {
		return printJSON(cmd.OutOrStdout(), map[string]int64{"id": id})
	}
	_, err := fmt.Fprintln(cmd.OutOrStdout(), id)
	return err
}

// message is all of it but its time, which depends on the database's clock.
func (f publishFlags) message(stdin io.Reader, args []string) (pg.Message, error) {
	m := pg.Message{Type: args[0], Stream: f.stream, Key: f.key, Tags: f.tags, DedupKey: f.dedupKey}
	var err error
	if m.Payload, err = payload(stdin, args[1:]); err != nil {
		return pg.Message{}, err
	}
	m.Metadata, err = document("metadata", []byte(f.metadata))
	return m, err
}

// payload is the argument, or the standard input when that says so.
func payload(stdin io.Reader, args []string) (json.RawMessage, error) {
	if len(args) == 0 {
		return nil, nil
	}
	if args[0] != "-" {
		return document("payload", []byte(args[0]))
	}
	text, err := io.ReadAll(stdin)
	if err != nil {
		return nil, fmt.Errorf("read the payload: %w", err)
	}
	if len(bytes.TrimSpace(text)) == 0 {
		return nil, usageError{errors.New("the standard input is empty"), "it should hold one JSON document"}
	}
	return document("payload", text)
}

// document checks JSON here, where it can be told which argument was wrong.
func document(what string, text []byte) (json.RawMessage, error) {
	if text = bytes.TrimSpace(text); len(text) == 0 {
		return nil, nil
	}
	var parsed json.RawMessage
	if err := json.Unmarshal(text, &parsed); err != nil {
		return nil, usageError{fmt.Errorf("the %s is not valid JSON: %w", what, err), `text needs double quotes: '"like this"'`}
	}
	return text, nil
}
