package archive

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"

	"gocloud.dev/gcerrors"

	"github.com/posthorn/posthorn/internal/pg"
)

// hintedError is an error with advice, which the command line shows.
type hintedError struct {
	error
	hint string
}

func hinted(err error, hint string) error { return &hintedError{err, hint} }

func (e *hintedError) Unwrap() error { return e.error }

// Hint is what to do about it.
func (e *hintedError) Hint() string { return e.hint }

// kindError is an error that is also one of the sentinels that SQL functions
// raise.
type kindError struct {
	error
	kind error
}

func (e *kindError) Unwrap() []error { return []error{e.error, e.kind} }

func invalid(what, hint string) error {
	return hinted(&kindError{errors.New(what), pg.ErrInvalid}, hint)
}

func notFound(what, hint string) error {
	return hinted(&kindError{errors.New(what), pg.ErrNotFound}, hint)
}

// storeError is that a store could not be looked at: nothing is known of the
// archive in it.
type storeError struct{ error }

func (e *storeError) Unwrap() error { return e.error }

const lookAtURL = "Look whether the URL is the one that the archive is written to."

// unreadable says why a store could not be read.
func unreadable(what string, err error) error {
	if errors.Is(err, context.Canceled) {
		return fmt.Errorf("%s: %w", what, err)
	}
	status := 0
	if answer, ok := errors.AsType[interface {
		error
		HTTPStatusCode() int
	}](err); ok {
		status = answer.HTTPStatusCode()
	}
	denied := gcerrors.Code(err) == gcerrors.PermissionDenied || errors.Is(err, fs.ErrPermission) ||
		status == http.StatusUnauthorized || status == http.StatusForbidden
	err = fmt.Errorf("%s: %w", what, err)
	switch {
	case denied:
		err = hinted(&kindError{err, pg.ErrRefused}, "The store refuses these credentials, or they may not read it.")
	case gcerrors.Code(err) == gcerrors.NotFound:
		err = hinted(&kindError{err, pg.ErrNotFound}, lookAtURL)
	default:
		err = hinted(err, "Look whether the store answers, and whether there are credentials for it in the environment.")
	}
	return &storeError{err}
}

func refused(what, hint string) error {
	return hinted(&kindError{errors.New(what), pg.ErrRefused}, hint)
}

func conflict(what, hint string) error {
	return hinted(&kindError{errors.New(what), pg.ErrConflict}, hint)
}
