// Package in holds parts that the inputs of several operations share. The types are
// exported because huma ignores embedded types that are not.
package in

import "github.com/posthorn/posthorn/op"

// Namespace is part of every input. Handlers use caller.namespace, which is set by it.
type Namespace = op.Namespace

// ByName is part of the inputs of operations on one resource that has a name.
type ByName = op.ByName

// ByID is part of the inputs of operations on one resource that has a number.
type ByID = op.ByID

// ByLease is part of the inputs of operations on a lease.
type ByLease struct {
	Namespace
	LeaseID int64 `path:"lease" minimum:"1" doc:"The number of the lease, from the claim"`
}

// Page is part of the inputs of operations that return a page of a list.
type Page = op.Paging
