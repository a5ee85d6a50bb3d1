package seal

import (
	"cmp"
	"log/slog"
	"time"
)

// Config is how keys are used. The zero value is sound.
type Config struct {
	// MaxKeys is how many unwrapped keys stay in memory, the last used ones. A
	// process needs one for each stream that it seals, and one for each version that
	// it opens. Default: 1000.
	MaxKeys int
	// MaxAge is how long an unwrapped key is used without asking store and keeper
	// again, and so how long a process may go on after a key was destroyed or a right
	// taken away. In the second half of it, keys that are in use are renewed; so the
	// store and the keeper may be away for that long. Default: 5 minutes.
	MaxAge time.Duration
	// RotateAfter is the age at which a key is replaced, where the stream has no age of
	// its own. Default: 30 days.
	RotateAfter time.Duration
	// RotateCount is after how many messages a key is replaced at the latest. Default
	// and maximum: [MaxCount].
	RotateCount int64
	// Logger hears of keys that could not be renewed and are used on. Default:
	// [slog.Default].
	Logger *slog.Logger
}

// MaxCount is how many messages one key seals at most. Nonces are 96 random bits,
// so with that many the probability that two are the same is below 2⁻³².
const MaxCount = 1 << 32

func (c Config) withDefaults() Config {
	if c.MaxKeys <= 0 {
		c.MaxKeys = 1000
	}
	if c.MaxAge <= 0 {
		c.MaxAge = 5 * time.Minute
	}
	if c.RotateAfter <= 0 {
		c.RotateAfter = 30 * 24 * time.Hour
	}
	if c.RotateCount <= 0 || c.RotateCount > MaxCount {
		c.RotateCount = MaxCount
	}
	c.Logger = cmp.Or(c.Logger, slog.Default())
	return c
}
