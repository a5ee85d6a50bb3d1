package guarantee

import (
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"strings"
	"testing"
	"time"
)

const plain = `{"diagnosis": "plaintext-marker-7f3a9"}`

// sealed returns a payload in the sealed form, with a version of a key.
func sealed(version uint32) string {
	raw := binary.BigEndian.AppendUint32([]byte{1}, version)
	raw = append(raw, make([]byte, 12+16+20)...)
	return `{"posthorn_sealed":"` + base64.RawURLEncoding.EncodeToString(raw) + `"}`
}

// clinic has a confidential stream with a key.
func clinic(t *testing.T) *session {
	t.Helper()
	s := database(t)
	s.exec("select posthorn.set_stream_policy('default', 'patients', 'confidential')")
	s.exec(`select posthorn.add_stream_key('default', 'patients', 1, '', '\x01')`)
	s.exec("select posthorn.subscribe('default', 'direct', 'doctor')")
	return s
}

// intoTheLog are the ways in which SQL publishes a payload, $1, to the stream
// patients.
var intoTheLog = map[string]string{
	"publish":               "select posthorn.publish('default', 'e', $1::json, stream => 'patients')",
	"publish, jsonb":        "select posthorn.publish('default', 'e', $1::jsonb, stream => 'patients')",
	"publish, text":         "select posthorn.publish('default', 'e', $1::text, stream => 'patients')",
	"publish, with tags":    "select posthorn.publish('default', 'e', $1::json, stream => 'patients', tags => '{a}')",
	"publish, later":        "select posthorn.publish('default', 'e', $1::json, stream => 'patients', deliver_at => now() + interval '1 hour')",
	"publish, due":          "select posthorn.publish('default', 'e', $1::json, stream => 'patients', deliver_at => now() - interval '1 hour')",
	"publish, once":         "select posthorn.publish('default', 'e', $1::json, stream => 'patients', dedup_key => 'k')",
	"publish, relaxed":      "select posthorn.commit_relaxed(), posthorn.publish('default', 'e', $1::json, stream => 'patients')",
	"publish_with_care":     "select posthorn.publish_with_care('default', 'e', $1::json, 'patients', null, null, null, null, null)",
	"publish_many":          "select posthorn.publish_many('default', jsonb_build_array(jsonb_build_object('type', 'e', 'stream', 'patients', 'payload', $1::jsonb)))",
	"publish_batch":         "select posthorn.publish_batch('default', '{e}', array[$1::json], '{patients}')",
	"publish_batch, others": "select posthorn.publish_batch('default', '{e,e,e}', array['{}', $1::json, '{}'], array['open', 'patients', null])",
	"publish_in_turn":       "select posthorn.publish_in_turn('default', '{e}', array[$1::json], '{patients}')",
	"publish_to":            "select posthorn.publish_to('default', 'direct', 'doctor', 'e', $1::json, stream => 'patients')",
	"publish_to, later":     "select posthorn.publish_to('default', 'direct', 'doctor', 'e', $1::json, stream => 'patients', deliver_at => now() + interval '1 hour')",
	"schedule":              "select posthorn.schedule('default', 's', '0 8 * * *', 'e', $1::json, stream => 'patients')",
}

// Seed 003.29, 003.30: the database refuses plaintext in a confidential stream in
// every way to publish.
func TestConfidentialStreamsTakeNoPlaintext(t *testing.T) {
	t.Parallel()
	large := fmt.Sprintf(`{"diagnosis": "plaintext-marker-7f3a9 %s"}`, strings.Repeat("x", 2000))
	for name, statement := range intoTheLog {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := clinic(t)
			for _, payload := range []string{
				plain, large, `{}`, `"text"`, `null`,
				`{"posthorn_sealed":"c2hvcnQ"}`, `{"posthorn_sealed":7}`,
				strings.Replace(sealed(1), "}", `,"diagnosis":1}`, 1), strings.Replace(sealed(1), "sealed", "Sealed", 1),
				`[` + sealed(1) + `]`, strings.Replace(sealed(1), `"AQ`, `"BQ`, 1), // another format
				sealed(2), sealed(1 << 31), // keys that do not exist
			} {
				err := s.refused("PH005", statement, payload)
				if strings.Contains(fmt.Sprintf("%+v", *err), "marker") || err.Hint == "" {
					t.Errorf("the error is %+v", *err)
				}
			}
			s.exec(statement, sealed(1))
			s.exec("select posthorn.shred_stream_keys('default', 'patients')")
			if err := s.refused("PH005", statement, sealed(1)); !strings.Contains(err.Message, "not any more") {
				t.Errorf("with a destroyed key: %v", err)
			}
			s.exec("select posthorn.set_stream_policy('default', 'patients', 'restricted')")
			s.exec(statement, plain)
		})
	}
}

