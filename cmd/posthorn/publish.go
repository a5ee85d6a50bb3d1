package main

import (
	"context"
	"io"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/admin"
)

const publishLong = `Publish one event and print its id, or with --lines many.

PAYLOAD is JSON, {} if it is left out; - reads it from the standard input.

With --lines each line of the standard input is a message, a JSON object with
the fields type, payload, stream, key, tags, metadata, deliver_at and dedup_key;
only type is required. Messages are published in order, up to 1,000 in one
` + linesHelp + `

` + keeperHelp

const publishExample = `  posthorn publish order.placed '{"order": 7}'
  posthorn publish order.placed --stream orders --key 7 --tag web < /dev/null
  echo '{"order": 7}' | posthorn publish order.placed -
  posthorn publish reminder --deliver-at 2h --dedup-key reminder-7
  posthorn publish --lines < events.jsonl`

type publishFlags struct {
	message             posthorn.Message
	metadata, deliverAt string
	keepers             keeperFlags
}

func newPublish(a *app) *cobra.Command {
	cmd := about{"publish TYPE [PAYLOAD] | publish --lines", "Publish events", publishLong, publishExample}.command()
	var f publishFlags
	flags := cmd.Flags()
	flags.StringVar(&f.message.Stream, "stream", "", `the stream (default "default")`)
	flags.StringVar(&f.message.Key, "key", "", "the key of the event, such as the id of an order: ordered groups keep the order of equal keys")
	flags.StringArrayVar(&f.message.Tags, "tag", nil, "a tag; may be repeated")
	flags.StringVar(&f.metadata, "metadata", "", "JSON that is stored beside the payload")
	flags.StringVar(&f.deliverAt, "deliver-at", "", "when the event enters the log: a time, or a duration from now")
	f.keepers.add(cmd)
	flags.StringVar(&f.message.DedupKey, "dedup-key", "", "messages with the same key within a day become one event")
	asJSON := jsonFlag(cmd)
	oneOrLines(cmd, "read messages from the standard input, one a line",
		[]string{"stream", "key", "tag", "metadata", "deliver-at", "dedup-key"},
		func(args []string) error { return a.publishOne(cmd, args, f, *asJSON) },
		func() error { return a.publishLines(cmd, f.keepers, *asJSON) })
	return cmd
}

func (a *app) publishOne(cmd *cobra.Command, args []string, f publishFlags, asJSON bool) error {
	ctx := cmd.Context()
	m, err := f.read(input{ctx, cmd.InOrStdin()}, args)
	if err != nil {
		return err
	}
	return a.withClient(ctx, f.keepers, func(ph *posthorn.Client) (err error) {
		if m.DeliverAt, err = futureFlag(ctx, ph.Admin(), f.deliverAt); err != nil {
			return err
		}
		ids, err := ph.Publish(ctx, ph.Pool(), m)
		if err != nil {
			return err
		}
		return printID(cmd, ids[0], asJSON)
	})
}

// read reads the message, without its time, which depends on the database's clock.
func (f publishFlags) read(stdin io.Reader, args []string) (posthorn.Message, error) {
	m := f.message
	m.Type = args[0]
	raw, err := payload(stdin, args[1:])
	if err != nil {
		return m, err
	}
	m.Payload = optional(raw)
	m.Metadata, err = metadataFlag(f.metadata)
	return m, err
}

func (a *app) publishLines(cmd *cobra.Command, keepers keeperFlags, asJSON bool) error {
	return a.withClient(cmd.Context(), keepers, func(ph *posthorn.Client) error {
		w := lineWriter[posthorn.Message]{
			verb: "published", thing: "event",
			parse: parseMessage,
			write: func(ctx context.Context, batch []posthorn.Message) error { return publishBatch(ctx, ph, batch) },
		}
		return w.run(cmd, asJSON)
	})
}

func parseMessage(l line) (posthorn.Message, error) {
	var m admin.Message
	err := l.decode(&m)
	return posthorn.Message{
		Type: m.Type, Stream: m.Stream, Key: m.Key, Tags: m.Tags, Payload: optional(m.Payload), Metadata: metadata(m.Metadata),
		DeliverAt: m.DeliverAt, DedupKey: m.DedupKey,
	}, err
}

// publishBatch publishes messages in one transaction. A batch with messages that are
// delayed or have a dedup key is published one by one: as a batch, their payloads would
// be rewritten as jsonb does.
func publishBatch(ctx context.Context, ph *posthorn.Client, batch []posthorn.Message) error {
	special := func(m posthorn.Message) bool { return m.DedupKey != "" || !m.DeliverAt.IsZero() }
	if len(batch) == 1 || !slices.ContainsFunc(batch, special) {
		_, err := ph.Publish(ctx, ph.Pool(), batch...)
		return err
	}
	return pgx.BeginFunc(ctx, ph.Pool(), func(tx pgx.Tx) error {
		for _, m := range batch {
			if _, err := ph.Publish(ctx, tx, m); err != nil {
				return err
			}
		}
		return nil
	})
}
