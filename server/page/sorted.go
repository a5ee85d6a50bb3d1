package page

import (
	"cmp"
	"slices"
	"strings"
)

// sortedList is a list that is read whole, as its template shows it.
type sortedList[T any] struct {
	Rows []T
	All  int // before a text was asked for
	Sort string
}

// sorted leaves the rows whose name contains the text that is asked for, and sorts them: by name, or
// by one of the numbers, the largest first.
func sorted[T any](r *Request, all []T, name func(T) string, numbers map[string]func(T) float64) (sortedList[T], error) {
	list := sortedList[T]{All: len(all), Sort: cmp.Or(r.Value("sort"), "name")}
	number := numbers[list.Sort]
	if number == nil && list.Sort != "name" {
		return list, invalid("this list has no order "+list.Sort, "The orders are name, "+strings.Join(sortedKeys(numbers), ", ")+".")
	}
	part := strings.ToLower(r.Value("name"))
	for _, row := range all {
		if strings.Contains(strings.ToLower(name(row)), part) {
			list.Rows = append(list.Rows, row)
		}
	}
	slices.SortStableFunc(list.Rows, func(a, b T) int {
		if number != nil {
			if order := cmp.Compare(number(b), number(a)); order != 0 {
				return order
			}
		}
		return cmp.Compare(name(a), name(b))
	})
	return list, nil
}
