package server

import (
	"encoding/json"
	"net/http"
	"reflect"
	"strings"
	"sync"

	"github.com/danielgtaylor/huma/v2"
)

// apiConfig has none of huma's own pages: they load scripts from elsewhere.
func apiConfig(version string) huma.Config {
	return huma.Config{
		OpenAPI: &huma.OpenAPI{
			OpenAPI: "3.1.0",
			Info: &huma.Info{
				Title: "Posthorn", Version: version,
				Description: "Events, groups, schedules and more, over HTTP.",
				License:     &huma.License{Name: "Apache-2.0", Identifier: "Apache-2.0"},
			},
			Servers: []*huma.Server{{URL: "/", Description: "The server that this document is from"}},
			Tags:    documentTags,
			Components: &huma.Components{
				Schemas: huma.NewMapRegistry("#/components/schemas/", schemaName),
				SecuritySchemes: map[string]*huma.SecurityScheme{
					"token": {Type: "http", Scheme: "bearer", Description: "Needed where the server requires tokens."},
				},
			},
		},
		Formats:                      formats,
		DefaultFormat:                "application/json",
		RejectUnknownQueryParameters: true, // a filter that is misspelt must not find everything
		Transformers:                 []huma.Transformer{asProblem},
	}
}

// documentTags are the groups of operations, in the order in which /docs lists them.
var documentTags = []*huma.Tag{
	{Name: "events", Description: "The log: publish, read, search and follow it."},
	{Name: "groups", Description: "Named positions in the log, and the leases on their events."},
	{Name: "subscriptions", Description: "Filters inside a group."},
	{Name: "dead letters", Description: "Events that failed for good."},
	{Name: "jobs", Description: "Units of work, each for one worker."},
	{Name: "schedules", Description: "Cron expressions that publish events."},
	{Name: "projections", Description: "Tables that are kept from the log."},
	{Name: "streams", Description: "Channels of events, and their policies."},
	{Name: "nodes", Description: "Processes that have registered."},
	{Name: "namespaces", Description: "Tenants."},
	{Name: "server", Description: "Health and metrics of this server."},
}

// formats: problems are "json", by what follows the plus.
var formats = map[string]huma.Format{
	"application/json": huma.DefaultJSONFormat,
	"json":             huma.DefaultJSONFormat,
}

// openAPI serves the document of all that is registered when it is first asked
// for.
func (s *Server) openAPI() {
	document := sync.OnceValues(func() ([]byte, error) {
		all := s.api.OpenAPI()
		delete(all.Components.Schemas.Map(), "ErrorModel") // huma's own errors, which we replace
		delete(all.Components.Schemas.Map(), "ErrorDetail")
		return json.Marshal(all)
	})
	s.mux.HandleFunc("GET /openapi.json", s.requireRaw(scopeNone, func(w http.ResponseWriter, _ *http.Request, _ caller) error {
		raw, err := document()
		if err != nil {
			return err
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(raw)
		return nil
	}))
}

// schemaName names schemas without the suffixes that our types have.
func schemaName(t reflect.Type, hint string) string {
	name := huma.DefaultSchemaNamer(t, hint)
	return strings.TrimSuffix(name, "View")
}
