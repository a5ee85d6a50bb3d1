package server

import "testing"

// A text with the zero character is refused in plain words, not in those of Postgres.
func TestZeroCharactersAreRefusedInPlainWords(t *testing.T) {
	t.Parallel()
	s := serve(t)
	s.call(t, "POST", "/v1/webhooks", `{"name":"crm","url":"https://crm.example"}`).want(t, 201)
	s.call(t, "POST", "/events", `{"title":"a","tags":"a"}`).want(t, 201)
	for body, call := range map[string][2]string{
		`{"headers":{"X-Key":"a\u0000b"}}`:                                {"PATCH", "/v1/webhooks/crm"},
		`{"headers":{"X\u0000Key":"a"}}`:                                  {"PATCH", "/v1/webhooks/crm"},
		`{"url":"https://crm.example/\u0000"}`:                            {"PATCH", "/v1/webhooks/crm"},
		`{"filter":{"type":"a\u0000"}}`:                                   {"PATCH", "/v1/webhooks/crm"},
		`{"name":"a\u0000b","url":"https://crm.example"}`:                 {"POST", "/v1/webhooks"},
		`{"cron_expression":"@daily","event_type":"a\u0000b"}`:            {"PUT", "/v1/schedules/x"},
		`{"metadata":{"a":"\u0000"}}`:                                     {"PUT", "/v1/namespaces/x"},
		`{"filter":{"key":["\u0000"]}}`:                                   {"PUT", "/v1/subscriptions/g/x"},
		`{"conditions_sql":"e.key = 'a'","params":{"a":"\u0000"}}`:        {"PUT", "/v1/subscriptions/g/x"},
		`{"type":"a","payload":{"a":"\u0000"}}`:                           {"POST", "/v1/events"},
		`{"type":"a\u0000b"}`:                                             {"POST", "/v1/events"},
		`{"type":"a","deliver_at":"2100-01-01T00:00:00Z","key":"\u0000"}`: {"POST", "/v1/events"},
		`{"type":"a","dedup_key":"\u0000"}`:                               {"POST", "/v1/events"},
		`{"title":"a","tags":"a\u0000b","payload":{}}`:                    {"POST", "/events"},
		`{"status":"FAILED","tags":["a\u0000b"]}`:                         {"POST", "/v1/jobs/retry"},
		`{"group":"a\u0000b"}`:                                            {"POST", "/v1/dead-letters/redrive"},
		`{"node":"a\u0000b"}`:                                             {"POST", "/v1/groups/g/claim"},
	} {
		t.Run(call[0]+" "+body, func(t *testing.T) {
			s.call(t, call[0], call[1], body).wantProblem(t, 400, "Postgres cannot hold")
		})
	}
}
