package await

import (
	"os"
	"strconv"
)

// Kills returns how many processes a test of crashes kills: few in the suite, or as
// many as the environment variable POSTHORN_TEST_KILLS says. make torture sets it.
func Kills(few int) int {
	given := os.Getenv("POSTHORN_TEST_KILLS")
	if given == "" {
		return few
	}
	kills, err := strconv.Atoi(given)
	if err != nil || kills < 1 {
		panic("POSTHORN_TEST_KILLS is " + strconv.Quote(given) + ", not a number of kills")
	}
	return kills
}
