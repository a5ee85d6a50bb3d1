package await

import (
	"os"
	"strconv"

	"github.com/posthorn/posthorn/internal/test/testsize"
)

// Kills returns how many processes a crash test kills: the number in the environment
// variable POSTHORN_TEST_KILLS, which make torture sets, otherwise few, or half of few if
// this is not a run of make test-all.
func Kills(few int) int {
	given := os.Getenv("POSTHORN_TEST_KILLS")
	if given == "" {
		return testsize.Of((few+1)/2, few)
	}
	kills, err := strconv.Atoi(given)
	if err != nil || kills < 1 {
		panic("POSTHORN_TEST_KILLS is " + strconv.Quote(given) + ", not a number of kills")
	}
	return kills
}
