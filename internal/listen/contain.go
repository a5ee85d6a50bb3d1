package listen

import (
	"cmp"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
)

// contains reports whether one document contains another, as jsonb's @> does. An
// array contains a scalar that is one of its elements, but only here, at the top
// level.
func contains(have, want any) bool {
	if list, ok := have.([]any); ok && !isDocument(want) {
		return slices.ContainsFunc(list, func(one any) bool { return same(one, want) })
	}
	return holds(have, want)
}

// holds reports whether have has every field and element of want, at the same
// level. The order and the number of equal elements of an array do not count.
func holds(have, want any) bool {
	switch want := want.(type) {
	case map[string]any:
		have, ok := have.(map[string]any)
		for name, value := range want {
			if !ok {
				return false
			}
			found, exists := have[name]
			ok = exists && holds(found, value)
		}
		return ok
	case []any:
		have, ok := have.([]any)
		for _, value := range want {
			if !ok {
				return false
			}
			ok = slices.ContainsFunc(have, func(one any) bool { return holds(one, value) })
		}
		return ok
	}
	return same(have, want)
}

func isDocument(value any) bool {
	switch value.(type) {
	case map[string]any, []any:
		return true
	}
	return false
}

// same compares scalars. Numbers are equal if their values are, in any notation and
// of any size.
func same(a, b any) bool {
	if isDocument(a) || isDocument(b) {
		return false
	}
	if a, ok := a.(json.Number); ok {
		b, ok := b.(json.Number)
		return ok && (a == b || decimalOf(a) == decimalOf(b))
	}
	return a == b
}

// decimal is a number as 0.digits × 10^exponent, without zeros at the ends.
type decimal struct {
	negative bool
	digits   string
	exponent int
}

func decimalOf(number json.Number) decimal {
	text, negative := strings.CutPrefix(string(number), "-")
	mantissa, exponent, _ := strings.Cut(strings.ToLower(text), "e")
	whole, fraction, _ := strings.Cut(mantissa, ".")
	shift, err := strconv.Atoi(cmp.Or(exponent, "0"))
	if err != nil {
		return decimal{digits: string(number)} // equal only to the same text
	}
	digits := strings.TrimLeft(whole+fraction, "0")
	d := decimal{negative, strings.TrimRight(digits, "0"), len(whole) + shift - (len(whole+fraction) - len(digits))}
	if d.digits == "" {
		return decimal{}
	}
	return d
}