// A source of events that cannot seal gets an error when it is set up. If it was set
// up before the stream became confidential, its events are refused.
func TestEventsPublishedByTheDatabase(t *testing.T) {
	t.Parallel()
	s := clinic(t)
	s.exec("create table public.visits (id int primary key, diagnosis text)")
	s.refused("PH005", "select posthorn.push_table_changes('public.visits', stream => 'patients')")
	s.exec("select posthorn.push_table_changes('public.visits', stream => 'visits')")
	s.exec("select posthorn.schedule('default', 'nightly', '* * * * *', 'e', $1::json, stream => 'reports')", plain)
	s.exec("select posthorn.publish('default', 'e', $1::json, stream => 'letters', deliver_at => now() + interval '1 hour')", plain)
	for stream, what := range map[string]string{"visits": "public.visits", "reports": "'nightly'", "letters": "1 delayed"} {
		if err := s.refused("PH002", "select posthorn.set_stream_policy('default', $1, 'confidential')", stream); !strings.Contains(err.Message, what) || err.Hint == "" {
			t.Errorf("%s: %+v", stream, *err)
		}
		// As if both had been set up concurrently.
		s.exec("insert into posthorn.stream_policies (namespace_id, stream_name, security_level) values (1, $1, 'confidential')", stream)
		s.exec("insert into posthorn.sealed_streams values (posthorn.stream_id('default', $1))", stream)
		s.exec("update posthorn.stream_names set plain = false where name = $1", stream)
	}
	if err := s.refused("PH005", "insert into public.visits values (1, 'plaintext-marker-7f3a9')"); strings.Contains(fmt.Sprintf("%+v", *err), "marker") {
		t.Errorf("the error is %+v", *err)
	}
	s.refused("PH005", "select posthorn.run_schedule_now('default', 'nightly')")
	s.exec("update posthorn.scheduled_tasks set next_run_at = now() - interval '1 second'")
	s.exec("update posthorn.delayed set deliver_at = now() - interval '1 second'")
	s.exec("select posthorn.publish('default', 'e', '{}', stream => 'open', deliver_at => now() + interval '1 hour')")
	s.turnClock(2 * time.Hour)
	s.exec("select posthorn.tend()")
	equal(t, "in the log", column[string](s, "select s.name from posthorn.events e join posthorn.streams s on s.id = e.stream_id"), []string{"open"})
	equal(t, "held back", column[string](s, "select stream_name from posthorn.held_back"), []string{"letters"})
	if failed := value[string](s, "select last_error from posthorn.scheduled_tasks"); !strings.Contains(failed, "confidential") || strings.Contains(failed, "marker") {
		t.Errorf("the error of the schedule is %q", failed)
	}
}

// Seed 003.28: only confidential streams have settings of encryption, which a
// constraint of the table checks.
func TestConfidentialPolicies(t *testing.T) {
	t.Parallel()
	s := database(t)
	policy := func() string {
		return value[string](s, `select concat_ws(' ', security_level, encryption_alg, kms_key_id, dek_rotation_days, active_key_version)
			from posthorn.stream_policies`)
	}
	s.exec("select posthorn.set_stream_policy('default', 's', 'confidential', 'AES-256-GCM', 'vault', 7)")
	equal(t, "policy", policy(), "confidential AES-256-GCM vault 7")
	s.exec(`select posthorn.add_stream_key('default', 's', 1, 'vault', '\x01')`)
	s.exec("select posthorn.set_stream_policy('default', 's', 'confidential')")
	equal(t, "with defaults", policy(), "confidential AES-256-GCM 1")
	s.exec("select posthorn.set_stream_policy('default', 's', 'restricted')")
	equal(t, "restricted", policy(), "restricted")
	s.exec("select posthorn.set_stream_policy('default', 's', 'confidential', kms_key_id => 'vault')")
	equal(t, "again", policy(), "confidential AES-256-GCM vault 1")
	s.exec("select posthorn.shred_stream_keys('default', 's')")
	equal(t, "without keys", policy(), "confidential AES-256-GCM vault")
	for _, arguments := range []string{
		"'s', 'restricted', 'AES-256-GCM'", "'s', 'open', kms_key_id => 'vault'", "'s', 'restricted', dek_rotation_days => 7",
		"'s', 'confidential', 'ROT13'", "'s', 'confidential', kms_key_id => ''", "'s', 'confidential', kms_key_id => 'file:///tmp/mine'",
		"'s', 'confidential', dek_rotation_days => 0",
	} {
		s.refused("PH004", "select posthorn.set_stream_policy('default', "+arguments+")")
	}
	s.refused("PH005", "select posthorn.set_stream_policy('default', 'default', 'confidential')")
	for column, value := range map[string]string{"encryption_alg": "'AES-256-GCM'", "kms_key_id": "'k'", "dek_rotation_days": "7", "active_key_version": "1"} {
		s.refused("23514", fmt.Sprintf(`insert into posthorn.stream_policies (namespace_id, stream_name, security_level, %s)
			values (1, 'x', 'restricted', %s)`, column, value))
	}
}

