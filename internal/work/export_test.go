package work

// Intervals that are set before the tests begin.
var (
	Regularly      = &regularly
	HeartbeatEvery = &heartbeatEvery
)
