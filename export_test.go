package posthorn

import (
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// SetHeartbeat sets how often Run reports that the client's node is alive.
func SetHeartbeat(c *Client, every time.Duration) { c.heartbeat = every }

// Control returns the pool of the client's own statements.
func Control(c *Client) *pgxpool.Pool { return c.control.Pool }
