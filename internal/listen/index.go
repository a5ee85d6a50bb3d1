package listen

import "slices"

// index finds the filters that an event may pass. Each filter is indexed by its
// most selective field: by its keys, else by its types, else by its streams; types
// and streams count only if none is a pattern. Filters without such a field are
// checked against every event.
type index struct {
	byName                  map[string]*entry
	byKey, byType, byStream map[string][]*entry
	rest                    []*entry
}

// entry is a filter with its listeners.
type entry struct {
	*Matcher
	listeners []*Listener
}

func newIndex() *index {
	return &index{
		byName: map[string]*entry{}, byKey: map[string][]*entry{}, byType: map[string][]*entry{}, byStream: map[string][]*entry{},
	}
}

// place returns the map that a filter is indexed in, and its names there. The map is
// nil for a filter that belongs to the rest.
func (x *index) place(m *Matcher) (where map[string][]*entry, names []string) {
	switch {
	case len(m.keys) > 0:
		return x.byKey, m.keys
	case exact(m.types):
		return x.byType, m.types
	case exact(m.streams):
		return x.byStream, m.streams
	}
	return nil, nil
}

// exact reports whether there are patterns, and none has a wildcard.
func exact(patterns []string) bool {
	return len(patterns) > 0 && !slices.ContainsFunc(patterns, hasWildcard)
}

// hasWildcard reports whether a pattern matches names other than itself.
func hasWildcard(pattern string) bool {
	for i := range len(pattern) {
		if pattern[i] == '*' || pattern[i] == '>' {
			return true // in a valid pattern a wildcard is a whole part
		}
	}
	return false
}

func (x *index) add(l *Listener) {
	e := x.byName[l.filter.name]
	if e == nil {
		e = &entry{Matcher: l.filter}
		x.byName[e.name] = e
		where, names := x.place(e.Matcher)
		for _, name := range names {
			where[name] = append(where[name], e)
		}
		if where == nil {
			x.rest = append(x.rest, e)
		}
	}
	l.entry = e
	e.listeners = append(e.listeners, l)
}

func (x *index) remove(l *Listener) {
	e := l.entry
	if e == nil {
		return
	}
	l.entry = nil
	e.listeners = without(e.listeners, l)
	if len(e.listeners) > 0 {
		return
	}
	delete(x.byName, e.name)
	where, names := x.place(e.Matcher)
	for _, name := range names {
		if where[name] = without(where[name], e); len(where[name]) == 0 {
			delete(where, name)
		}
	}
	if where == nil {
		x.rest = without(x.rest, e)
	}
}

// without removes a value; the order of the others may change.
func without[T comparable](list []T, value T) []T {
	i := slices.Index(list, value)
	last := len(list) - 1
	list[i] = list[last]
	var none T
	list[last] = none
	return list[:last]
}

// find calls a function with each filter that an event passes.
func (x *index) find(s *subject, found func(*entry)) {
	for _, some := range [][]*entry{x.byKey[s.Key], x.byType[s.Type], x.byStream[s.Stream], x.rest} {
		for _, e := range some {
			if e.passes(s) {
				found(e)
			}
		}
	}
}

func (x *index) isEmpty() bool { return len(x.byName) == 0 }
