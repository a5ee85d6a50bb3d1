package pg

import (
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
)

// IsFinal reports whether a retry would have the same error: the database refused the
// statement for its arguments, its rights or the state of its object. A namespace that is
// closed may be opened again, so workers wait for that.
func IsFinal(err error) bool {
	for _, final := range []error{ErrLeaseLost, ErrInvalid, ErrRefused, ErrNotFound, ErrConflict} {
		if errors.Is(err, final) {
			return true
		}
	}
	return sqlState(err) == insufficientPrivilege
}

// IsCommitted reports whether a statement's transaction is committed: it has succeeded, or
// lacks only the confirmation of a standby ([ErrUnconfirmed]).
func IsCommitted(err error) bool { return err == nil || errors.Is(err, ErrUnconfirmed) }

// IsCollision reports whether a transaction failed only because of a concurrent one.
func IsCollision(err error) bool {
	switch sqlState(err) {
	case "40001", "40P01", "55P03": // serialization failure, deadlock, lock not available
		return true
	}
	return false
}

// IsFailedTransaction reports whether a statement was refused because an earlier
// one of its transaction had failed.
func IsFailedTransaction(err error) bool { return sqlState(err) == "25P02" }

// outageClasses are the classes of SQLSTATEs with which a server says that it cannot work.
var outageClasses = []string{"08", "53", "57", "58", "XX"}

// IsOutage reports whether the server answered that it cannot work now: it lacks memory,
// disk or connections, is shutting down, or is damaged.
func IsOutage(err error) bool {
	code := sqlState(err)
	return len(code) == 5 && slices.Contains(outageClasses, code[:2])
}

// IsUnreachable reports whether a connection could not be made, broke, or did not answer in
// time.
func IsUnreachable(err error) bool {
	if err == nil {
		return false
	}
	if code := sqlState(err); code != "" {
		return isStarting(err) || strings.HasPrefix(code, "08")
	}
	var connect *pgconn.ConnectError
	var network net.Error // a deadline that has passed is one too
	return errors.As(err, &connect) || errors.As(err, &network) ||
		errors.Is(err, net.ErrClosed) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
		strings.Contains(err.Error(), "conn closed") || strings.Contains(err.Error(), "unexpected EOF")
}

// IsOutOfTime reports whether a statement was ended because it took too long: by its deadline, or by
// a limit that its role has.
func IsOutOfTime(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || wasCanceled(err)
}

// IsPlaintext reports whether the database refused a message of a confidential stream
// because its payload was not sealed.
func IsPlaintext(err error) bool { return constraint(err) == "sealed_payload" }

// IsWrongKey reports whether the database refused a message because the stream does not
// have the key of its payload, or has retired it.
func IsWrongKey(err error) bool { return constraint(err) == "sealed_key" }

// MovedTo returns the place to which the namespace of an [ErrMoved] has moved, as the operator
// named it, or "".
func MovedTo(err error) string {
	if cause, ok := errors.AsType[*pgconn.PgError](err); ok && errors.Is(err, ErrMoved) {
		return cause.ConstraintName
	}
	return ""
}

func constraint(err error) string {
	if cause, ok := errors.AsType[*pgconn.PgError](err); ok && cause.Code == "PH005" {
		return cause.ConstraintName
	}
	return ""
}
