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

// Hint returns advice on how to resolve the error.
func (e *hintedError) Hint() string { return e.hint }

// kindError is an error that is also one of the sentinels that SQL functions
// raise.
type kindError struct {
	error
	kind error
}

func (e *kindError) Unwrap() []error { return []error{e.error, e.kind} }

func invalid(text, hint string) error {
	return hinted(&kindError{errors.New(text), pg.ErrInvalid}, hint)
}

func notFound(text, hint string) error {
	return hinted(&kindError{errors.New(text), pg.ErrNotFound}, hint)
}

// storeError is the error of a store that could not be read: the state of the archive
// in it is unknown.
type storeError struct{ error }

func (e *storeError) Unwrap() error { return e.error }

const checkURL = "Check that the URL is the one that the archive is written to."

// unreadable adds advice to the error of a store that could not be read.
func unreadable(action string, err error) error {
	if errors.Is(err, context.Canceled) {
		return fmt.Errorf("%s: %w", action, err)
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
	err = fmt.Errorf("%s: %w", action, err)
	switch {
	case denied:
		err = hinted(&kindError{err, pg.ErrRefused}, "The store refuses these credentials, or they may not read it.")
	case gcerrors.Code(err) == gcerrors.NotFound:
		err = hinted(&kindError{err, pg.ErrNotFound}, checkURL)
	default:
		err = hinted(err, "Check that the store answers, and that the environment has credentials for it.")
	}
	return &storeError{err}
}

func refused(text, hint string) error {
	return hinted(&kindError{errors.New(text), pg.ErrRefused}, hint)
}

func conflict(text, hint string) error {
	return hinted(&kindError{errors.New(text), pg.ErrConflict}, hint)
}
