package pg

import (
	"context"
	"net"
	"time"
)

// silenceTime is the time after which the operating system closes a connection whose peer
// acknowledges nothing.
const silenceTime = 30 * time.Second

// Dial connects to a server, with settings that let the operating system notice when the
// host is gone. It is for pools that Posthorn opens: a program that passes its own pool has
// its own settings.
func Dial(ctx context.Context, network, address string) (net.Conn, error) {
	d := net.Dialer{
		KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: silenceTime / 2, Interval: silenceTime / 6, Count: 3},
		Control:         limitSilence,
	}
	return d.DialContext(ctx, network, address)
}
