package page

// Mount says which of several databases a page shows. The zero value is the page of a server that has one database.
type Mount struct {
	Name string   // of the database
	All  []string // the names of all databases of the server
}

// below begins the paths of a database.
const below = "/d/"

// Base begins every path of the database; "" if the server has one.
func (m Mount) Base() string {
	if m.Name == "" {
		return ""
	}
	return below + m.Name
}

// home is the overview of the database, in the namespace of the caller.
func (m Mount) home() string { return m.Base() + "/" }

// cookie is the name of a cookie of this database: browsers send a cookie to all databases of a host, and a token is one of
// a single database.
func (m Mount) cookie(name string) string {
	if m.Name == "" {
		return name
	}
	return name + "_" + m.Name
}
