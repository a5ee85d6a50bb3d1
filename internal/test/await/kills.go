package await

import (
	"os"
	"strconv"
)

// Kills returns how many processes a crash test kills: the number in the environment
// variable POSTHORN_TEST_KILLS, which make torture sets, and otherwise few.
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
