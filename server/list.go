package server

import "slices"

// list is a page of anything.
type list[T any] struct {
	Items []T    `json:"items"`
	Next  string `json:"next,omitempty" doc:"Give it as cursor to go on; absent at the end"`
}

type listOf[T any] struct{ Body list[T] }

// page is all of it, as a page. An empty one is [], not null.
func page[T any](items []T, next string) *listOf[T] {
	if items == nil {
		items = []T{}
	}
	return &listOf[T]{list[T]{items, next}}
}

// visible leaves out what belongs to streams that the caller may not read.
func visible[T any](c caller, items []T, stream func(T) string) []T {
	return slices.DeleteFunc(items, func(item T) bool { return !c.mayRead(stream(item)) })
}
