package pg

import (
	"strings"
	"syscall"
)

// tcpUserTimeout is an option that package syscall does not name everywhere.
const tcpUserTimeout = 0x12

// limitSilence limits how long data that was sent may stay unacknowledged. Probes
// of keepalive are not sent while there is such data.
func limitSilence(network, _ string, conn syscall.RawConn) error {
	if !strings.HasPrefix(network, "tcp") {
		return nil
	}
	var failed error
	err := conn.Control(func(fd uintptr) {
		failed = syscall.SetsockoptInt(int(fd), syscall.IPPROTO_TCP, tcpUserTimeout, int(silenceTime.Milliseconds()))
	})
	if err != nil {
		return err
	}
	return failed
}
