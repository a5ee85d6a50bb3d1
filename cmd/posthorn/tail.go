package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"

	"github.com/posthorn/posthorn/admin"
	"github.com/posthorn/posthorn/internal/consume"
)

const tailLong = `Print events as they are published, one a line: time, id, stream, type, key and
payload. Reading changes nothing, and affects no group.

In a pattern for --type, * is one dotted part, and > is one part or more at the
end.

` + keeperHelp + ` A payload that cannot be opened is printed as it
is in the log.

` + timeHelp

const tailExample = `  posthorn tail
  posthorn tail --from beginning --type 'order.*' --type 'payment.>'
  posthorn tail --from -10m --stream orders --no-follow --json > orders.jsonl
  posthorn tail --from beginning --cursor-file seen --json | ./handle`

type tailFlags struct {
	from, cursorFile string
	types, streams   []string
	noFollow, asJSON bool
	keepers          keeperFlags
}

func newTail(a *app) *cobra.Command {
	cmd := about{"tail", "Print events as they are published", tailLong, tailExample}.command()
	var f tailFlags
	flags := cmd.Flags()
	flags.StringVar(&f.from, "from", "now", "where to begin: now, beginning or a TIME")
	flags.StringArrayVar(&f.types, "type", nil, "only events of types that match this pattern; may be repeated")
	flags.StringArrayVar(&f.streams, "stream", nil, "only events of this stream; may be repeated")
	f.keepers.add(cmd)
	flags.BoolVar(&f.noFollow, "no-follow", false, "stop at the end of the log")
	flags.StringVar(&f.cursorFile, "cursor-file", "", "start at the position in this file, and keep the position there")
	flags.BoolVar(&f.asJSON, "json", false, "print JSON, one document a line")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		err := a.tail(cmd, f)
		if err := cmd.Context().Err(); err != nil && f.noFollow {
			return err // there may be more events
		} else if err != nil {
			return nil // Ctrl-C is the normal end
		}
		return err
	}
	return cmd
}

func (a *app) tail(cmd *cobra.Command, f tailFlags) error {
	ctx := cmd.Context()
	for _, pattern := range f.types {
		if !consume.ValidPattern(pattern) {
			return usageError{fmt.Errorf("%q is no pattern", pattern), "write it like order.placed, order.* or order.>: * and > stand alone between dots, > at the end"}
		}
	}
	return a.withDatabase(ctx, func(conn *pgx.Conn) error {
		adm := admin.New(conn, a.namespace)
		cursor, err := f.cursor(ctx, adm)
		if err != nil {
			return err
		}
		return f.keepers.withOpener(ctx, conn, a.log, func(opener admin.Opener) error {
			t := tailer{adm: adm, namespace: a.namespace, out: cmd.OutOrStdout(), flags: f, opener: opener}
			return t.run(ctx, cursor)
		})
	})
}

// cursor is where to begin: the content of the cursor file, or else the place that --from
// names.
func (f tailFlags) cursor(ctx context.Context, adm *admin.Admin) (string, error) {
	if f.cursorFile != "" {
		text, err := os.ReadFile(f.cursorFile)
		if err == nil {
			return strings.TrimSpace(string(text)), nil
		}
		if !errors.Is(err, os.ErrNotExist) {
			return "", fmt.Errorf("read the cursor: %w", err)
		}
	}
	from, err := parseMoment(ctx, adm, f.from)
	if err != nil {
		return "", err
	}
	return adm.CursorAt(ctx, from)
}

// wants reports whether the filters of types and streams let an event pass.
func (f tailFlags) wants(e admin.Event) bool {
	return (len(f.streams) == 0 || slices.Contains(f.streams, e.Stream)) &&
		(len(f.types) == 0 || consume.MatchesAny(f.types, e.Type))
}

// tailer follows the log.
type tailer struct {
	adm       *admin.Admin
	namespace string
	out       io.Writer
	flags     tailFlags
	opener    admin.Opener
}

// The pause between two polls doubles from the shortest to the longest while no events
// arrive.
const (
	shortestPause = 50 * time.Millisecond
	longestPause  = 500 * time.Millisecond
	tailBatch     = 1000
	cursorPerms   = 0o600
)

func (t tailer) run(ctx context.Context, cursor string) error {
	pause := shortestPause
	for {
		events, next, err := t.adm.ReadEvents(ctx, cursor, tailBatch)
		if err != nil {
			return err
		}
		if err := t.print(ctx, events); err != nil {
			return err
		}
		if err := t.saveCursor(cursor, next); err != nil {
			return err
		}
		cursor = next
		switch {
		case len(events) > 0:
			pause = shortestPause
			continue
		case t.flags.noFollow:
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pause):
		}
		pause = min(2*pause, longestPause)
	}
}

// print writes a batch at once.
func (t tailer) print(ctx context.Context, events []admin.Event) error {
	var buffer bytes.Buffer
	for _, e := range events {
		if !t.flags.wants(e) {
			continue
		}
		payload, opened, err := t.opener.OpenPayload(ctx, t.namespace, e.Stream, e.Metadata, e.Payload)
		if e.Sealed = err != nil; opened {
			e.Payload = payload
		}
		if err := t.format(&buffer, e); err != nil {
			return err
		}
	}
	_, err := t.out.Write(buffer.Bytes())
	return err
}

// format writes one event. A payload that does not open is printed as it is in the log,
// and marked.
func (t tailer) format(buffer *bytes.Buffer, e admin.Event) error {
	if t.flags.asJSON {
		encoder := json.NewEncoder(buffer)
		encoder.SetEscapeHTML(false)
		return encoder.Encode(e)
	}
	at := e.PublishedAt.Local().Format("2006-01-02 15:04:05.000 -07:00")
	fmt.Fprintf(buffer, "%s  %d  %s  %s  %s  ", at, e.ID, e.Stream, e.Type, cell(e.Key))
	if err := json.Compact(buffer, e.Payload); err != nil {
		return err
	}
	if e.Sealed {
		buffer.WriteString("  (sealed)")
	}
	return buffer.WriteByte('\n')
}

// saveCursor replaces the file as a whole, so that it is never half a cursor.
func (t tailer) saveCursor(old, cursor string) error {
	file := t.flags.cursorFile
	if file == "" || old == cursor {
		return nil
	}
	err := os.WriteFile(file+".new", []byte(cursor+"\n"), cursorPerms)
	if err == nil {
		err = os.Rename(file+".new", file)
	}
	if err != nil {
		return fmt.Errorf("save the cursor: %w", err)
	}
	return nil
}
