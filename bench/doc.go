// Bench measures Posthorn beside its limits and its peers. Each row of the table in
// docs/performance.md does the same work with Posthorn and in another way, in turns,
// on one server, and prints the ratio.
//
//	go run . [-rows REGEXP] [-events N] [-rounds N] [-held 10m] [-markdown]
//
// Without -database-url it runs a server of its own in a temporary directory. With a
// URL, it makes databases of its own on that server and drops them again; it does not
// change the database that the URL names. Some rows start further servers.
//
// A row is a description, and a figure of two sides (row.go). Rows whose sides are the same
// systems are a sitting (sitting.go): all of its systems are measured in the same rounds.
// The systems that worker processes work for are in systems.go and work.go; what their
// connections or processes do for one row stands beside its description.
//
// Bench is a separate module, so that a user's binary never contains the dependencies
// of a comparison. Most rows call the SQL functions, which every client can do, and
// decode nothing: both sides have the same cost of receiving their rows. The rows of
// handlers use the Go package as a program does.
package main
