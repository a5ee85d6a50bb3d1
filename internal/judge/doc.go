// Package judge tests the clients of every language with the same scenarios. It consists of tests only.
//
// A client is judged through a small program, which it is used by: the program reads commands and
// writes reports, as JSON lines. The scenarios are the rows of docs/clients.md, which also
// describes the commands and the reports. The program in Go is this test binary.
//
// TestMixedTorture runs the programs of all languages side by side, in the same groups and on the
// same jobs, while they are killed and stopped and Postgres is killed.
package judge
