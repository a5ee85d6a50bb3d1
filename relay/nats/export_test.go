package nats

// OpenSource is what posthorn.From finds by the scheme.
var OpenSource = openSource
