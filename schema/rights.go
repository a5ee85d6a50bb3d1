package schema

import (
	"slices"
	"strings"
	"unicode"
)

// RolesFor returns the roles of Posthorn that may execute a function of schema posthorn, or
// read a table or view of it: those with the fewest rights. Kind is function, table or view.
// It returns none if only the owner may, or if Posthorn has no such object.
func RolesFor(kind, name string) (roles []string) {
	if embedded().objects()[[2]string{kind, name}] == 0 {
		return nil
	}
	if kind == "function" {
		if isListed("publishing constant text[] := array", name) {
			roles = append(roles, "posthorn_publisher")
		}
		if isListed("consuming constant text[] := array", name) {
			roles = append(roles, "posthorn_consumer")
		}
		if roles == nil && isListed("administering constant text[] := array", name) {
			roles = []string{"posthorn_admin"}
		}
		return roles
	}
	switch {
	case isListed("if kind in ('consumer', 'admin') then", name):
		return []string{"posthorn_consumer"}
	case !isListed("'revoke select on", name):
		return []string{"posthorn_admin"}
	}
	return nil
}

// isListed tells whether grant_role has a name in the list that follows a text, up to a
// semicolon. So rights are listed once.
func isListed(beginning, name string) bool {
	text, err := files.ReadFile("functions/admin/roles.sql")
	if err != nil {
		panic(err) // it is embedded
	}
	_, list, _ := strings.Cut(string(text), beginning)
	list, _, _ = strings.Cut(list, ";")
	return slices.Contains(strings.FieldsFunc(list, func(r rune) bool { return r != '_' && !unicode.IsLetter(r) && !unicode.IsDigit(r) }), name)
}
