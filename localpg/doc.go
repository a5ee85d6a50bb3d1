// Package localpg runs a private PostgreSQL server: it finds or downloads the
// binaries, creates a cluster in a data directory, starts the server and stops it
// with the program.
//
// The data directory contains:
//
//	lock          locked by the process that runs the server; holds its pid
//	password      of the only role, a superuser; readable by its owner only
//	port          the TCP port of the last run, reused if it is free
//	postgres.log  the server's log
//	socket/       the Unix socket, in a directory that only its owner may enter
//	pgdata/       the cluster
//
// The package deletes none of these files; to delete a cluster, stop the server and
// remove the directory. It does not install Posthorn's schema, and does not upgrade
// clusters to another major version.
//
// The server listens on the socket and on 127.0.0.1, and requires the password on
// both, so that other users of the machine cannot connect. It runs in its own process
// group: a Ctrl-C in the terminal reaches only the program, which can then finish its
// work before it stops the server. PostgreSQL refuses to run as root, so the server
// of a root program runs as the user postgres or nobody.
package localpg
