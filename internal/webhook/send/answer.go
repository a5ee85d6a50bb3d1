package send

import (
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

const (
	longestRetryAfter = 24 * time.Hour
	longestExcerpt    = 1024
	mostDiscarded     = 16 << 10 // of an answer, so that its connection can be used again
)

// Answer is the answer of an endpoint, or only the RequestID if there was none.
type Answer struct {
	RequestID  string        // the header webhook-id of the request
	Status     int           // 0 if no answer came
	RetryAfter time.Duration // of the header Retry-After, at most a day; 0 without one
	Excerpt    string        // the beginning of the body, as UTF-8 without zero characters
}

// read takes the answer in. A body that breaks off, or does not end in time, changes nothing: the status has come.
func (a *Answer) read(response *http.Response, at time.Time) {
	defer func() { _ = response.Body.Close() }()
	a.Status = response.StatusCode
	a.RetryAfter = retryAfter(response.Header, at)
	if a.Status == http.StatusSwitchingProtocols {
		return // its body is the bare connection, whose reads do not end with the context
	}
	beginning, err := io.ReadAll(io.LimitReader(response.Body, longestExcerpt))
	a.Excerpt = clean(string(beginning), longestExcerpt)
	if err == nil {
		_, _ = io.CopyN(io.Discard, response.Body, mostDiscarded)
	}
}

// retryAfter reads seconds, or a date. A date is compared with the clock of the endpoint, if the answer has it.
func retryAfter(header http.Header, now time.Time) time.Duration {
	text := strings.TrimSpace(header.Get("Retry-After"))
	if seconds, err := strconv.ParseUint(text, 10, 63); err == nil || errors.Is(err, strconv.ErrRange) {
		return time.Duration(min(seconds, uint64(longestRetryAfter/time.Second))) * time.Second
	}
	date, err := http.ParseTime(text)
	if err != nil {
		return 0
	}
	if sent, err := http.ParseTime(header.Get("Date")); err == nil {
		now = sent
	}
	return min(max(date.Sub(now), 0), longestRetryAfter)
}

// clean makes a text that Postgres can store, of at most that many bytes.
func clean(text string, longest int) string {
	text = strings.Map(func(r rune) rune { // which also replaces invalid UTF-8
		if r == 0 {
			return utf8.RuneError
		}
		return r
	}, text)
	for len(text) > longest {
		_, size := utf8.DecodeLastRuneInString(text)
		text = text[:len(text)-size]
	}
	return text
}
