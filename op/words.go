package op

import (
	"fmt"
	"strings"
)

// Counted is a number of things in words: 1 job, 7 jobs, 2 retries.
func Counted[N int | int64](n N, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	if stem, ok := strings.CutSuffix(noun, "y"); ok && !strings.HasSuffix(noun, "ey") {
		return fmt.Sprintf("%d %sies", n, stem)
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// Were is [Counted] with the verb of a passive: 1 job was, 7 jobs were.
func Were[N int | int64](n N, noun string) string {
	if n == 1 {
		return Counted(n, noun) + " was"
	}
	return Counted(n, noun) + " were"
}

// Are is [Counted] with the verb of a state: 1 token is, 3 tokens are.
func Are[N int | int64](n N, noun string) string {
	if n == 1 {
		return Counted(n, noun) + " is"
	}
	return Counted(n, noun) + " are"
}
