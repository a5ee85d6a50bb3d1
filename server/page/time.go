package page

import "time"

// timeForms are those in which a browser sends a time. Without the script it has no
// zone, and is UTC.
var timeForms = []string{time.RFC3339Nano, "2006-01-02T15:04:05", "2006-01-02T15:04", "2006-01-02"}

// Time returns a parameter that is a time, the zero time if it is not given.
func (r *Request) Time(name string) (time.Time, error) {
	value := r.Value(name)
	if value == "" {
		return time.Time{}, nil
	}
	for _, form := range timeForms {
		if t, err := time.Parse(form, value); err == nil {
			return t.UTC(), nil
		}
	}
	return time.Time{}, invalid(name+" is no time: "+value, "It looks like 2026-01-31T12:00:00Z.")
}

// TimeField is the value of a field for a time, as browsers want it.
func (r *Request) TimeField(name string) string {
	t, err := r.Time(name)
	if err != nil || t.IsZero() {
		return ""
	}
	return t.Format("2006-01-02T15:04:05")
}

// TimeUTC is the same for the script, which shows it in the zone of the person.
func (r *Request) TimeUTC(name string) string {
	t, err := r.Time(name)
	if err != nil || t.IsZero() {
		return ""
	}
	return t.Format(time.RFC3339)
}
