package pg

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5/pgconn"
)

// What the functions raise. Callers tell them apart with errors.Is; the full
// story is in an [*Error].
var (
	ErrNotFound  = errors.New("not found")
	ErrConflict  = errors.New("conflict")
	ErrLeaseLost = errors.New("lease lost")
	ErrInvalid   = errors.New("invalid argument")
	ErrRefused   = errors.New("refused")
)

var sentinels = map[string]error{
	"PH001": ErrNotFound,
	"PH002": ErrConflict,
	"PH003": ErrLeaseLost,
	"PH004": ErrInvalid,
	"PH005": ErrRefused,
}

// Error is an error that a function of the schema raised. It unwraps to one of
// the sentinels and to the *pgconn.PgError it came as.
type Error struct {
	Message string
	Detail  string

	sentinel error
	hint     string
	cause    *pgconn.PgError // nil when this package found it, without asking
}

func (e *Error) Error() string {
	if e.Detail == "" {
		return e.Message
	}
	return e.Message + ": " + e.Detail
}

// Hint is what to do about it; it may be empty.
func (e *Error) Hint() string { return e.hint }

func (e *Error) Unwrap() []error {
	if e.cause == nil {
		return []error{e.sentinel}
	}
	return []error{e.sentinel, e.cause}
}

// NotFound is an [ErrNotFound] that was found here, with what to do about it.
func NotFound(message, hint string) error {
	return &Error{Message: message, sentinel: ErrNotFound, hint: hint}
}

// Invalid is an [ErrInvalid] that was found here, with what to do about it.
func Invalid(message, hint string) error {
	return &Error{Message: message, sentinel: ErrInvalid, hint: hint}
}

// Refused is an [ErrRefused] that was found here, with what to do about it.
func Refused(message, hint string) error {
	return &Error{Message: message, sentinel: ErrRefused, hint: hint}
}

const insufficientPrivilege = "42501"

// deniedError is a refusal of Postgres, with the roles that would help.
type deniedError struct{ error }

func (e deniedError) Unwrap() error { return e.error }

func (deniedError) Hint() string {
	return "grant posthorn_publisher, posthorn_consumer or posthorn_admin to the user of the database URL, as in: " +
		"grant posthorn_publisher to app; docs/operations.md says what each may do"
}

// Translate says what was attempted, and turns the errors of the schema into
// [*Error]. Those of Postgres itself stay as they are.
func Translate(verb string, err error) error {
	if err == nil {
		return nil
	}
	var cause *pgconn.PgError
	if errors.As(err, &cause) {
		if sentinel := sentinels[cause.Code]; sentinel != nil {
			err = &Error{cause.Message, cause.Detail, sentinel, cause.Hint, cause}
		} else if cause.Code == insufficientPrivilege {
			err = deniedError{err}
		}
	} else if errors.Is(err, context.DeadlineExceeded) {
		err = fmt.Errorf("the database did not answer in time: %w", err)
	}
	return fmt.Errorf("%s: %w", verb, err)
}
