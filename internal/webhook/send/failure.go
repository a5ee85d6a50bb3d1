package send

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
)

const longestError = 300

// failedError is the reason why no answer came.
type failedError struct {
	text  string
	cause error
}

func (e failedError) Error() string { return e.text }
func (e failedError) Unwrap() error { return e.cause }

// failure words the error of a request. Errors of the transport itself may quote the answer of an endpoint.
func failure(host string, connected bool, err error) error {
	var refused refusedError
	var lookup *net.DNSError
	var timeout net.Error
	text := err.Error()
	switch {
	case errors.As(err, &refused):
		text = refused.Error()
	case errors.Is(err, context.Canceled):
		return context.Canceled
	case errors.As(err, &lookup) && lookup.IsTimeout:
		text = fmt.Sprintf("the name %s was not resolved in time", host)
	case errors.As(err, &lookup): // its text names our resolver
		text = fmt.Sprintf("the name %s does not resolve: %s", host, lookup.Err)
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		text = "no connection in time"
		if connected {
			text = "no answer in time"
		}
	}
	return failedError{clean(strings.TrimPrefix(text, "net/http: "), longestError), err}
}
