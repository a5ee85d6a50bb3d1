package pg

import (
	"strings"
	"syscall"
)

// tcpUserTimeout is a constant that package syscall lacks on some architectures.
const tcpUserTimeout = 0x12

// limitSilence limits the time that sent data may stay unacknowledged. Keepalive does not
// send probes while there is such data.
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
