package page

import (
	"fmt"
	"html/template"
	"math"
	"reflect"
	"strconv"
	"time"
)

// count is a number for people: 1,204.
func count(value any) string {
	var digits string
	switch v := reflect.ValueOf(value); {
	case v.Kind() == reflect.Pointer && v.IsNil():
		return "–"
	case v.Kind() == reflect.Pointer:
		return count(v.Elem().Interface())
	case v.CanInt():
		digits = strconv.FormatInt(v.Int(), 10)
	case v.CanUint():
		digits = strconv.FormatUint(v.Uint(), 10)
	default:
		digits = strconv.FormatFloat(math.Round(v.Float()), 'f', 0, 64)
	}
	sign := ""
	if digits[0] == '-' {
		sign, digits = "-", digits[1:]
	}
	grouped := ""
	for len(digits) > 3 {
		grouped = "," + digits[len(digits)-3:] + grouped
		digits = digits[:len(digits)-3]
	}
	return sign + digits + grouped
}

// things is a number of things: 1 event, 1,204 events.
func things(n any, noun string) string {
	text := count(n)
	if text == "1" {
		return text + " " + noun
	}
	return text + " " + noun + "s"
}

// leastRate is the least number per second that is written out.
const leastRate = 0.095

// rate is a number per second.
func rate(perSecond float64) string {
	switch {
	case perSecond == 0:
		return "0"
	case perSecond < leastRate:
		return "< 0.1"
	case perSecond < 10:
		return strconv.FormatFloat(perSecond, 'f', 1, 64)
	}
	return count(perSecond)
}

// period is a number of seconds in words.
func period(seconds float64) string {
	switch {
	case seconds < 0.05:
		return "0 s"
	case seconds < 10:
		return strconv.FormatFloat(seconds, 'f', 1, 64) + " s"
	case seconds < 120:
		return fmt.Sprintf("%.0f s", seconds)
	case seconds < 2*3600:
		return fmt.Sprintf("%.0f min", seconds/60)
	case seconds < 48*3600:
		return fmt.Sprintf("%.0f h", seconds/3600)
	}
	return fmt.Sprintf("%s days", count(seconds/86400))
}

// size is a number of bytes.
func size(bytes int64) string {
	units := []string{"bytes", "KB", "MB", "GB", "TB"}
	n, unit := float64(bytes), 0
	for n >= 1000 && unit < len(units)-1 {
		n, unit = n/1000, unit+1
	}
	if unit == 0 {
		return count(bytes) + " bytes"
	}
	return strconv.FormatFloat(n, 'f', 1, 64) + " " + units[unit]
}

// at is a time. The script shows it in the zone of the person.
func at(t time.Time) template.HTML { return timeElement(t, "at") }

// ago is a time as it is in lists: the script writes 3 min ago, or in 4 min, and shows the time itself on hover.
func ago(t time.Time) template.HTML { return timeElement(t, "ago") }

// lasting is how long something has lasted that began at a time: the script writes 3m.
func lasting(t time.Time) template.HTML { return timeElement(t, "for") }

func timeElement(t time.Time, kind string) template.HTML {
	if t.IsZero() {
		return "–"
	}
	t = t.UTC()
	return template.HTML(fmt.Sprintf(`<time datetime="%s" data-time="%s">%s</time>`,
		t.Format(time.RFC3339Nano), kind, t.Format("2006-01-02 15:04:05 UTC")))
}

// shareOf is a part of a whole: 25%.
func shareOf(part float64) string { return percent(math.Round(100 * part)) }
