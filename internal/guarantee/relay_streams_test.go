package guarantee

import "testing"

// A relay whose patterns grow does not go back for events that it has passed over. Its definition
// says so, with the names of the streams.
func TestRelayWarnsOfStreamsThatItPassed(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.of("orders", 1)
	s.of("user.1", 1)
	var warnings []string
	s.notices(func(message string) { warnings = append(warnings, message) })
	for _, patterns := range []string{`["orders"]`, `["orders"]`, `["orders", "bills"]`, `["user.*", "orders"]`, `["orders"]`, `[">"]`} {
		s.exec("select posthorn.define_relay('default', 'out', $1::text::jsonb)", `{"streams": `+patterns+`}`)
	}
	equal(t, "warnings", warnings, []string{
		"relay 'out' begins with user.1 now, and does not write the events that were published to it before",
		"relay 'out' begins with default, user.1 now, and does not write the events that were published to them before",
	})
}
