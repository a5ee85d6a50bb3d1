package seal

import (
	"cmp"
	"log/slog"
	"time"
)

// Config sets how keys are cached and rotated. The zero value uses the defaults.
type Config struct {
	// MaxKeys is the number of unwrapped keys in memory; the least recently used are
	// dropped. A process needs one for each stream that it seals, and one for each
	// version that it opens. Default: 1000.
	MaxKeys int
	// MaxAge is the time for which an unwrapped key is used without calling the store
	// and the keeper, and so the time for which a process may go on using a key that
	// was destroyed or a permission that was revoked. Keys in use are renewed in the
	// second half of that time, so the store and the keeper may be unavailable for
	// half of it. Default: 5 minutes.
	MaxAge time.Duration
	// RotateAfter is the age at which a key is replaced, if the stream sets none.
	// Default: 30 days.
	RotateAfter time.Duration
	// RotateCount is the number of messages after which a key is replaced. Default
	// and maximum: [MaxCount].
	RotateCount int64
	// Logger receives warnings about keys that could not be renewed and stay in use.
	// Default: [slog.Default].
	Logger *slog.Logger
}

// MaxCount is the largest number of messages that one key seals. Nonces are 96 random
// bits, so the probability that two of them are equal is below 2⁻³².
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
