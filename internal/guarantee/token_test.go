package guarantee

import (
	"crypto/sha256"
	"strings"
	"testing"
	"time"
)

func hashOf(secret string) []byte {
	hash := sha256.Sum256([]byte(secret))
	return hash[:]
}

const (
	makeToken = "select posthorn.create_token('ci', $1, 'ph_1', '{publish,read}', $2)"
	findToken = "select count(*) from posthorn.find_token($1)"
)

// A token is found by its hash, with its rights.
func TestTokenIsFound(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.exec(`select posthorn.create_token('ci', $1, 'ph_1', '{read,publish,read}', 'default', '{b,a,b}')`, hashOf("one"))
	s.exec(makeToken, hashOf("two"), nil)
	equal(t, "one", value[string](s, `select concat_ws(' ', name, namespace, prefix, scopes, streams, expires_at) from posthorn.find_token($1)`,
		hashOf("one")), "ci default ph_1 {publish,read} {a,b}")
	equal(t, "two", value[*string](s, "select namespace from posthorn.find_token($1)", hashOf("two")), nil)
	equal(t, "unknown", value[int](s, findToken, hashOf("three")), 0)
}

// A token of a namespace that is not in its table is good in none.
func TestTokenOfNoNamespaceIsNotFound(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.exec("select posthorn.define_namespace('shop')")
	s.exec(makeToken, hashOf("one"), "shop")
	s.exec("alter table posthorn.api_tokens drop constraint api_tokens_namespace_id_fkey; delete from posthorn.namespaces where namespace = 'shop'")
	equal(t, "found", value[int](s, findToken, hashOf("one")), 0)
}

func TestTokenExpires(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.exec(`select posthorn.create_token('ci', $1, 'ph_1', '{read}', expires_at => posthorn.now() + interval '1 hour')`, hashOf("one"))
	s.turnClock(59 * time.Minute)
	equal(t, "before", value[int](s, findToken, hashOf("one")), 1)
	s.turnClock(61 * time.Minute)
	equal(t, "after", value[int](s, findToken, hashOf("one")), 0)
	equal(t, "state", value[string](s, "select state from posthorn.list_tokens()"), "expired")
}

// Without any token left, access is still refused.
func TestTokenIsRevoked(t *testing.T) {
	t.Parallel()
	s := database(t)
	equal(t, "required", value[bool](s, "select posthorn.tokens_required()"), false)
	s.exec(makeToken, hashOf("one"), nil)
	equal(t, "first time", value[bool](s, "select posthorn.revoke_token(1)"), true)
	equal(t, "second time", value[bool](s, "select posthorn.revoke_token(1)"), false)
	equal(t, "found", value[int](s, findToken, hashOf("one")), 0)
	equal(t, "state", value[string](s, "select state from posthorn.list_tokens('default')"), "revoked")
	equal(t, "required", value[bool](s, "select posthorn.tokens_required()"), true)
	s.refused("PH001", "select posthorn.revoke_token(2)")
	s.refused("PH001", "select posthorn.revoke_token(null)")
}

func TestTokensOfANamespace(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.exec("select posthorn.define_namespace('other')")
	for name, namespace := range map[string]any{"here": "default", "there": "other", "everywhere": nil} {
		s.exec("select posthorn.create_token($1, $2, 'ph_1', '{read}', $3)", name, hashOf(name), namespace)
	}
	equal(t, "default", column[string](s, "select name from posthorn.list_tokens('default') order by 1"), []string{"everywhere", "here"})
	equal(t, "all", column[string](s, "select name from posthorn.list_tokens() order by 1"), []string{"everywhere", "here", "there"})
	s.refused("PH001", "select posthorn.list_tokens('nowhere')")
}

// Finding a token writes at most once a minute, and does not wait for a lock on its
// row.
func TestTokenUseIsNotedByTheMinute(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.exec(makeToken, hashOf("one"), nil)
	const row = "select ctid::text || last_used_at from posthorn.api_tokens"
	s.exec(findToken, hashOf("one"))
	first := value[string](s, row)
	s.exec(findToken, hashOf("one"))
	equal(t, "within the minute", value[string](s, row), first)
	s.turnClock(2 * time.Minute)
	other := s.another()
	other.exec("begin")
	other.exec("select from posthorn.api_tokens for update")
	s.exec("set lock_timeout = '1ms'")
	equal(t, "while it is held", value[int](s, findToken, hashOf("one")), 1)
	other.exec("commit")
	s.exec(findToken, hashOf("one"))
	if value[string](s, row) == first {
		t.Error("its use was not noted")
	}
}

