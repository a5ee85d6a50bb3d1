package server

import (
	"encoding/json"
	"net/http"
	"reflect"
	"strings"
	"sync"

	"github.com/danielgtaylor/huma/v2"
)

// apiConfig leaves out huma's own documentation pages, which load scripts from other
// hosts.
func apiConfig(version, base string) huma.Config {
	return huma.Config{
		OpenAPI: &huma.OpenAPI{
			OpenAPI: "3.1.0",
			Info: &huma.Info{
				Title: "Posthorn", Version: version,
				Description: "Events, groups, jobs and schedules over HTTP.",
				License:     &huma.License{Name: "Apache-2.0", Identifier: "Apache-2.0"},
			},
			Servers: []*huma.Server{{URL: base, Description: "The server that this document was loaded from"}},
			Tags:    documentTags,
			Components: &huma.Components{
				Schemas: huma.NewMapRegistry("#/components/schemas/", schemaName),
				SecuritySchemes: map[string]*huma.SecurityScheme{
					"token": {Type: "http", Scheme: "bearer", Description: "An API token. Needed if the server requires tokens."},
				},
			},
		},
		Formats:                      formats,
		DefaultFormat:                "application/json",
		RejectUnknownQueryParameters: true, // if a misspelt filter were ignored, a search would find every event
		Transformers:                 []huma.Transformer{convertHumaError},
	}
}

// documentTags group the operations, in the order of /docs.
var documentTags = []*huma.Tag{
	{Name: "events", Description: "The log: publish, read and search events."},
	{Name: "groups", Description: "Consumers of the log: each group has a position and leases on events."},
	{Name: "subscriptions", Description: "Filters of a group."},
	{Name: "dead letters", Description: "Events that failed for good."},
	{Name: "webhooks", Description: "Endpoints that events are sent to."},
	{Name: "jobs", Description: "Units of work, each for one worker."},
	{Name: "stuck jobs", Description: "Jobs that do not go on by themselves, with why and since when."},
	{Name: "job limits", Description: "Tags of jobs that are paused, or of which only some may run."},
	{Name: "job tags", Description: "Tags of jobs, with those that wait and run now."},
	{Name: "jobs, compatible", Description: "The compatible spelling of jobs, under /events: answers of workers' reports call the id of a job event_id, and a list is called events."},
	{Name: "schedules", Description: "Cron expressions that publish events."},
	{Name: "projections", Description: "Tables that are computed from the log."},
	{Name: "relays", Description: "Write the log to brokers."},
	{Name: "imports", Description: "Read brokers into the log."},
	{Name: "failovers", Description: "What failovers, crashes and restores of the database have lost."},
	{Name: "archives", Description: "Keep the log in object storage."},
	{Name: "streams", Description: "Named parts of the log, and their policies."},
	{Name: "nodes", Description: "Processes that are registered."},
	{Name: "busy workers", Description: "Jobs and leases that workers have."},
	{Name: "tokens", Description: "Keys to this API, each with rights of its own."},
	{Name: "namespaces", Description: "Separate logs in one database, such as one for each tenant."},
	{Name: "server", Description: "Health and metrics of this server."},
}

// formats has "json" because huma looks up application/problem+json by its suffix.
var formats = map[string]huma.Format{
	"application/json": huma.DefaultJSONFormat,
	"json":             huma.DefaultJSONFormat,
}

// openAPI serves the document. It is encoded at the first request, when all
// operations are registered.
func (s *Server) openAPI() {
	document := sync.OnceValues(func() ([]byte, error) {
		all := s.api.OpenAPI()
		delete(all.Components.Schemas.Map(), "ErrorModel") // huma's own errors, which convertHumaError replaces
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

// schemaName is the name of a type, without the suffix View.
func schemaName(t reflect.Type, hint string) string {
	return strings.TrimSuffix(huma.DefaultSchemaNamer(t, hint), "View")
}

// schemaOf returns a reference to the schema of a type.
func schemaOf[T any](s *Server) *huma.Schema {
	return s.api.OpenAPI().Components.Schemas.Schema(reflect.TypeFor[T](), true, "")
}

func jsonContent[T any](s *Server) map[string]*huma.MediaType {
	return map[string]*huma.MediaType{"application/json": {Schema: schemaOf[T](s)}}
}

func jsonBody[T any](s *Server) *huma.RequestBody {
	return &huma.RequestBody{Required: true, Content: jsonContent[T](s)}
}

func jsonResponse[T any](s *Server, description string) *huma.Response {
	return &huma.Response{Description: description, Content: jsonContent[T](s)}
}
