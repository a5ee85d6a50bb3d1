package token_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/posthorn/posthorn/internal/token"
)

func TestNewIsParsed(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for range 1000 {
		made := token.New()
		parsed, ok := token.Parse(made.Secret)
		if !ok || parsed != made {
			t.Fatalf("Parse refuses %v", made)
		}
		if seen[made.Prefix] {
			t.Errorf("prefix %s was generated twice", made.Prefix)
		}
		seen[made.Prefix] = true
	}
}

func TestParseRefuses(t *testing.T) {
	t.Parallel()
	good := token.New().Secret
	last := "a"
	if strings.HasSuffix(good, last) {
		last = "b"
	}
	for name, text := range map[string]string{
		"empty":          "",
		"prefix alone":   good[:11],
		"changed":        good[:len(good)-1] + last,
		"cut":            good[:len(good)-1],
		"with a newline": good + "\n",
		"upper case":     strings.ToUpper(good),
		"other letters":  good[:20] + "é" + good[22:],
	} {
		if _, ok := token.Parse(text); ok {
			t.Errorf("%s: Parse accepts it", name)
		}
	}
}

func TestTokenIsNotPrintedByMistake(t *testing.T) {
	t.Parallel()
	made := token.New()
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q"} {
		printed := fmt.Sprintf(verb, made)
		if strings.Contains(printed, made.Secret) || !strings.Contains(printed, made.Prefix) {
			t.Errorf("%s prints %s", verb, printed)
		}
	}
}

// The database stores this hash for the lifetime of the token, so the hash function
// must never change.
func TestHash(t *testing.T) {
	t.Parallel()
	const text = "ph_00000001_0000000000000000000000000000000000000000001"
	const want = "7220"
	hash := token.Token{Secret: text}.Hash()
	if got := fmt.Sprintf("%x", hash[:2]); got != want {
		t.Errorf("hash begins with %s, want %s", got, want)
	}
}
