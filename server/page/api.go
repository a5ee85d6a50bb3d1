package page

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
)

// Call makes an action through the HTTP API of this process, in the name of the person:
// with the same rights, checks and entries in the audit log. Body is sent as JSON unless
// it is nil, and the answer is read into the last argument unless that is nil.
func (r *Request) Call(ctx context.Context, method, path string, body, into any) error {
	var raw []byte
	if body != nil {
		var err error
		if raw, err = json.Marshal(body); err != nil {
			return err
		}
	}
	separator := "?"
	if strings.Contains(path, "?") {
		separator = "&"
	}
	request, err := http.NewRequestWithContext(context.WithValue(ctx, fromPage{}, true), method,
		"http://"+r.http.Host+path+separator+"namespace="+url.QueryEscape(r.Namespace), bytes.NewReader(raw))
	if err != nil {
		return err
	}
	request.RemoteAddr = r.http.RemoteAddr
	if body != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	if secret := r.pages.cookieOf(r.http, tokenCookie); secret != "" {
		request.Header.Set("Authorization", "Bearer "+secret)
	}
	answer := &apiAnswer{header: http.Header{}}
	r.pages.API.ServeHTTP(answer, request)
	if answer.status >= http.StatusBadRequest {
		problem := &Problem{Status: answer.status}
		if err := json.Unmarshal(answer.body.Bytes(), problem); err != nil {
			return err
		}
		return problem
	}
	if into == nil || answer.body.Len() == 0 {
		return nil
	}
	return json.Unmarshal(answer.body.Bytes(), into)
}

type fromPage struct{}

// IsFrom tells whether a request to the API comes from the page, and so from a person.
func IsFrom(ctx context.Context) bool { return ctx.Value(fromPage{}) != nil }

// apiAnswer holds an answer of the API.
type apiAnswer struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (a *apiAnswer) Header() http.Header { return a.header }

func (a *apiAnswer) WriteHeader(status int) {
	if a.status == 0 {
		a.status = status
	}
}

func (a *apiAnswer) Write(b []byte) (int, error) {
	a.WriteHeader(http.StatusOK)
	return a.body.Write(b)
}

// segment is a name as a part of a path. A name of dots alone would not be one.
func segment(name string) string {
	if strings.Trim(name, ".") == "" {
		return strings.ReplaceAll(name, ".", "%2E")
	}
	return url.PathEscape(name)
}
