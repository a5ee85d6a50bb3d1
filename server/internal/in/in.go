// Package in holds parts that the inputs of several operations share. The types are
// exported because huma ignores embedded types that are not.
package in

import "time"

// Namespace is part of every input. Handlers use caller.namespace, which is set by it.
type Namespace struct {
	Namespace string `query:"namespace" maxLength:"100" doc:"The namespace. Default: that of the token, or of the server"`
}

// ByName is part of the inputs of operations on one resource that has a name.
type ByName struct {
	Namespace
	Name string `path:"name" doc:"The name of the resource"`
}

// ByID is part of the inputs of operations on one resource that has a number.
type ByID struct {
	Namespace
	ID int64 `path:"id" minimum:"1" doc:"The id of the resource"`
}

// ByLease is part of the inputs of operations on a lease.
type ByLease struct {
	Namespace
	LeaseID int64 `path:"lease" minimum:"1" doc:"The number of the lease, from the claim"`
}

// Page is part of the inputs of operations that return a page of a list.
type Page struct {
	Limit  int    `query:"limit" minimum:"1" maximum:"1000" default:"100" doc:"The largest number of items on the page"`
	Cursor string `query:"cursor" maxLength:"500" doc:"The field next of the previous page"`
}

// DeadLetters selects dead letters, in a query or in a body.
type DeadLetters struct {
	Group        string    `query:"group" json:"group,omitempty" doc:"Default: all groups"`
	Event        int64     `query:"event" json:"event,omitempty" minimum:"1" doc:"The id of the event"`
	Type         string    `query:"type" json:"type,omitempty"`
	Subscription string    `query:"subscription" json:"subscription,omitempty"`
	Reason       string    `query:"reason" json:"reason,omitempty"`
	Cause        string    `query:"cause" json:"cause,omitempty" doc:"The error without its numbers and quoted parts, as dead letters have it"`
	Error        string    `query:"error" json:"error,omitempty" doc:"A part of the error message"`
	FailedAfter  time.Time `query:"failed_after" json:"failed_after,omitzero"`
	FailedBefore time.Time `query:"failed_before" json:"failed_before,omitzero"`
	Key          string    `query:"key" json:"key,omitempty" doc:"The key of the event"`
	UpTo         int64     `query:"upto" json:"upto,omitempty" minimum:"1" doc:"Only dead letters with this id or a lower one"`
	Discarded    bool      `query:"discarded" json:"discarded,omitempty" doc:"true: only discarded dead letters. Default: only others"`
}