// Only confidential streams get keys. When a stream is no longer confidential, its
// old payloads stay readable.
func TestStreamKeys(t *testing.T) {
	t.Parallel()
	s := clinic(t)
	s.refused("PH005", `select posthorn.add_stream_key('default', 'open', 1, '', '\x01')`)
	s.refused("PH002", `select posthorn.add_stream_key('default', 'patients', 3, '', '\x01')`)
	s.refused("PH002", `select posthorn.add_stream_key('default', 'patients', null, '', '\x01')`)
	s.refused("PH004", `select posthorn.add_stream_key('default', 'patients', 2, '', '')`)
	s.refused("PH004", "select posthorn.use_stream_key('default', 'patients', 1, -1)")
	s.refused("PH001", "select posthorn.use_stream_key('default', 'patients', 2, 1)")
	s.refused("PH001", "select posthorn.shred_stream_keys('default', 'open')")
	s.refused("PH005", "select posthorn.rotate_stream_key('default', 'open')")
	s.exec("select posthorn.rotate_stream_key('default', 'patients')")
	s.exec(`select posthorn.add_stream_key('default', 'patients', 2, '', '\x02')`)
	keys := "select concat_ws(' ', key_version, retired, key) from posthorn.load_stream_keys('default', 'patients')"
	equal(t, "keys", column[string](s, keys), []string{`1 t \x01`, `2 f \x02`})
	s.exec("select posthorn.shred_stream_keys('default', 'patients', 1)")
	s.exec("select posthorn.set_stream_policy('default', 'patients', 'open')")
	equal(t, "keys of an open stream", column[string](s, keys), []string{`2 f \x02`})
	equal(t, "listed keys", column[string](s, "select concat_ws(' ', version, destroyed_at is not null) from posthorn.list_stream_keys('default', 'patients')"),
		[]string{"1 t", "2 f"})
	s.exec("select posthorn.shred_stream_keys('default', 'patients')")
	equal(t, "none is left", column[int](s, "select last_version from posthorn.load_stream_keys('default', 'patients')"), []int{2})
}

// Seed 003.29: publishers may add keys and consumers may read them. Only admins make
// policies and destroy keys.
func TestRolesAndKeys(t *testing.T) {
	t.Parallel()
	s := clinic(t)
	may := func(role, call string) bool {
		return value[bool](s, "select has_function_privilege($1, p.oid, 'execute') from pg_proc p where p.proname = $2 and p.pronamespace = 'posthorn'::regnamespace", role, call)
	}
	for call, roles := range map[string]string{
		"load_stream_keys": "publisher consumer admin", "add_stream_key": "publisher admin", "use_stream_key": "publisher admin",
		"confidential_streams": "publisher admin", "shred_stream_keys": "admin", "rotate_stream_key": "admin",
		"list_stream_keys": "admin", "set_stream_policy": "admin", "list_streams": "consumer admin",
	} {
		for _, role := range []string{"publisher", "consumer", "admin"} {
			if got, want := may("posthorn_"+role, call), strings.Contains(roles, role); got != want {
				t.Errorf("%s may call %s: %v", role, call, got)
			}
		}
	}
}

// A stream that an open transaction creates can become confidential meanwhile,
// without waiting. From then on nothing is published as plain text, even after that
// transaction has committed. Two sessions that set a policy run one after the other.
func TestPoliciesMeetOthers(t *testing.T) {
	t.Parallel()
	publisher := clinic(t)
	admin, another := publisher.another(), publisher.another()
	publisher.exec("begin")
	publisher.exec("select posthorn.publish('default', 'e', '{}', stream => 'new')")
	admin.exec("select posthorn.set_stream_policy('default', 'new', 'confidential')")
	another.refused("PH005", "select posthorn.publish('default', 'e', '{}', stream => 'new')")
	publisher.exec("commit")
	for range 2 {
		publisher.refused("PH005", "select posthorn.publish('default', 'e', '{}', stream => 'new')")
		admin.exec("select posthorn.tend()")
	}
	admin.exec("begin isolation level repeatable read")
	admin.refused("PH005", "select posthorn.set_stream_policy('default', 'old', 'confidential')")
	admin.exec("rollback")

	admin.exec("begin")
	admin.exec("select posthorn.set_stream_policy('default', 'visits', 'confidential')")
	outcome := another.background("select posthorn.set_stream_policy('default', 'visits', 'open')")
	publisher.awaitBlocked(another)
	admin.exec("commit")
	if err := outcome(); err != nil {
		t.Fatal(err)
	}
	publisher.exec("select posthorn.publish('default', 'e', '{}', stream => 'visits')")
	equal(t, "streams that are neither or both", column[string](publisher, `select s.name from posthorn.stream_names s
		where exists (select from posthorn.sealed_streams x where x.stream_id = s.id) = coalesce(s.plain, true)`), []string{})
}
