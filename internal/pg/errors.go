package pg

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/posthorn/posthorn/schema"
)

// The kinds of errors that the SQL functions raise. Callers tell them apart with errors.Is.
// An [*Error] has the details.
var (
	ErrNotFound  = errors.New("not found")
	ErrConflict  = errors.New("conflict")
	ErrLeaseLost = errors.New("lease lost")
	ErrInvalid   = errors.New("invalid argument")
	ErrRefused   = errors.New("refused")
	ErrMoved     = errors.New("moved")

	// ErrUnconfirmed says that a transaction is committed, and that a failover may lose it.
	ErrUnconfirmed = errors.New("not confirmed by a standby")
)

var sentinels = map[string]error{
	"PH001": ErrNotFound,
	"PH002": ErrConflict,
	"PH003": ErrLeaseLost,
	"PH004": ErrInvalid,
	"PH005": ErrRefused,
	"PH008": ErrMoved,

	unconfirmedCode: ErrUnconfirmed,
}

// Error is an error that an SQL function raised. It unwraps to one of the kinds, such as
// [ErrNotFound], and to the *pgconn.PgError.
type Error struct {
	Message string
	Detail  string

	sentinel error
	hint     string
	cause    *pgconn.PgError // nil if this process found the error
}

func (e *Error) Error() string {
	if e.Detail == "" {
		return e.Message
	}
	return e.Message + ": " + e.Detail
}

// Hint returns the remedy, or "".
func (e *Error) Hint() string { return e.hint }

func (e *Error) Unwrap() []error {
	if e.cause == nil {
		return []error{e.sentinel}
	}
	return []error{e.sentinel, e.cause}
}

// NotFound returns an [ErrNotFound] with a hint.
func NotFound(message, hint string) error {
	return &Error{Message: message, sentinel: ErrNotFound, hint: hint}
}

// Invalid returns an [ErrInvalid] with a hint.
func Invalid(message, hint string) error {
	return &Error{Message: message, sentinel: ErrInvalid, hint: hint}
}

// Refused returns an [ErrRefused] with a hint.
func Refused(message, hint string) error {
	return &Error{Message: message, sentinel: ErrRefused, hint: hint}
}

// Hint returns the remedy of an error, also of one of Postgres itself, or "".
func Hint(err error) string {
	if hinted, ok := errors.AsType[interface {
		error
		Hint() string
	}](err); ok {
		return hinted.Hint()
	}
	if cause, ok := errors.AsType[*pgconn.PgError](err); ok {
		return cause.Hint
	}
	return ""
}

const insufficientPrivilege = "42501"

// deniedError is a lack of rights. Its hint names the right, and the grant that gives it.
type deniedError struct {
	error
	cause *pgconn.PgError
}

func (e deniedError) Unwrap() error { return e.error }

func (e deniedError) Hint() string {
	_, denied, _ := strings.Cut(e.cause.Message, "permission denied for ")
	kind, name, _ := strings.Cut(denied, " ")
	if kind == "schema" && name == "posthorn" {
		return "grant posthorn_publisher, posthorn_consumer or posthorn_admin to the user of the database URL, as in: " +
			"grant posthorn_publisher to app; docs/operations.md lists the rights of each"
	}
	roles := schema.RolesFor(kind, name)
	if len(roles) == 0 {
		return "let the owner do it, or give the right to the user of the database URL"
	}
	right := "select on"
	if kind == "function" {
		right = "execute on function"
	}
	return fmt.Sprintf("the user of the database URL lacks %s posthorn.%s, which %s has: grant %s to app; "+
		"if a role of yours replaces it: select posthorn.grant_role('%s', 'app')",
		right, name, strings.Join(roles, " or "), roles[0], strings.TrimPrefix(roles[0], "posthorn_"))
}

const badTextHint = "Remove it, or encode the value, for instance as base64."

// badText says in plain words that Postgres cannot hold a text; "" for other errors.
func badText(cause *pgconn.PgError) string {
	const noCharacter, noJSONCharacter = "22021", "22P05"
	switch {
	case cause.Code == noJSONCharacter || cause.Code == noCharacter && strings.HasSuffix(cause.Message, ": 0x00"):
		return `a text has the zero character, \u0000, which Postgres cannot hold`
	case cause.Code == noCharacter:
		return "a text is not valid UTF-8"
	}
	return ""
}

// Translate puts a verb before an error, and turns the errors that SQL functions raise, and those
// of texts that Postgres cannot hold, into [*Error]. Other errors of Postgres stay as they are.
func Translate(verb string, err error) error {
	if err == nil {
		return nil
	}
	var cause *pgconn.PgError
	if errors.As(err, &cause) {
		if sentinel := sentinels[cause.Code]; sentinel != nil {
			err = &Error{cause.Message, cause.Detail, sentinel, cause.Hint, cause}
		} else if text := badText(cause); text != "" {
			err = &Error{text, "", ErrInvalid, badTextHint, cause}
		} else if cause.Code == insufficientPrivilege {
			err = deniedError{err, cause}
		}
	} else if errors.Is(err, context.DeadlineExceeded) {
		err = fmt.Errorf("the database did not answer in time: %w", err)
	}
	return fmt.Errorf("%s: %w", verb, err)
}
