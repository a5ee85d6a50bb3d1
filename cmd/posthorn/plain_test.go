package main

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestControlCharactersAreShown(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ text, want string }{
		{"order.placed\t{\"a\": 1}\n", "order.placed\t{\"a\": 1}\n"},
		{"grüße, 世界 🎺\n", "grüße, 世界 🎺\n"},
		{"\x1b]0;title\x07\x1b[2J", `\u001b]0;title\u0007\u001b[2J`},
		{"\u009b31m and \x7f", `\u009b31m and \u007f`},
		{"a\r\nb", "a \nb"},
		{"\u202egnp.exe\u2069", `\u202egnp.exe\u2069`},
		{"\x9b31m", "\ufffd31m"},
	} {
		var out strings.Builder
		p := &plain{w: &out}
		for _, b := range []byte(test.text) { // a character may come in parts
			if n, err := p.Write([]byte{b}); n != 1 || err != nil {
				t.Fatal(n, err)
			}
		}
		if out.String() != test.want {
			t.Errorf("%q is shown as %q, want %q", test.text, out.String(), test.want)
		}
	}
}

// JSON has the same meaning as before.
func TestShownJSONIsTheSame(t *testing.T) {
	t.Parallel()
	const value = "\x7f\u009b\u202e and \\ \" \n"
	text, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	if _, err := (&plain{w: &out}).Write(text); err != nil {
		t.Fatal(err)
	}
	var again string
	if err := json.Unmarshal([]byte(out.String()), &again); err != nil || again != value || strings.ContainsAny(out.String(), "\x7f\u009b\u202e") {
		t.Errorf("%s became %s: %q, %v", text, out.String(), again, err)
	}
}
