package op_test

import (
	"testing"

	"github.com/posthorn/posthorn/op"
)

func TestCronInWords(t *testing.T) {
	t.Parallel()
	for expression, want := range map[string]string{
		"30 8 * * mon-fri":           "at 08:30, on Monday to Friday",
		"0 2 * * *":                  "at 02:00, every day",
		"0 7,19 * * *":               "at 07:00 and 19:00, every day",
		"@daily":                     "at 00:00, every day",
		"@hourly":                    "at minute 0 of every hour",
		"@weekly":                    "at 00:00, on Sunday",
		"@monthly":                   "at 00:00, on day 1 of the month",
		"@yearly":                    "at 00:00, on day 1 of the month, in January",
		"@every 90s":                 "every 90s",
		" @AT 2026-12-01T08:00:00Z ": "once, at 2026-12-01T08:00:00Z",
		"* * * * *":                  "every minute",
		"*/15 * * * *":               "every 15 minutes",
		"*/7 * * * *":                "at the minutes 0, 7, 14, 21, 28, 35, 42, 49 and 56 of every hour",
		"*/15 9-17 * * 1-5":          "every 15 minutes from 09:00 to 17:59, on Monday to Friday",
		"5 */2 * * *":                "at minute 5 of every 2nd hour",
		"5,35 * * * *":               "at the minutes 5 and 35 of every hour",
		"0 0 1,15 * *":               "at 00:00, on the days 1 and 15 of the month",
		"0 0 1-7 * *":                "at 00:00, on the days 1 to 7 of the month",
		"0 0 13 * fri":               "at 00:00, on day 13 of the month and on Friday",
		"0 0 */2 * mon":              "at 00:00, on the days 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29 and 31 of the month if it is Monday",
		"0 0 * jan,jul *":            "at 00:00, every day, in January and July",
		"0 0 * * fri-sun":            "at 00:00, on Friday to Sunday",
		"0 0 * * 0-6":                "at 00:00, every day",
		"0 0 * * 0-0":                "at 00:00, on Sunday",
		"0 0 * * sun":                "at 00:00, on Sunday",
		"0 0 13 * 0-6":               "at 00:00, every day",
		"0 0 1-31 * mon":             "at 00:00, every day",
		"0 0 * * sat,sun":            "at 00:00, on Saturday and Sunday",
		"61 * * * *":                 "",
		"5/2 * * * *":                "",
		"*/90 * * * *":               "",
		"0 0 * * 5-0":                "",
		"a b c d e":                  "",
		"* * *":                      "",
		"@never":                     "",
		"":                           "",
	} {
		if got := op.CronInWords(expression); got != want {
			t.Errorf("%q: %q, want %q", expression, got, want)
		}
	}
}
