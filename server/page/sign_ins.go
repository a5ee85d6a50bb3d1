package page

import (
	"maps"
	"net"
	"net/netip"
	"sync"
	"time"
)

// signIns slows down the sign-ins from an address from which many have failed, so that nobody
// tries many tokens, each of which is a query of the database and a line of the log. People
// who are signed in are not concerned.
type signIns struct {
	now func() time.Time

	mu     sync.Mutex
	failed map[string]failures // by address
}

type failures struct {
	n    int
	last time.Time
}

func newSignIns(now func() time.Time) *signIns {
	return &signIns{now: now, failed: map[string]failures{}}
}

const (
	freeFailures   = 10 // without a pause before the next one
	longestPause   = 10 * time.Second
	failuresKeptIn = 10 * time.Minute // an address without another failure begins anew
	mostAddresses  = 10_000
)

// begin counts a sign-in as failed until done is called with true. wait is not zero if the
// address has to wait: then the sign-in may not be tried.
func (s *signIns) begin(address string) (done func(well bool), wait time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	f := s.failed[address]
	if now.Sub(f.last) > failuresKeptIn {
		f.n = 0
	}
	if wait = f.last.Add(f.pause()).Sub(now); wait > 0 {
		return nil, wait
	}
	s.makeRoom(now)
	s.failed[address] = failures{f.n + 1, now}
	return func(well bool) {
		if well {
			s.takeBack(address)
		}
	}, 0
}

// makeRoom forgets addresses when there are too many: those that need not wait, or all.
func (s *signIns) makeRoom(now time.Time) {
	if len(s.failed) >= mostAddresses {
		maps.DeleteFunc(s.failed, func(_ string, f failures) bool { return now.Sub(f.last) > longestPause })
	}
	if len(s.failed) >= mostAddresses {
		clear(s.failed)
	}
}

func (s *signIns) takeBack(address string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.failed[address]
	if f.n--; f.n <= 0 {
		delete(s.failed, address)
		return
	}
	s.failed[address] = f
}

// pause is the time after the last failure before the next sign-in.
func (f failures) pause() time.Duration {
	if f.n < freeFailures {
		return 0
	}
	return min(longestPause, time.Second<<min(f.n-freeFailures, 10)) // 1, 2, 4, 8, 10 seconds
}

// addressOf is the address of the remote end of a connection; of IPv6 the network, since each
// host has as many addresses as it likes. Behind a proxy it is that of the proxy: anybody can
// write another one into a header.
func addressOf(remote string) string {
	host, _, err := net.SplitHostPort(remote)
	if err != nil {
		return remote
	}
	if a, err := netip.ParseAddr(host); err == nil && a.Is6() && !a.Is4In6() {
		if network, err := a.WithZone("").Prefix(64); err == nil {
			return network.String()
		}
	}
	return host
}
