package posthorn

import (
	"fmt"
	"strings"
	"testing"
)

func TestStreamsOfABrokerAreChosen(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		stream  string
		names   []string
		matches bool
	}{
		{"orders", nil, true},
		{"orders", []string{"orders"}, true},
		{"orders:2", []string{"orders"}, false},
		{"stream:user:events", []string{"x", "stream:user:*"}, true},
		{"stream:order:events", []string{"stream:user:*"}, false},
		{"stream:user:events", []string{"*:user:*"}, true},
		{"stream:user:events", []string{"*"}, true},
		{"aba", []string{"ab*ba"}, false},
		{"abba", []string{"ab*ba"}, true},
		{"a1b2c", []string{"a*b*c"}, true},
		{"a1c2b", []string{"a*b*c"}, false},
		{"", nil, false},
		{strings.Repeat("x", 256), nil, false},
	} {
		if got := From("redis://h", test.names...).wants(test.stream); got != test.matches {
			t.Errorf("%v wants %s: %v", test.names, test.stream, got)
		}
	}
}

// Who prints a configuration does not print a password.
func TestABrokerKeepsItsPassword(t *testing.T) {
	t.Parallel()
	config := GroupConfig{Source: From("redis://user:secret@host:1/0?password=secret")}
	for _, verb := range []string{"%v", "%+v", "%#v", "%s"} {
		if text := fmt.Sprintf(verb, config); strings.Contains(text, "secret") || !strings.Contains(text, "redis://host:1/0") {
			t.Errorf("%s: %s", verb, text)
		}
	}
	if text := From("redis://user:secret@%%").String(); strings.Contains(text, "secret") {
		t.Error(text)
	}
}