func TestBadTokensAreRefused(t *testing.T) {
	t.Parallel()
	s := database(t)
	for _, arguments := range []string{
		"'', $1, 'p', '{read}'",
		"null, $1, 'p', '{read}'",
		"'ci', $1, 'p', '{}'",
		"'ci', $1, 'p', null",
		"'ci', $1, 'p', '{read,everything}'",
		"'ci', $1, 'p', array[null]",
		"'ci', $1, 'p', '{read}', streams => null",
		"'ci', $1, 'p', '{read}', streams => array[e'\\n']",
		"'ci', $1, 'p', '{read}', expires_at => posthorn.now()",
	} {
		s.refused("PH004", "select posthorn.create_token("+arguments+")", hashOf("one"))
	}
	s.refused("PH001", "select posthorn.create_token('ci', $1, 'p', '{read}', 'nowhere')", hashOf("one"))
	s.refused("23514", "select posthorn.create_token('ci', $1, 'p', '{read}')", []byte("the secret itself"))
}

// A token makes others, and none of them has a right that it lacks itself.
func TestTokenMakesNoStronger(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.exec("select posthorn.define_namespace('other')")
	s.exec(`select posthorn.create_token('few', $1, 'p', '{admin,read}', 'default', '{a,b}', posthorn.now() + interval '1 hour')`, hashOf("few"))
	s.exec(`select posthorn.create_token('all', $1, 'p', '{all}')`, hashOf("all"))
	grant := func(arguments string) string {
		return "select posthorn.grant_token(" + arguments + ")"
	}
	for arguments, missing := range map[string]string{
		"'{read,publish}', 'default', '{}', (select t.expires_at from posthorn.api_tokens t where t.id = 1)":                     "scope publish",
		"'{all}', 'default', '{}', (select t.expires_at from posthorn.api_tokens t where t.id = 1)":                              "scope consume",
		"'{read}', null, '{}', (select t.expires_at from posthorn.api_tokens t where t.id = 1)":                                  "every namespace",
		"'{read}', 'other', '{}', (select t.expires_at from posthorn.api_tokens t where t.id = 1)":                               "namespace other",
		"'{read}', 'default', '{a,c}', (select t.expires_at from posthorn.api_tokens t where t.id = 1)":                          "stream 'c'",
		"'{read}', 'default', '{a}', (select t.expires_at from posthorn.api_tokens t where t.id = 1) + interval '1 microsecond'": "valid for longer",
		"'{read}', 'default', '{a}'":             "valid for longer",
		"'{read}', 'default', '{a}', 'infinity'": "valid for longer",
		"'{admin,jobs:work}', null, '{c}', (select t.expires_at from posthorn.api_tokens t where t.id = 1) + interval '1 microsecond'": "scope jobs:work",
	} {
		err := s.refused("PH005", grant("1, 'new', $1, 'p', "+arguments), hashOf("new"))
		if !strings.Contains(err.Message, missing) || err.Hint == "" {
			t.Errorf("%s: %s (%s)", arguments, err.Message, err.Hint)
		}
	}
	s.refused("PH004", grant("1, 'new', $1, 'p', '{everything}', 'default'"), hashOf("new"))
	s.refused("PH005", grant("2, 'new', $1, 'p', '{read}', null, '{a}'"), hashOf("new"))
	equal(t, "tokens", value[int](s, "select count(*) from posthorn.api_tokens"), 2)
	s.exec(grant("1, 'as strong', $1, 'p', '{admin,read}', 'default', '{b,a}', (select t.expires_at from posthorn.api_tokens t where t.id = 1)"), hashOf("as strong"))
	s.exec(grant("2, 'of all', $1, 'p', '{all}', 'other', expires_at => posthorn.now() + interval '1 year'"), hashOf("of all"))
	equal(t, "made", value[string](s, `select concat_ws(' ', name, namespace, scopes, streams) from posthorn.find_token($1)`, hashOf("as strong")),
		"as strong default {admin,read} {a,b}")
	equal(t, "of all", value[string](s, `select concat_ws(' ', name, namespace, cardinality(scopes)) from posthorn.find_token($1)`, hashOf("of all")), "of all other 6")
}

// A token that is revoked or has expired makes no other one, also not while it is revoked.
func TestRevokedTokenMakesNoOther(t *testing.T) {
	t.Parallel()
	s := database(t)
	const grant = "select posthorn.grant_token($1, 'new', $2, 'p', '{read}')"
	s.exec(`select posthorn.create_token('soon', $1, 'p', '{read}', expires_at => posthorn.now() + interval '1 hour')`, hashOf("soon"))
	s.exec(`select posthorn.create_token('ci', $1, 'p', '{read}')`, hashOf("ci"))
	s.turnClock(2 * time.Hour)
	s.refused("PH005", grant, 1, hashOf("new"))
	s.refused("PH005", grant, 77, hashOf("new"))
	other := s.another()
	s.exec("begin")
	s.exec("select posthorn.revoke_token(2)")
	outcome := other.background("do $$ begin perform posthorn.grant_token(2, 'new', sha256('new'), 'p', '{read}'); end $$")
	s.awaitBlocked(other)
	s.exec("commit")
	if err := outcome(); err == nil || !strings.Contains(err.Error(), "not valid any more") {
		t.Errorf("a token made another one while it was revoked: %v", err)
	}
}
