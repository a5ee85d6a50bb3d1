package posthorn

import "time"

// SetHeartbeat sets how often Run reports that the client's node is alive.
func SetHeartbeat(c *Client, every time.Duration) { c.heartbeat = every }
