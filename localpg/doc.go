// Package localpg runs a PostgreSQL server of the user's own: it finds (or
// downloads) the binaries, makes a cluster in a data directory, starts the
// server and stops it with the program.
//
// It owns what lies in the data directory:
//
//	lock          held by the process that runs the server; names its pid
//	password      of the one role, which is a superuser; readable by its owner only
//	port          the TCP port used last, taken again when it is free
//	postgres.log  what the server says
//	socket/       the Unix socket, in a directory nobody else may enter
//	pgdata/       the cluster itself
//
// It deletes none of it; to throw a cluster away, stop the server and remove
// the directory. It knows nothing about Posthorn's schema, and it does not
// upgrade clusters from one major version to the next.
//
// The server listens on that socket and on 127.0.0.1, and asks for the password
// on both, so that other users of the machine stay out. It runs in a process
// group of its own: a Ctrl-C in the terminal reaches the program, which can
// then finish its work before it stops the server. PostgreSQL refuses to run
// as root, so when the program is root the server runs as postgres or nobody.
package localpg
