package server

import (
	"errors"
	"io"
	"net"
	"net/http"
	"time"
	"unicode/utf8"
)

// bodyTime is how long a client may take to send a body.
const bodyTime = 30 * time.Second

// readBody reads a body that is bounded in size and time.
func (s *Server) readBody(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	control := http.NewResponseController(w)
	_ = control.SetReadDeadline(time.Now().Add(bodyTime)) // not every connection can; net/http's can
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, s.options.MaxBodyBytes))
	_ = control.SetReadDeadline(time.Time{})
	var tooLarge *http.MaxBytesError
	var network net.Error
	switch {
	case errors.As(err, &tooLarge):
		return nil, errTooLarge(tooLarge.Limit)
	case errors.As(err, &network) && network.Timeout():
		return nil, newProblem(http.StatusRequestTimeout, "the body did not arrive in time", "")
	case err != nil:
		return nil, badRequest("the body could not be read", "").because(err)
	}
	return body, nil
}

func checkUTF8(body []byte) error {
	if !utf8.Valid(body) {
		return badRequest("the body is not valid UTF-8", "JSON is UTF-8.")
	}
	return nil
}
