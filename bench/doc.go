// Bench measures Posthorn beside its limits and its peers: each row of the
// table in docs/performance.md does a piece of work our way and another way, in
// turns, on one server, and prints the ratio.
//
//	go run . [-rows REGEXP] [-events N] [-rounds N] [-held 10m] [-markdown]
//
// Without -database-url it runs a server of its own in a temporary directory.
// With one, it makes databases of its own on that server and drops them again;
// the database that the URL names is not touched.
//
// It is a module of its own, so that what only a comparison needs never
// reaches a user's binary. Most rows use what every client has, the SQL
// functions, and decode nothing: both sides pay the same for receiving their
// rows. Those of handlers use the Go package as a program does.
package main
