package op

import (
	"context"
	"fmt"
	"strconv"

	"github.com/posthorn/posthorn/admin"
)

// Namespace is part of every input. Each face chooses the namespace before the operation.
type Namespace struct {
	Namespace string `query:"namespace" maxLength:"100" doc:"The namespace. Default: that of the token, or of the server"`
}

// Nothing is the input of operations that have none but the namespace.
type Nothing struct{ Namespace }

// ByName is part of the inputs of operations on one thing that has a name.
type ByName struct {
	Namespace
	Name string `path:"name" doc:"The name of the resource"`
}

// ByID is part of the inputs of operations on one thing that has a number.
type ByID struct {
	Namespace
	ID int64 `path:"id" minimum:"1" doc:"The id of the resource"`
}

// EventID is the result of operations that publish an event.
type EventID struct {
	ID int64 `json:"id" doc:"The id of the event"`
}

func (e EventID) String() string { return strconv.FormatInt(e.ID, 10) }

// onNamed makes the operation of a method that takes a name. The sentence has %s for it.
func onNamed(about About, do func(*admin.Admin, context.Context, string) error, sentence string) Op[ByName, None] {
	return Op[ByName, None]{
		About: about,
		Call: func(ctx context.Context, a *admin.Admin, in *ByName) (None, error) {
			return None{}, do(a, ctx, in.Name)
		},
		Done: func(in *ByName, _ None) string { return fmt.Sprintf(sentence, in.Name) },
	}
}

// getNamed makes the operation of a method that returns the thing of a name.
func getNamed[T any](about About, get func(*admin.Admin, context.Context, string) (T, error)) Op[ByName, T] {
	about.Verb, about.Scope = "get", Read
	return Op[ByName, T]{About: about, Call: func(ctx context.Context, a *admin.Admin, in *ByName) (T, error) {
		return get(a, ctx, in.Name)
	}}
}

// listAll makes the operation of a method that returns all things of a kind.
func listAll[T any](about About, list func(*admin.Admin, context.Context) ([]T, error)) Op[Nothing, []T] {
	about.Verb, about.Scope = "list", Read
	return Op[Nothing, []T]{About: about, Call: func(ctx context.Context, a *admin.Admin, _ *Nothing) ([]T, error) {
		return list(a, ctx)
	}}
}

// asking adds the question before an operation.
func asking[In, Out any](o Op[In, Out], ask func(context.Context, *admin.Admin, *In) (string, error)) Op[In, Out] {
	o.Ask = ask
	return o
}

// Paging is part of the inputs of operations that return a page of a list.
type Paging struct {
	Limit  int    `query:"limit" page:"-" minimum:"1" maximum:"1000" default:"100" doc:"The largest number of items on the page"`
	Cursor string `query:"cursor" page:"-" follows:"next" maxLength:"500" doc:"The field next of the previous page"`
}
