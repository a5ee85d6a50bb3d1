package pg

import (
	"context"
	"net"
	"time"
)

// silenceTime is after how long the operating system gives up a connection whose
// peer acknowledges nothing.
const silenceTime = 30 * time.Second

// Dial connects to a server so that the operating system notices when its host is
// gone. It is for configurations of our own: a program that gives its own pool
// has chosen how to dial.
func Dial(ctx context.Context, network, address string) (net.Conn, error) {
	d := net.Dialer{
		KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: silenceTime / 2, Interval: silenceTime / 6, Count: 3},
		Control:         limitSilence,
	}
	return d.DialContext(ctx, network, address)
}
