package page

import (
	"encoding/json"
	"maps"
	"slices"
)

// paging is the way to the other rows of a list. Lists go on behind the last row that
// is shown, never after a number of rows, so that rows which come and go meanwhile
// neither repeat nor hide others.
type paging struct{ First, Next string }

// pageOf cuts a list that was read with one row more than fit, and links to the rows
// behind it. Key returns the value of the parameter for the last row.
func pageOf[T any](r *Request, rows []T, parameter string, key func(T) any) ([]T, paging) {
	var p paging
	if r.Value(parameter) != "" {
		p.First = r.Same(parameter, "")
	}
	if len(rows) > pageLength {
		rows = rows[:pageLength]
		p.Next = r.Same(parameter, key(rows[pageLength-1]))
	}
	return rows, p
}

// further is the way on for a search that has looked at some of the rows only.
type further struct {
	Link   string
	At     int64 // the number that it has looked back to
	Newest int64 // of all; 0: not known
	GoesOn bool  // it has found nothing yet, and the script goes on
}

// Done is how far the search is, of Newest.
func (f further) Done() int64 { return f.Newest - f.At }

// optionalNumber returns a parameter that is a positive number, 0 if it is not given.
func (r *Request) optionalNumber(name string) (int64, error) {
	if r.Value(name) == "" {
		return 0, nil
	}
	return r.Number(name)
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// jsonText is a value of JSON as text: a string without its quotes.
func jsonText(raw json.RawMessage) string {
	var s string
	if json.Unmarshal(raw, &s) == nil {
		return s
	}
	return string(raw)
}
