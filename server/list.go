package server

import (
	"encoding/base64"
	"fmt"
	"strconv"
	"strings"
)

// list is one page of a list.
type list[T any] struct {
	Items []T    `json:"items"`
	Next  string `json:"next,omitempty" doc:"The cursor of the next page; absent on the last one"`
}

type listOf[T any] = bodyOf[list[T]]

// page returns a page of a list. Without items its JSON has [], not null.
func page[T any](items []T, next string) *listOf[T] {
	if items == nil {
		items = []T{}
	}
	return &listOf[T]{list[T]{items, next}}
}

// writeCursor returns a cursor of one kind of list. Clients must not interpret it.
func writeCursor(kind string, id int64) string {
	return base64.RawURLEncoding.EncodeToString(fmt.Appendf(nil, "%s %d", kind, id))
}

// readCursor returns the id in a cursor; 0 if there is no cursor.
func readCursor(kind, cursor string) (int64, error) {
	if cursor == "" {
		return 0, nil
	}
	raw, err := base64.RawURLEncoding.DecodeString(cursor)
	if err == nil {
		if number, ok := strings.CutPrefix(string(raw), kind+" "); ok {
			if id, err := strconv.ParseInt(number, 10, 64); err == nil && id > 0 {
				return id, nil
			}
		}
	}
	return 0, badRequest("the cursor is not one of this list", "Give the field next of the previous page, with the same parameters.")
}
