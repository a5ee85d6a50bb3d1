package archive

import (
	"errors"

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

func refused(what, hint string) error {
	return hinted(&kindError{errors.New(what), pg.ErrRefused}, hint)
}

func conflict(what, hint string) error {
	return hinted(&kindError{errors.New(what), pg.ErrConflict}, hint)
}
