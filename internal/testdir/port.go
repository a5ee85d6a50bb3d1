package testdir

import (
	"math/rand/v2"
	"net"
	"strconv"
	"testing"
)

// FreePort is a port that nothing listens on, for a server that may be killed and
// started again: it is below those that the system gives to whoever connects, so
// it stays free meanwhile. The port 10,000 above it is free too, which Redis
// Cluster wants.
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

func isFree(port int) bool {
	l, err := net.Listen("tcp", "127.0.0.1:"+strconv.Itoa(port))
	if err != nil {
		return false
	}
	return l.Close() == nil
}
