// Package server is the HTTP API of Posthorn: events, groups, jobs, schedules and
// the rest, for programs in any language.
//
// It owns routes, JSON shapes, status codes, access checks and limits. All
// decisions about events and jobs are made by the functions of the schema. A
// request holds a database connection while a statement runs, and never while it
// waits.
//
// # How it is built
//
// [New] makes a [Server] for a client. Each resource has a file with a method that
// registers its operations; [Server.routes] calls these methods. An operation is
// registered in one of two ways:
//
//   - register, for operations that read and write JSON. Huma decodes and validates
//     the request by the type of the input, and the same types make the OpenAPI
//     document. The handler receives the caller and the input, and returns an output
//     or an error.
//   - Server.handle, for operations that huma cannot do, such as streams. The handler
//     receives the request, the response writer and the caller. It may return an
//     error until it has written something. Its parameters and response are
//     documented by hand.
//
// In both, the caller is authenticated and its scope is checked before the handler
// runs, and errors become problem details in problemOf. Register also limits the
// size of the body and checks that it is UTF-8. A handler always works in the
// namespace of the caller, caller.namespace.
//
// A handler that waits does so in the context of Server.untilDrain, which ends when
// the client disconnects and when [Server.Drain] is called.
//
// In tests, serve(t) runs a server on a database of its own.
package server
