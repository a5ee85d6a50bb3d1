package posthorn

import "time"

// What tests set before they begin, to have it in a moment.
var (
	SaveAfter   = &saveAfter
	SealedPause = &sealedPause
)

// SetHeartbeat sets how often Run reports that the client's node is alive.
func SetHeartbeat(c *Client, every time.Duration) { c.heartbeat = every }
