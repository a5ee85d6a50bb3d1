package await

import (
	"os"
	"strconv"
	"testing"
)

// Kills returns how many processes a test of crashes kills: ten, or as many as the
// environment variable POSTHORN_TEST_KILLS says. make torture sets it to 100.
func Kills(t testing.TB) int {
	t.Helper()
	given := os.Getenv("POSTHORN_TEST_KILLS")
	if given == "" {
		return 10
	}
	kills, err := strconv.Atoi(given)
	if err != nil || kills < 1 {
		t.Fatalf("POSTHORN_TEST_KILLS is %q, not a number of kills", given)
	}
	return kills
}
