package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/posthorn/posthorn/admin"
	"github.com/posthorn/posthorn/op"
)

func newDeadLettersShow(a *app) *cobra.Command {
	return showCommand[admin.DeadLetter]{
		about:   aboutOf(op.GetDeadLetter, ""),
		keepers: &keeperFlags{},
		load: func(ctx context.Context, adm *admin.Admin, text string) (admin.DeadLetter, error) {
			id, err := parseID(text, "a dead letter", "dead-letters list")
			if err != nil {
				return admin.DeadLetter{}, err
			}
			return op.GetDeadLetter.Call(ctx, adm, &op.ByID{ID: id})
		},
		fields: deadLetterFields,
		below:  printDeadLetterPayload,
	}.build(a)
}

// parseID reads the id of a thing, such as "a job". list is a command that prints ids.
func parseID(text, thing, list string) (int64, error) {
	id, err := strconv.ParseInt(text, 10, 64)
	if err != nil || id <= 0 {
		return 0, usageError{fmt.Errorf("%q is no id of %s", text, thing), "run: posthorn " + list}
	}
	return id, nil
}

func deadLetterFields(field fields, d admin.DeadLetter) {
	field("id", d.ID)
	field("group", d.Group)
	field("subscription", d.Subscription)
	field("reason", d.Reason)
	field("error", d.Error)
	field("attempts", d.Attempts)
	field("failed at", d.FailedAt)
	if !d.DiscardedAt.IsZero() {
		field("discarded at", d.DiscardedAt)
		field("discarded by", d.DiscardedBy)
	}
	field("worker", d.Node)
	field("event", d.EventID)
	field("stream", d.Stream)
	field("type", d.Type)
	field("key", d.Key)
	field("tags", strings.Join(d.Tags, ", "))
	field("published at", d.PublishedAt)
}

func printDeadLetterPayload(w io.Writer, d admin.DeadLetter) error {
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
