package guarantee

import (
	"strings"
	"testing"
	"time"
)

// Nothing is kept of a lease that was settled, so a repeat cannot be told from a lease that never was: the error says
// that the answer may have counted. A worker whose lease another has is told that.
//
// seed 002.12
func TestSettlingTwiceSaysThatItMayHaveCounted(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.define("{}")
	const settle, counted = "select posthorn.settle($1, $2)", "it may have counted"
	s.publish()
	l := s.claim(10)
	s.settle(l)
	if hint := s.refused("PH003", settle, l.ID, l.Attempt).Hint; !strings.Contains(hint, counted) {
		t.Errorf("a repeat is told: %s", hint)
	}
	s.publish()
	late := s.claim(10)
	s.turnClock(time.Hour)
	s.claim(10)
	if hint := s.refused("PH003", settle, late.ID, late.Attempt).Hint; strings.Contains(hint, counted) {
		t.Errorf("a late worker is told: %s", hint)
	}
}
