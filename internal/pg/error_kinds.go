package pg

import (
	"errors"
	"io"
	"net"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
)

// IsFinal reports whether an error will be the same the next time: the database
// refused the statement for its arguments, its rights or the state of its object.
func IsFinal(err error) bool {
	for _, final := range []error{ErrLeaseLost, ErrInvalid, ErrRefused, ErrNotFound, ErrConflict} {
		if errors.Is(err, final) {
			return true
		}
	}
	return sqlState(err) == insufficientPrivilege
}

// IsCollision reports whether a transaction failed only because of another one.
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

// IsOutage reports whether the server answered that it cannot work now: it lacks
// memory, disk or connections, is told to stop, or is damaged.
func IsOutage(err error) bool {
	code := sqlState(err)
	for _, class := range []string{"08", "53", "57", "58", "XX"} {
		if strings.HasPrefix(code, class) {
			return true
		}
	}
	return false
}

// IsUnreachable reports whether a connection could not be made, or broke, or did
// not answer in time.
func IsUnreachable(err error) bool {
	if err == nil {
		return false
	}
	if code := sqlState(err); code != "" {
		switch code {
		case "57P01", "57P02", "57P03": // the server is told to stop, has crashed, or is starting
			return true
		}
		return strings.HasPrefix(code, "08")
	}
	var connect *pgconn.ConnectError
	var network net.Error // deadlines that have passed are such too
	return errors.As(err, &connect) || errors.As(err, &network) ||
		errors.Is(err, net.ErrClosed) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
		strings.Contains(err.Error(), "conn closed") || strings.Contains(err.Error(), "unexpected EOF")
}
