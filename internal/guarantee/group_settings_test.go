package guarantee

import (
	"strings"
	"testing"
)

// The error of an invalid setting names the setting, and nothing is changed.
func TestGroupSettingsAreChecked(t *testing.T) {
	t.Parallel()
	s := database(t)
	for config, wrong := range map[string]string{
		`[]`:                             "must be a JSON object",
		`{"slot": 1}`:                    `"slot" is not a setting`,
		`{"order": "foo"}`:               `"order" must be none, key, stream or total`,
		`{"order": 5}`:                   `"order" must be none, key, stream or total`,
		`{"slots": 0}`:                   `"slots" must be from 1 to 1024`,
		`{"slots": 1025}`:                `"slots" must be from 1 to 1024`,
		`{"slots": "many"}`:              `"slots" must be a whole number`,
		`{"attempts": -1}`:               `"attempts" must be a whole number`,
		`{"on_failure": "explode"}`:      `"on_failure" must be block or set_aside`,
		`{"read_ahead": 0}`:              `"read_ahead" must be at least 1`,
		`{"backoff": {"factor": 0.9}}`:   `"backoff.factor" must be at least 1`,
		`{"backoff": {"jitter": 1.1}}`:   `"backoff.jitter" must be from 0 to 1`,
		`{"backoff": {"by": 2}}`:         `"backoff.by" is not a setting`,
		`{"backoff": {"to": "later"}}`:   "backoff.to is not a period: later",
		`{"delays": "1 minute"}`:         `"delays" must be a list of periods`,
		`{"delays": ["1001 years"]}`:     "delays must be a period of up to 1000 years, not 1001 years",
		`{"delays": ["soon"]}`:           "delays is not a period: soon",
		`{"backoff": {"from": "1e9 y"}}`: "backoff.from",
		`{"start": "tomorrow or so"}`:    "start is not a time: tomorrow or so",
	} {
		refused := s.refused("PH004", "select posthorn.define_group('default', 'settings', $1)", config)
		if !strings.Contains(refused.Message, wrong) {
			t.Errorf("%s is refused: %s", config, refused.Message)
		}
	}
	equal(t, "groups", value[int](s, "select count(*) from posthorn.groups where name = 'settings'"), 0)
}

// Failures can be settled with any period that a group accepts.
func TestAnyPeriodCanBeWaitedFor(t *testing.T) {
	t.Parallel()
	for name, config := range map[string]string{
		"long delay":     `{"delays": ["1000 years"]}`,
		"long backoff":   `{"backoff": {"from": "1000 years", "to": "1000 years", "factor": 999999, "jitter": 1}}`,
		"negative delay": `{"delays": ["-1000 years"]}`,
		"null":           `{"delays": [null], "attempts": 0}`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := database(t)
			s.define(config)
			id := s.publish()
			s.settle(s.claim(1), failure{Event: id})
			equal(t, "retries", value[int](s, "select count(*) from posthorn.retries where due_at is not null"), 1)
		})
	}
	s := database(t)
	s.define(`{}`)
	id := s.publish()
	l := s.claim(1)
	s.refused("PH004", `select posthorn.settle($1, $2, jsonb_build_array(jsonb_build_object('event', $3::bigint, 'retry_in', '1001 years')))`, l.ID, l.Attempt, id)
	s.settle(l)
}
