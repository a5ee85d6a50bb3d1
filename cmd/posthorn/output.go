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

// printID prints the id of something new.
func printID(cmd *cobra.Command, id int64, asJSON bool) error {
	if asJSON {
		return printJSON(cmd.OutOrStdout(), map[string]int64{"id": id})
	}
	_, err := fmt.Fprintln(cmd.OutOrStdout(), id)
	return err
}

// cut leaves the first n of a list, which was asked for one more, and tells the
// user if there is more.
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

// table prints aligned columns under a header.
type table struct{ w *tabwriter.Writer }

func newTable(w io.Writer, header ...string) table {
	t := table{tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)}
	for i := range header {
		header[i] = strings.ToUpper(header[i])
	}
	t.line(header)
	return t
}

// row adds a line. Empty and nil cells show as "-", so that columns can be
// counted, and line breaks as spaces.
func (t table) row(cells ...any) {
	texts := make([]string, len(cells))
	for i, c := range cells {
		texts[i] = cell(c)
	}
	t.line(texts)
}

// The last column gets no tab, which would pad it with spaces. Errors of the
// writer come out of flush.
func (t table) line(cells []string) { _, _ = fmt.Fprintln(t.w, strings.Join(cells, "\t")) }

func (t table) flush() error { return t.w.Flush() }

var oneLine = strings.NewReplacer("\t", " ", "\r\n", " ", "\n", " ")

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

// formatTime prints the local time with its offset, to the second. JSON keeps
// all digits.
func formatTime(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.Local().Format("2006-01-02 15:04:05 -07:00")
}

// fields prints one thing, a line for each of its properties.
type fields struct{ w *tabwriter.Writer }

func newFields(w io.Writer) fields {
	return fields{tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)}
}

func (f fields) field(name string, value any) { _, _ = fmt.Fprintf(f.w, "%s\t%s\n", name, cell(value)) }

func (f fields) flush() error { return f.w.Flush() }

// roughSeconds is a period for people: 1h4m0s, or nothing.
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
