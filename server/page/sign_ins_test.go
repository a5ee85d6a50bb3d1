package page

import (
	"testing"
	"time"
)

// An address from which sign-ins have failed waits before the next one, longer each time. Others
// do not wait, and neither does one whose sign-ins succeed.
func TestFailedSignInsSlowDown(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)
	s := newSignIns(func() time.Time { return now })
	try := func(address string, well bool) time.Duration {
		done, wait := s.begin(address)
		if wait == 0 {
			done(well)
		}
		return wait
	}
	for range 3 * freeFailures {
		if wait := try("office", true); wait != 0 {
			t.Fatalf("sign-ins that succeed wait for %v", wait)
		}
	}
	for i := range freeFailures {
		if wait := try("office", false); wait != 0 {
			t.Fatalf("failure %d waits for %v", i, wait)
		}
	}
	for _, want := range []time.Duration{time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second, longestPause, longestPause} {
		if wait := try("office", true); wait != want {
			t.Errorf("waits for %v, want %v", wait, want)
		}
		if wait := try("elsewhere", true); wait != 0 {
			t.Errorf("another address waits for %v", wait)
		}
		now = now.Add(want)
		if wait := try("office", false); wait != 0 {
			t.Errorf("waits for %v more", wait)
		}
	}
	now = now.Add(failuresKeptIn + 1)
	if wait := try("office", false); wait != 0 {
		t.Errorf("failures of long ago wait for %v", wait)
	}
}

// Sign-ins that begin at the same time count before any of them has failed.
func TestSignInsAtTheSameTimeCount(t *testing.T) {
	t.Parallel()
	s := newSignIns(func() time.Time { return time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC) })
	for range freeFailures {
		if _, wait := s.begin("office"); wait != 0 {
			t.Fatalf("waits for %v", wait)
		}
	}
	if _, wait := s.begin("office"); wait == 0 {
		t.Error("the next one need not wait")
	}
}

// The memory of failures does not grow without end.
func TestFailedSignInsAreForgotten(t *testing.T) {
	t.Parallel()
	s := newSignIns(func() time.Time { return time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC) })
	for i := range mostAddresses + 10 {
		if _, wait := s.begin(string(rune(i))); wait != 0 {
			t.Fatal(wait)
		}
	}
	if n := len(s.failed); n > mostAddresses {
		t.Errorf("%d addresses are remembered", n)
	}
}

// An IPv6 network is one address: its hosts choose theirs.
func TestAddressOf(t *testing.T) {
	t.Parallel()
	for remote, want := range map[string]string{
		"192.0.2.7:4711": "192.0.2.7", "[2001:db8::1]:4711": "2001:db8::/64", "[2001:db8:0:0:9::2]:1": "2001:db8::/64",
		"[fe80::1%eth0]:1": "fe80::/64", "[::ffff:192.0.2.7]:1": "::ffff:192.0.2.7", "pipe": "pipe",
	} {
		if got := addressOf(remote); got != want {
			t.Errorf("%s: %s, want %s", remote, got, want)
		}
	}
}
