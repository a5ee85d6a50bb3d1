package op

import (
	"context"
	"encoding/json"

	"github.com/posthorn/posthorn/admin"
)

var namespaces = Topic{"namespaces", "namespace", "shop"}

var ListNamespaces = listAll(About{
	Topic:   namespaces,
	Does:    "List namespaces",
	More:    "Each has its metadata. A token that is valid in one namespace sees only that one.",
	Example: "posthorn namespaces list --json",
}, (*admin.Admin).Namespaces)

// NamespaceInput is a whole namespace. A body that is left out has no metadata.
type NamespaceInput struct {
	ByName
	Body *NamespaceInputBody
}

// NamespaceInputBody is a namespace without its name.
type NamespaceInputBody struct {
	Metadata map[string]json.RawMessage `json:"metadata,omitempty" flag:"metadata" doc:"A JSON object that says what the namespace is for. Default: {}"`
}

// document is the metadata as package admin takes it.
func (in *NamespaceInput) document() (json.RawMessage, error) {
	if in.Body == nil || in.Body.Metadata == nil {
		return nil, nil
	}
	return json.Marshal(in.Body.Metadata)
}

var DefineNamespace = Op[NamespaceInput, None]{
	About: About{
		Topic: namespaces, Verb: "define", Method: "PUT", Go: "DefineNamespaceNamed",
		Does: "Make a namespace, or replace its metadata",
		More: "Without metadata an existing namespace loses its metadata. A name has up to 31 characters: a lower-case letter, " +
			"then lower-case letters, digits, _ or -.",
		Example: "posthorn namespaces define shop\nposthorn namespaces define shop --metadata '{\"team\": \"sales\"}'",
	},
	Call: func(ctx context.Context, a *admin.Admin, in *NamespaceInput) (None, error) {
		metadata, err := in.document()
		if err != nil {
			return None{}, err
		}
		return None{}, a.DefineNamespaceNamed(ctx, in.Name, metadata)
	},
	Load: loadNamespace,
	Done: func(in *NamespaceInput, _ None) string { return "namespace " + in.Name + " is defined" },
}

func loadNamespace(ctx context.Context, a *admin.Admin, in *NamespaceInput) error {
	all, err := a.Namespaces(ctx)
	in.Body = new(NamespaceInputBody)
	for _, n := range all {
		if n.Name == in.Name && err == nil {
			err = json.Unmarshal(n.Metadata, &in.Body.Metadata)
		}
	}
	return err
}
