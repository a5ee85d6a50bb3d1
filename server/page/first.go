package page

import (
	"regexp"
	"strings"
)

// plainHost is a host that needs no quotes in a shell.
var plainHost = regexp.MustCompile(`^[A-Za-z0-9.\-\[\]:]+$`)

// firstCommands are to try in a new namespace. They call this server, so they need
// nothing that is not there.
func firstCommands(r *Request) []command {
	host := r.http.Host
	if !plainHost.MatchString(host) {
		host = "localhost:8080"
	}
	scheme := "http://"
	if isSecure(r.http) {
		scheme = "https://"
	}
	query, header := "", " -H 'Content-Type: application/json'"
	if r.Namespace != "default" || r.Bound {
		query = "?namespace=" + r.Namespace
	}
	if r.SignedIn {
		header += ` -H "Authorization: Bearer $TOKEN"`
	}
	curl := func(method, path, body string) string {
		address := scheme + host + r.pages.Base() + path + query
		if strings.Contains(address, "?") {
			address = "'" + address + "'"
		}
		return "curl -X " + method + " " + address + header + " -d '" + body + "'"
	}
	return []command{
		{"Publish an event.", curl("POST", "/v1/events", `{"type": "order.placed", "key": "order-7", "payload": {"order": 7}}`)},
		{"Make a group that reads from the beginning.", curl("PUT", "/v1/groups/billing", `{"start": "beginning"}`)},
		{"Let a worker claim the event; after its lease it comes again.", curl("POST", "/v1/groups/billing/claim", `{"node": "worker-1"}`)},
	}
}
