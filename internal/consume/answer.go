package consume

import "github.com/posthorn/posthorn/internal/pg"

// Failure turns the error of whoever had an event into what settle understands.
func Failure(event int64, err error) pg.Failure { return failure(event, "", err) }

// Released hands an event back that nobody tried. It counts as no delivery.
func Released(event int64) pg.Failure { return released(event, "") }
