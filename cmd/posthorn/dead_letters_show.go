package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"

	"github.com/posthorn/posthorn/internal/pg"
	"github.com/posthorn/posthorn/internal/sealing"
)

func newDeadLettersShow(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "show ID",
		Short:   "Show one dead letter, with payload and stack",
		Example: "  posthorn dead-letters show 7",
		Args:    cobra.ExactArgs(1),
	}
	var keepers keeperFlags
	keepers.add(cmd)
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		id, err := strconv.ParseInt(args[0], 10, 64)
		if err != nil || id <= 0 {
			return usageError{fmt.Errorf("%q is no id of a dead letter", args[0]), "run: posthorn dead-letters list"}
		}
		return a.withDatabase(cmd.Context(), func(conn *pgx.Conn) error {
			found, err := pg.ListDeadLetters(cmd.Context(), conn, a.namespace, "", pg.DeadLetterFilter{IDs: []int64{id}})
			if err != nil {
				return err
			}
			if len(found) == 0 {
				return hintError{
					fmt.Errorf("dead letter %d in namespace %s: %w", id, a.namespace, pg.ErrNotFound),
					"run: posthorn dead-letters list",
				}
			}
			if err := a.openDeadLetters(cmd.Context(), conn, keepers, found); err != nil {
				return err
			}
			if *asJSON {
				return printJSON(cmd.OutOrStdout(), found[0])
			}
			return printDeadLetter(cmd.OutOrStdout(), found[0])
		})
	}
	return cmd
}

// openDeadLetters opens what opens. The rest is shown as it is.
func (a *app) openDeadLetters(ctx context.Context, conn *pgx.Conn, keepers keeperFlags, letters []pg.DeadLetter) error {
	return keepers.withBox(ctx, conn, a.log, func(box *sealing.Box) error {
		for i := range letters {
			d := &letters[i]
			payload, opened, err := box.OpenPayload(ctx, a.namespace, d.Stream, d.Metadata, d.Payload)
			if d.Sealed = err != nil; opened {
				d.Payload = payload
			}
		}
		return nil
	})
}

func printDeadLetter(w io.Writer, d pg.DeadLetter) error {
	f := newFields(w)
	f.field("id", d.ID)
	f.field("group", d.Group)
	f.field("subscription", d.Subscription)
	f.field("reason", d.Reason)
	f.field("error", d.Error)
	f.field("attempts", d.Attempts)
	f.field("failed at", d.FailedAt)
	f.field("node", d.Node)
	f.field("event", d.EventID)
	f.field("stream", d.Stream)
	f.field("type", d.Type)
	f.field("key", d.Key)
	f.field("tags", strings.Join(d.Tags, ", "))
	f.field("published at", d.PublishedAt)
	if err := f.flush(); err != nil {
		return err
	}
	var parts strings.Builder
	heading := "payload"
	if d.Sealed {
		heading += " (sealed)"
	}
	parts.WriteString("\n" + heading + "\n" + indented(d.Payload) + "\n")
	if string(d.Metadata) != "{}" {
		parts.WriteString("\nmetadata\n" + indented(d.Metadata) + "\n")
	}
	if d.Stack != "" {
		parts.WriteString("\nstack\n" + strings.TrimRight(d.Stack, "\n") + "\n")
	}
	_, err := io.WriteString(w, parts.String())
	return err
}

func indented(document json.RawMessage) string {
	var buffer bytes.Buffer
	if json.Indent(&buffer, document, "", "  ") != nil {
		return string(document)
	}
	return buffer.String()
}
