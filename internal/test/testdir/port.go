package testdir

import (
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
	"testing"
)

// FreePort returns a free port for a server that may be killed and restarted. The
// port is below the ephemeral range, so no outgoing connection takes it in between.
// The port 10,000 above it is free too, as Redis Cluster requires.
func FreePort(t testing.TB) int {
	t.Helper()
	for range 1000 {
		port := 11000 + rand.IntN(9000)
		if isFree(port) && isFree(port+10000) {
			return port
		}
	}
	t.Fatal("no free port")
	return 0
}

// FreePorts returns n different free ports.
func FreePorts(t testing.TB, n int) (ports []int) {
	t.Helper()
	for len(ports) < n {
		if port := FreePort(t); !slices.Contains(ports, port) {
			ports = append(ports, port)
		}
	}
	return ports
}

func isFree(port int) bool {
	l, err := net.Listen("tcp", "127.0.0.1:"+strconv.Itoa(port))
	if err != nil {
		return false
	}
	return l.Close() == nil
}
