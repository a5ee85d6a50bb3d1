package server

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// An invalid request is refused with an error that names the cause.
//
// seed 004.12, 004.14
func TestErrorsOfJobs(t *testing.T) {
	t.Parallel()
	s := serve(t)
	s.enqueue(t, `{"title":"a","tags":"held"}`)
	s.take(t, "held", "w:1")
	s.enqueue(t, `{"title":"a","tags":"pending"}`)
	for _, c := range []struct {
		method, path, body string
		status             int
		mention            string
	}{
		{"POST", "/events", ``, 400, "body is required"},
		{"POST", "/events", ` `, 400, "the body is empty"},
		{"POST", "/events", `{`, 400, "body"},
		{"POST", "/events", `null`, 400, "tags"},
		{"POST", "/events", `[]`, 400, "object"},
		{"POST", "/events", `"x"`, 400, "object"},
		{"POST", "/events", `{"tags":"x"}`, 400, "title"},
		{"POST", "/events", `{"title":"","tags":"x"}`, 400, "title"},
		{"POST", "/events", `{"title":"  ","tags":"x"}`, 400, "title"},
		{"POST", "/events", `{"title":"a\nb","tags":"x"}`, 400, "title"},
		{"POST", "/events", `{"title":7,"tags":"x"}`, 400, "title"},
		{"POST", "/events", `{"title":"` + strings.Repeat("a", 1001) + `","tags":"x"}`, 400, "title"},
		{"POST", "/events", `{"title":"a"}`, 400, "tags"},
		{"POST", "/events", `{"title":"a","tags":""}`, 400, "tags"},
		{"POST", "/events", `{"title":"a","tags":" , "}`, 400, "tags"},
		{"POST", "/events", `{"title":"a","tags":"x,,y"}`, 400, "tags"},
		{"POST", "/events", `{"title":"a","tags":"x,"}`, 400, "tags"},
		{"POST", "/events", `{"title":"a","tags":["x"]}`, 400, "tags"},
		{"POST", "/events", `{"title":"a","tags":"x\u0001"}`, 400, "tag"},
		{"POST", "/events", `{"title":"a","tags":"` + strings.Repeat("a", 256) + `"}`, 400, "tag"},
		{"POST", "/events", `{"title":"a","tags":"` + many(101) + `"}`, 400, "tags"},
		{"POST", "/events", `{"title":"a","tags":"x","description":7}`, 400, "description"},
		{"POST", "/events", `{"title":"a","tags":"x","payload":{"a":}}`, 400, "body"},
		{"POST", "/events", `{"title":"a","tags":"x","payload":"\u0000"}`, 400, "u0000"},
		{"POST", "/events", `{"title":"a\u0000","tags":"x"}`, 400, "u0000"},
		{"POST", "/events", "{\"title\":\"\xff\",\"tags\":\"x\"}", 400, "UTF-8"},
		{"POST", "/events", `{"title":"a","tags":"x","max_retries":-1}`, 400, "max_retries"},
		{"POST", "/events", `{"title":"a","tags":"x","max_retries":1.5}`, 400, "max_retries"},
		{"POST", "/events", `{"title":"a","tags":"x","max_retries":99999999999}`, 400, "max_retries"},
		{"POST", "/events", `{"title":"a","tags":"x","max_retries":"3"}`, 400, "max_retries"},
		{"POST", "/events", `{"title":"a","tags":"x","priority":-2147483648}`, 400, "priority"},
		{"POST", "/events", `{"title":"a","tags":"x","priority":2147483648}`, 400, "priority"},
		{"POST", "/events", `{"title":"a","tags":"x","priority":1e99}`, 400, "priority"},
		{"POST", "/events", `{"title":"a","tags":"x","run_at":"tomorrow"}`, 400, "body"},
		{"POST", "/events", `{"title":"a","tags":"x","run_at":7}`, 400, "body"},
		{"POST", "/events", `{"title":"a","tags":"x","run_at":"infinity"}`, 400, "body"},
		{"POST", "/events", `{"title":"a","tags":"x","unique_key":""}`, 400, "unique_key"},
		{"POST", "/events", `{"title":"a","tags":"x","unique_key":"\n"}`, 400, "unique_key"},
		{"POST", "/events", `{"title":"a","tags":"x","unique_for":"1h"}`, 400, "unique_key"},
		{"POST", "/events", `{"title":"a","tags":"x","unique_key":"k","unique_for":"11 years"}`, 400, "period"},
		{"POST", "/events", `{"title":"a","tags":"x","unique_key":"k","unique_for":0}`, 400, "unique_for"},
		{"POST", "/events", `{"title":"a","tags":"x","fair_key":""}`, 400, "fair_key"},
		{"POST", "/events", `{"title":"a","tags":"x","fair_key":"\n"}`, 400, "fair_key"},
		{"POST", "/events", `{"title":"a","tags":"x","weight":2}`, 400, "fair_key"},
		{"POST", "/events", `{"title":"a","tags":"x","fair_key":"k","weight":0}`, 400, "weight"},
		{"POST", "/events", `{"title":"a","tags":"x","fair_key":"k","weight":"2"}`, 400, "weight"},
		{"POST", "/events", `{"title":"a","tags":"x","retry_delays":"5m"}`, 400, "retry_delays"},
		{"POST", "/events", `{"title":"a","tags":"x","retry_delays":["soon"]}`, 400, "period"},
		{"POST", "/events", `{"title":"a","tags":"x","retry_delays":[-1]}`, 400, "period"},
		{"POST", "/events", `{"title":"a","tags":"x","retry_delays":[null]}`, 400, "period"},
		{"POST", "/events", `{"title":"a","tags":"x","retry_delays":["20000000d"]}`, 400, "period"},
		{"POST", "/events", `{"title":"a","tags":"x","retry_delays":["4000 days"]}`, 400, "retry_delays"},

		{"GET", "/events/subscribe?worker_id=w:1", "", 400, "tags"},
		{"GET", "/events/subscribe?worker_id=w:1&tags=", "", 400, "tags"},
		{"GET", "/events/subscribe?worker_id=w:1&tags=,", "", 400, "tags"},
		{"GET", "/events/subscribe?worker_id=w:1&tags=a%00", "", 400, "NUL"},
		{"GET", "/events/subscribe?tags=x", "", 400, "worker_id"},
		{"GET", "/events/subscribe?tags=x&worker_id=", "", 400, "worker_id"},
		{"GET", "/events/subscribe?tags=x&worker_id=%0A", "", 400, "worker"},
		{"GET", "/events/subscribe?tags=x&worker_id=" + strings.Repeat("w", 256), "", 400, "worker"},
		{"GET", "/events/subscribe?tags=x&worker_id=" + strings.Repeat("%C3%A4", 200), "", 400, "worker"},
		{"GET", "/events/subscribe?tags=x&worker_id=w:1&lease_seconds=0", "", 400, "lease_seconds"},
		{"GET", "/events/subscribe?tags=x&worker_id=w:1&lease_seconds=86401", "", 400, "lease_seconds"},
		{"GET", "/events/subscribe?tags=x&worker_id=w:1&lease_seconds=soon", "", 400, "lease_seconds"},
		{"GET", "/events/subscribe?tags=x&worker_id=w:1&wait=61", "", 400, "wait"},
		{"GET", "/events/subscribe?tags=x&worker_id=w:1&wait=-1", "", 400, "wait"},
		{"GET", "/events/subscribe?tags=x&worker_id=w:1&wiat=1", "", 400, "wiat"},
		{"GET", "/events/subscribe?tags=x&tags=y&worker_id=w:1", "", 400, "more than once"},
		{"GET", "/events/subscribe?tags=x&worker_id=w:1&namespace=nobody", "", 404, "nobody"},
		{"HEAD", "/events/subscribe?tags=pending&worker_id=w:1", "", 405, ""},
		{"POST", "/events/subscribe?tags=pending&worker_id=w:1", "", 405, "POST"},

		{"POST", "/events/1/complete", ``, 400, "body is required"},
		{"POST", "/events/1/complete", `{}`, 400, "worker_id"},
		{"POST", "/events/1/complete", `{"worker_id":7}`, 400, "worker_id"},
		{"POST", "/events/1/complete", `{"worker_id":"w:1","attempt":0}`, 400, "attempt"},
		{"POST", "/events/1/complete", `{"worker_id":"w:1","attempt":"1"}`, 400, "attempt"},
		{"POST", "/events/1/complete", `{"worker_id":"w:1","attempt":2}`, 409, "attempt 1"},
		{"POST", "/events/1/complete", `{"worker_id":"w:1","status_code":3000000000}`, 400, "status_code"},
		{"POST", "/events/1/complete", `{"worker_id":"w:1","execution_time_ms":-1}`, 400, "execution_time_ms"},
		{"POST", "/events/1/complete", `{"worker_id":"w:1","execution_time_ms":1.5}`, 400, "execution_time_ms"},
		{"POST", "/events/1/complete", `{"worker_id":"w:1","execution_time_ms":99999999999999999999}`, 400, "execution_time_ms"},
		{"POST", "/events/1/complete", `{"worker_id":"w:1","result":"\u0000"}`, 400, "u0000"},
		{"POST", "/events/1/complete", `{"worker_id":"w:2"}`, 409, "another worker has it"},
		{"POST", "/events/2/complete", `{"worker_id":"w:1"}`, 409, "PENDING"},
		{"POST", "/events/99/complete", `{"worker_id":"w:1"}`, 404, "job 99"},
		{"POST", "/events/1/fail", `{"worker_id":"w:1","error_message":7}`, 400, "error_message"},
		{"POST", "/events/1/fail", `{"worker_id":"w:1","permanent":"yes"}`, 400, "permanent"},
		{"POST", "/events/1/fail", `{"worker_id":"w:1","retry_in":"-5m"}`, 400, "period"},
		{"POST", "/events/1/fail", `{"worker_id":"w:1","retry_in":"11 years"}`, 400, "period"},
		{"POST", "/events/1/fail", `{"worker_id":"w:2"}`, 409, "another worker has it"},
		{"POST", "/events/99/fail", `{"worker_id":"w:1"}`, 404, "job 99"},
		{"POST", "/events/1/start", `{"worker_id":"w:2"}`, 409, "w:2"},
		{"POST", "/events/99/start", `{"worker_id":"w:1"}`, 404, "job 99"},
		{"POST", "/events/1/heartbeat", `{"worker_id":"w:1","lease_seconds":0}`, 400, "lease_for"},
		{"POST", "/events/1/heartbeat", `{"worker_id":"w:1","lease_seconds":86401}`, 400, "lease_for"},
		{"POST", "/events/1/heartbeat", `{"worker_id":"w:1","progress":"\u0000"}`, 400, "u0000"},
		{"POST", "/events/1/heartbeat", `{"worker_id":"w:2"}`, 409, "w:2"},
		{"POST", "/events/99/heartbeat", `{"worker_id":"w:1"}`, 404, "job 99"},

		{"GET", "/events/99", "", 404, "job 99"},
		{"GET", "/events/0", "", 400, "id"},
		{"GET", "/events/-1", "", 400, "id"},
		{"GET", "/events/x", "", 400, "id"},
		{"GET", "/events/1.5", "", 400, "id"},
		{"GET", "/events/9223372036854775807", "", 404, "job"},
		{"GET", "/events/9223372036854775808", "", 400, "id"},
		{"GET", "/events/1?include_logs=perhaps", "", 400, "include_logs"},
		{"GET", "/events?status=pending", "", 400, "status"},
		{"GET", "/events?status=DONE", "", 400, "status"},
		{"GET", "/events?limit=0", "", 400, "limit"},
		{"GET", "/events?limit=1001", "", 400, "limit"},
		{"GET", "/events?limit=ten", "", 400, "limit"},
		{"GET", "/events?offset=-1", "", 400, "offset"},
		{"GET", "/events?offset=9223372036854775807", "", 400, "offset"},
		{"GET", "/events?offset=9223372036854775808", "", 400, "offset"},
		{"GET", "/events?stalled=perhaps", "", 400, "stalled"},
		{"GET", "/events?tags=a,,b", "", 400, "tags"},
		{"GET", "/events?sort=id", "", 400, "sort"},
		{"POST", "/events/99/reset", "", 404, "job 99"},
		{"POST", "/events/x/reset", "", 400, "id"},
		{"POST", "/events/2/reset", "", 409, "PENDING"},
		{"POST", "/events/2/reset?reason=" + strings.Repeat("a", 1001), "", 400, "reason"},
		{"POST", "/events/99/cancel", "", 404, "job 99"},
		{"PUT", "/events/1", "", 405, "PUT"},
		{"POST", "/events/1/explode", "", 404, "explode"},
	} {
		t.Run(fmt.Sprintf("%s %.60s %.60s", c.method, c.path, c.body), func(t *testing.T) {
			answer := s.call(t, c.method, c.path, c.body)
			if c.method == "HEAD" {
				answer.status = map[bool]int{true: c.status}[answer.status == c.status] // a response to HEAD has no body
				equal(t, "status", answer.status, c.status)
				return
			}
			answer.wantProblem(t, c.status, c.mention)
		})
	}
	// None of these requests has changed a job.
	equal(t, "log", actions(s.job(t, 1)), "PICKED")
	equal(t, "log", actions(s.job(t, 2)), "")
	s.call(t, "GET", "/events/subscribe?tags=nothing&worker_id=w:1", nil).want(t, 204)
	if empty := s.call(t, "GET", "/events/subscribe?tags=nothing&worker_id=w:1", nil); empty.body != "" || empty.header.Get("Content-Type") != "" {
		t.Errorf("a body of nothing: %v", empty)
	}
}

