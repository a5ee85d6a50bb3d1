package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
)

// printLine prints a line.
func printLine(cmd *cobra.Command, format string, values ...any) error {
	_, err := fmt.Fprintf(cmd.OutOrStdout(), format+"\n", values...)
	return err
}

// printID prints the id of something new.
func printID(cmd *cobra.Command, id int64, asJSON bool) error {
	return idResult(id).print(cmd, asJSON)
}

func idResult(id int64) result { return result{fmt.Sprint(id), map[string]int64{"id": id}} }

// jsonFlag adds --json, which every command has that lists something.
func jsonFlag(cmd *cobra.Command) *bool {
	return cmd.Flags().Bool("json", false, "print JSON")
}

func printJSON(w io.Writer, v any) error {
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	return encoder.Encode(v)
}

// cut shortens a list to n entries. If the list has more, it tells the user so.
func cut[T any](cmd *cobra.Command, list []T, n int) ([]T, error) {
	if len(list) <= n {
		return list, nil
	}
	more := "narrow the list"
	if limit := cmd.Flags().Lookup("limit").Value.(wholeNumber); n < limit.max {
		more = fmt.Sprintf("--limit %d", min(10*n, limit.max))
	}
	_, err := fmt.Fprintf(cmd.ErrOrStderr(), "posthorn: the first %d are listed; there are more: %s\n", n, more)
	return list[:n], err
}

// columns describe a table of things.
type columns[T any] struct {
	names string // separated by |
	row   func(T) []any
}

// print aligns the columns under a header. Empty and nil cells show as "-", so that
// columns can be counted.
func (c columns[T]) print(w io.Writer, list []T) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	// The last column gets no tab, which would pad it with spaces.
	_, _ = fmt.Fprintln(t, strings.ReplaceAll(strings.ToUpper(c.names), "|", "\t")) // Flush returns the error
	for _, x := range list {
		row := c.row(x)
		cells := make([]string, len(row))
		for i, value := range row {
			cells[i] = cell(value)
		}
		_, _ = fmt.Fprintln(t, strings.Join(cells, "\t"))
	}
	return t.Flush()
}

// printBelow prints the table after an empty line, unless it is empty.
func (c columns[T]) printBelow(w io.Writer, list []T) error {
	if len(list) == 0 {
		return nil
	}
	if _, err := fmt.Fprintln(w); err != nil {
		return err
	}
	return c.print(w, list)
}

// printOrJSON prints the table, or the things as JSON.
func (c columns[T]) printOrJSON(w io.Writer, list []T, asJSON bool) error {
	if asJSON {
		return printJSON(w, append([]T{}, list...))
	}
	return c.print(w, list)
}

// fields prints a property of a thing, one a line.
type fields func(name string, value any)

func printFields(w io.Writer, print func(fields)) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	print(func(name string, value any) { _, _ = fmt.Fprintf(t, "%s\t%s\n", name, cell(value)) }) // Flush returns the error
	return t.Flush()
}

var oneLine = strings.NewReplacer("\t", " ", "\r\n", " ", "\n", " ")

// firstLine is the first line of a text that is not empty. Of an error it is the message; only --json has the stack.
func firstLine(text string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
	return strings.TrimSpace(line)
}

func cell(v any) string {
	text := ""
	switch v := v.(type) {
	case nil:
	case time.Time:
		text = formatTime(v)
	case *time.Time:
		if v != nil {
			text = formatTime(*v)
		}
	default:
		text = oneLine.Replace(fmt.Sprint(v))
	}
	if text == "" {
		return "-"
	}
	return text
}

// formatTime formats a time as local time with its offset, to the second. JSON has all
// digits.
func formatTime(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.Local().Format("2006-01-02 15:04:05 -07:00")
}

// roughSeconds formats a period for people: 1h4m0s; a period of zero is "".
func roughSeconds(seconds float64) string {
	if seconds == 0 {
		return ""
	}
	d := time.Duration(seconds * float64(time.Second))
	if d < time.Second {
		return d.Round(time.Millisecond).String()
	}
	return d.Round(time.Second).String()
}
