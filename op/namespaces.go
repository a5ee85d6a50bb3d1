package op

import (
	"context"
	"encoding/json"
	"time"

	"github.com/posthorn/posthorn/admin"
)

var namespaces = Topic{"namespaces", "namespace", "shop"}

var ListNamespaces = listAll(About{
	Topic:   namespaces,
	Does:    "List namespaces",
	More:    "Each has its metadata, and of one that is closed since when it is and where it goes on. A token that is valid in one namespace sees only that one.",
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

// CloseNamespaceInput says where a namespace goes on.
type CloseNamespaceInput struct {
	ByName
	Body *CloseNamespaceBody
}

// CloseNamespaceBody is how a namespace is closed.
type CloseNamespaceBody struct {
	MovedTo     string `json:"moved_to,omitempty" flag:"moved-to" maxLength:"255" doc:"The database where it goes on, as refused programs read it"`
	WaitSeconds int64  `json:"wait_seconds,omitempty" flag:"wait-seconds" minimum:"1" maximum:"20" doc:"How long to wait for transactions from before; a further call waits again. Default: 10"`
}

func (in *CloseNamespaceInput) movedTo() string {
	if in.Body == nil {
		return ""
	}
	return in.Body.MovedTo
}

func (in *CloseNamespaceInput) patience() time.Duration {
	if in.Body == nil || in.Body.WaitSeconds == 0 {
		return 10 * time.Second
	}
	return time.Duration(in.Body.WaitSeconds) * time.Second
}

var CloseNamespace = Op[CloseNamespaceInput, None]{
	About: About{
		Topic: namespaces, Verb: "close",
		Does: "Close a namespace that moves to another database",
		More: "From then on every publish, enqueue and claim of it is refused, with the new place in the error; leases and jobs that " +
			"workers have may be settled and completed, and reading goes on. It succeeds when no transaction from before can still " +
			"write to the namespace. Until then it waits; at the end of its patience it fails, the namespace stays closed, and it may be " +
			"called again.",
		Example: "posthorn namespaces close shop --moved-to db2",
	},
	Call: func(ctx context.Context, a *admin.Admin, in *CloseNamespaceInput) (None, error) {
		return None{}, a.CloseNamespace(ctx, in.Name, in.movedTo(), in.patience())
	},
	Done: func(in *CloseNamespaceInput, _ None) string {
		return "namespace " + in.Name + " is closed, and nothing from before can write to it"
	},
}

var OpenNamespace = onNamed(About{
	Topic: namespaces, Verb: "open", Wakes: true,
	Does: "Open a namespace that was closed",
	More: "It takes close back: publishers and workers go on. Also for the copy of a namespace in the database that it has moved to. " +
		"A namespace that is open stays so.",
}, (*admin.Admin).OpenNamespace, "namespace %s is open")