func many(n int) string {
	tags := make([]string, n)
	for i := range tags {
		tags[i] = fmt.Sprint(i)
	}
	return strings.Join(tags, ",")
}

// Unknown fields are ignored, and the response names them.
func TestBodiesOfJobsMayHaveUnknownFields(t *testing.T) {
	t.Parallel()
	s := serve(t)
	made := s.call(t, "POST", "/events", `{"title":"a","Tags":"x","id":7,"status":"COMPLETED","prioritä":{"a":[1]}}`).want(t, 201)
	equal(t, "ignored", made.header.Get("Posthorn-Ignored-Fields"), "id, priorit%C3%A4, status")
	s.take(t, "x", "w:1")
	done := s.call(t, "POST", "/events/1/complete", `{"worker_id":"w:1","hostname":"h"}`).want(t, 200)
	equal(t, "ignored in a report", done.header.Get("Posthorn-Ignored-Fields"), "hostname")
	whole := s.call(t, "POST", "/events", `{"title":"a","tags":"x","max_retries":1}`).want(t, 201)
	equal(t, "nothing ignored", len(whole.header.Values("Posthorn-Ignored-Fields")), 0)
}

// The content type is required, so that pages of other origins cannot enqueue jobs through
// a browser.
func TestContentTypeOfJobs(t *testing.T) {
	t.Parallel()
	s := serve(t)
	const body = `{"title":"a","tags":"x"}`
	for _, contentType := range []string{"text/plain", "application/x-www-form-urlencoded", "application/xml", "nonsense;", ""} {
		r, err := http.NewRequestWithContext(t.Context(), "POST", s.url+"/events", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		if contentType != "" {
			r.Header.Set("Content-Type", contentType)
		}
		response, err := s.client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		equal(t, contentType, response.StatusCode, 415)
	}
	s.call(t, "POST", "/events", body, "Content-Type: application/json; charset=utf-8").want(t, 201)
	s.call(t, "POST", "/events/1/complete", body, "Content-Type: text/plain").wantProblem(t, 415, "application/json")
}

// seed 004.42
func TestPayloadsHaveALimit(t *testing.T) {
	t.Parallel()
	s := serve(t)
	payload := func(bytes int) string {
		return `{"title":"a","tags":"x","payload":"` + strings.Repeat("a", bytes-2) + `"}`
	}
	s.call(t, "POST", "/events", payload(1<<20)).want(t, 201)
	s.call(t, "POST", "/events", payload(1<<20+1)).wantProblem(t, 413, "1048576")
	s.call(t, "POST", "/events", payload(5<<20)).wantProblem(t, 413, "4194304")
	if _, err := s.ph.Pool().Exec(t.Context(), "update posthorn.config set value = '2000' where key = 'max_payload_bytes'"); err != nil {
		t.Fatal(err)
	}
	s.call(t, "POST", "/events", payload(2001)).wantProblem(t, 413, "2000")
	s.take(t, "x", "w:1")
	s.call(t, "POST", "/events/1/complete", `{"worker_id":"w:1","result":`+strings.Repeat("[", 1500)+strings.Repeat("]", 1500)+`}`).wantProblem(t, 413, "2000")
	s.call(t, "POST", "/events/1/complete", `{"worker_id":"w:1","result":`+strings.Repeat("[", 20000)+strings.Repeat("]", 20000)+`}`).wantProblem(t, 400, "depth")
}
