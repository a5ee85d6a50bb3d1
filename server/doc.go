// Package server speaks HTTP for a client's database: events, groups, schedules
// and the rest, for programs in any language.
//
// It owns what is HTTP: routes, shapes of JSON, status codes, who may do what,
// limits. It decides nothing about events; that is up to the functions of the
// schema. A request holds a database connection while a statement runs, and
// never while it waits.
//
// # How it is built
//
// [New] makes a [Server] of a client. A resource is a file with a method that
// registers its operations, called by [Server.routes]. There are two ways in:
//
//   - register, for operations of JSON: huma reads and checks what comes in, by
//     the types of the input, and the OpenAPI document is made of the same
//     types. The handler gets the caller and returns an output or an error.
//   - Server.handle, for what huma cannot do, such as streams. The handler gets the
//     request, the writer and the caller, and may return an error as long as it
//     has written nothing. The operation it documents is given by hand.
//
// Both see to it that the caller is known and has the scope, that the body is
// bounded and valid UTF-8, and that errors become problem details, in
// problemOf and nowhere else. Who the caller is, Server.authenticate says. The
// namespace is always the caller's: pass caller.namespace to whatever is called.
//
// What waits, waits with the context of Server.untilDrain, which ends when the
// client goes, and when [Server.Drain] is called.
//
// Tests call serve(t): it runs a server on a database of the test's own.
package server
