// Package in has what the inputs of operations share. Huma looks only into
// embedded types that are exported, and nobody else needs to see these.
package in

// Namespace is part of each input. What it says reaches handlers as the
// caller's namespace.
type Namespace struct {
	Namespace string `query:"namespace" maxLength:"100" doc:"The namespace. Default: the token's, or the server's"`
}

// Page is part of each input that asks for a page.
type Page struct {
	Limit  int    `query:"limit" minimum:"1" maximum:"1000" default:"100" doc:"How many at most"`
	Cursor string `query:"cursor" maxLength:"500" doc:"Where to go on: next of the page before"`
}
