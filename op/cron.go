package op

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// cronNames are the expressions that stand for five fields, see posthorn.parse_cron.
var cronNames = map[string]string{
	"@yearly": "0 0 1 1 *", "@annually": "0 0 1 1 *", "@monthly": "0 0 1 * *", "@weekly": "0 0 * * 0",
	"@daily": "0 0 * * *", "@midnight": "0 0 * * *", "@hourly": "0 * * * *",
}

var (
	cronMonths   = []string{"", "January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November", "December"}
	cronWeekdays = []string{"Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"}
)

// CronInWords says when a cron expression is due: at 08:30, Monday to Friday. It returns "" for one that the database
// refuses, which decides; the next times tell the rest.
func CronInWords(expression string) string {
	said := strings.ToLower(strings.TrimSpace(expression))
	if period, ok := strings.CutPrefix(said, "@every "); ok {
		return "every " + strings.TrimSpace(period)
	}
	if _, ok := strings.CutPrefix(said, "@at "); ok {
		return "once, at " + strings.TrimSpace(strings.TrimSpace(expression)[len("@at "):])
	}
	fields := strings.Fields(first(cronNames[said], said))
	if len(fields) != 5 {
		return ""
	}
	minutes, hours := cronField(fields[0], 0, 59, nil), cronField(fields[1], 0, 23, nil)
	days, months, weekdays := cronField(fields[2], 1, 31, nil), cronField(fields[3], 1, 12, cronMonths), cronField(fields[4], 0, 7, cronWeekdays)
	if minutes.values == nil || hours.values == nil || days.values == nil || months.values == nil || weekdays.values == nil {
		return ""
	}
	return strings.Join(slices.DeleteFunc([]string{
		timesInWords(minutes, hours), daysInWords(days, weekdays, hours), in("in", months, cronMonths),
	}, func(s string) bool { return s == "" }), ", ")
}

// cronSet is a field of a cron expression.
type cronSet struct {
	values   []int // in order; nil: the field is not understood
	all      bool  // each value of the field
	step     int   // of */step; 0: another field
	wild     bool  // it begins with *
	low, top int
}

// cronField reads a field: values and ranges, with commas between them and steps behind them.
func cronField(field string, low, top int, names []string) cronSet {
	set := cronSet{wild: strings.HasPrefix(field, "*"), low: low, top: top}
	chosen := map[int]bool{}
	for part := range strings.SplitSeq(field, ",") {
		span, by, stepped := strings.Cut(part, "/")
		step := 1
		if stepped {
			step, _ = strconv.Atoi(by) // 0, as of no number, is no step
		}
		from, to := low, top
		if span != "*" {
			begin, end, isRange := strings.Cut(span, "-")
			from = cronValue(begin, names)
			if to = from; isRange {
				to = cronValue(end, names)
			}
			if end == "sun" { // as in fri-sun
				to = 7
			}
			if stepped && !isRange {
				return cronSet{}
			}
		} else if stepped && part == field {
			set.step = step
		}
		if step < 1 || step > top || from < low || to > top || from > to {
			return cronSet{}
		}
		for v := from; v <= to; v += step {
			chosen[v] = true
		}
	}
	if names != nil && low == 0 { // Sunday is 0 and 7: it is the end of a week that is told
		chosen[7] = chosen[7] || chosen[0]
		delete(chosen, 0)
		set.low = 1
	}
	for v, yes := range chosen {
		if yes {
			set.values = append(set.values, v)
		}
	}
	slices.Sort(set.values)
	set.all = len(set.values) == set.top-set.low+1
	return set
}

// cronValue is a number or a name of three letters; -1 for another text.
func cronValue(text string, names []string) int {
	if n, err := strconv.Atoi(text); err == nil {
		return n
	}
	return slices.IndexFunc(names, func(name string) bool { return len(text) == 3 && strings.HasPrefix(strings.ToLower(name), text) })
}

// isRange reports whether the values follow each other.
func (s cronSet) isRange() bool {
	return s.values[len(s.values)-1]-s.values[0] == len(s.values)-1
}

// evenly is the step of a field such as */15 that divides the whole; 0 for another field.
func (s cronSet) evenly() int {
	if s.step > 1 && (s.top+1)%s.step == 0 {
		return s.step
	}
	return 0
}

const mostClocks = 6 // times of a day that are listed

func timesInWords(minutes, hours cronSet) string {
	if len(minutes.values)*len(hours.values) <= mostClocks {
		var clocks []string
		for _, h := range hours.values {
			for _, m := range minutes.values {
				clocks = append(clocks, fmt.Sprintf("%02d:%02d", h, m))
			}
		}
		return "at " + listed(clocks)
	}
	when := "at " + numbered("minute", minutes)
	switch step := minutes.evenly(); {
	case minutes.all:
		when = "every minute"
	case step > 0:
		when = fmt.Sprintf("every %d minutes", step)
	}
	switch step := hours.evenly(); {
	case hours.all && (minutes.all || minutes.evenly() > 0):
		return when
	case hours.all:
		return when + " of every hour"
	case step > 0:
		return fmt.Sprintf("%s of every %s hour", when, ordinal(step))
	case hours.isRange():
		return fmt.Sprintf("%s from %02d:00 to %02d:59", when, hours.values[0], hours.values[len(hours.values)-1])
	}
	return when + " of the " + strings.TrimPrefix(numbered("hour", hours), "the ")
}

func daysInWords(days, weekdays, hours cronSet) string {
	if !days.wild && !weekdays.wild && (days.all || weekdays.all) { // one of the two is enough
		days.all, weekdays.all = true, true
	}
	onDay := "on " + numbered("day", days) + " of the month"
	onWeekday := in("on", weekdays, cronWeekdays)
	switch {
	case days.all && weekdays.all && (hours.all || hours.evenly() > 0):
		return ""
	case days.all && weekdays.all:
		return "every day"
	case days.all:
		return onWeekday
	case weekdays.all:
		return onDay
	case days.wild || weekdays.wild:
		return onDay + " if it is " + strings.TrimPrefix(onWeekday, "on ")
	}
	return onDay + " and " + onWeekday
}

// in lists values by their names; "" for all values.
func in(word string, s cronSet, names []string) string {
	if s.all {
		return ""
	}
	if len(s.values) > 2 && s.isRange() {
		return word + " " + names[s.values[0]] + " to " + names[s.values[len(s.values)-1]]
	}
	var words []string
	for _, v := range s.values {
		words = append(words, names[v])
	}
	return word + " " + listed(words)
}

// numbered is minute 5, or the minutes 5 and 35, or the days 1 to 7.
func numbered(noun string, s cronSet) string {
	if len(s.values) == 1 {
		return fmt.Sprintf("%s %d", noun, s.values[0])
	}
	if len(s.values) > 2 && s.isRange() {
		return fmt.Sprintf("the %ss %d to %d", noun, s.values[0], s.values[len(s.values)-1])
	}
	var numbers []string
	for _, v := range s.values {
		numbers = append(numbers, strconv.Itoa(v))
	}
	return "the " + noun + "s " + listed(numbers)
}

func listed(words []string) string {
	if n := len(words); n > 1 {
		return strings.Join(words[:n-1], ", ") + " and " + words[n-1]
	}
	return words[0]
}

func ordinal(n int) string {
	switch n {
	case 2:
		return "2nd"
	case 3:
		return "3rd"
	}
	return fmt.Sprintf("%dth", n)
}
