package guarantee

import (
	"strings"
	"testing"
	"time"
)

// Nothing is stored about a settled lease, so a repeated settlement cannot be
// distinguished from one of a lease that never existed: the error says that the first
// one may have succeeded. If another worker has the lease, the error says so.
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
		t.Errorf("hint for a repeat: %s", hint)
	}
	s.publish()
	late := s.claim(10)
	s.turnClock(time.Hour)
	s.claim(10)
	if hint := s.refused("PH003", settle, late.ID, late.Attempt).Hint; strings.Contains(hint, counted) {
		t.Errorf("hint for a late worker: %s", hint)
	}
}
