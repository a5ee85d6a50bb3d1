package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/schema"
)

// Exit codes. They are documented in exitStatus, which is part of the root's help.
const (
	exitOK          = 0
	exitError       = 1
	exitUsage       = 2
	exitNotFound    = 3
	exitConflict    = 4
	exitRefused     = 5
	exitInterrupted = 130 // as shells report SIGINT
)

const exitStatus = `EXIT STATUS
  0    it worked
  1    any other error; also when the database cannot be reached
  2    the command line is wrong, or Posthorn found an argument invalid
  3    not found: there is no such namespace, group, job or the like
  4    conflict: it exists already or has changed, or a lease was lost
  5    refused: not allowed in the present state, such as a database that is
       not migrated, one that is too new for this binary, or a namespace that
       is closed since it has moved
  130  interrupted`

// sqlStateExits are the codes of errors that the SQL functions raise.
var sqlStateExits = map[string]int{
	"PH001": exitNotFound,
	"PH002": exitConflict,
	"PH003": exitConflict, // lease lost
	"PH004": exitUsage,
	"PH005": exitRefused,
	"PH008": exitRefused, // the namespace is closed
}

// sentinelExits are the codes of errors that did not come from the database.
var sentinelExits = map[error]int{
	posthorn.ErrNotFound: exitNotFound,
	posthorn.ErrConflict: exitConflict,
	posthorn.ErrInvalid:  exitUsage,
	posthorn.ErrRefused:  exitRefused,
}

func exitCode(err error) int {
	var usage usageError
	var pgErr *pgconn.PgError
	switch {
	case errors.As(err, &usage):
		return exitUsage
	case errors.Is(err, context.Canceled):
		return exitInterrupted
	case errors.Is(err, schema.ErrNotMigrated), errors.Is(err, schema.ErrTooNew), errors.Is(err, schema.ErrOtherHistory):
		return exitRefused
	case errors.As(err, &pgErr) && sqlStateExits[pgErr.Code] != 0:
		return sqlStateExits[pgErr.Code]
	}
	for sentinel, code := range sentinelExits {
		if errors.Is(err, sentinel) {
			return code
		}
	}
	return exitError
}

// hintError is an error that comes with advice.
type hintError struct {
	error
	hint string
}

func (e hintError) Unwrap() error { return e.error }

func (e hintError) Hint() string { return e.hint }

// usageError is an error in the command line or the environment.
type usageError hintError

func (e usageError) Unwrap() error { return e.error }

func (e usageError) Hint() string { return e.hint }

// printError prints the error in one line, and a hint in a second.
func printError(w io.Writer, err error) {
	text := strings.ReplaceAll(err.Error(), context.Canceled.Error(), "interrupted")
	_, _ = fmt.Fprintf(w, "posthorn: %s\n", oneLine.Replace(text))
	if hint := inCommands(posthorn.Hint(err)); hint != "" {
		_, _ = fmt.Fprintf(w, "hint: %s\n", oneLine.Replace(hint))
	}
}
