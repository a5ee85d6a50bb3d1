package op

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/posthorn/posthorn/admin"
	"github.com/posthorn/posthorn/internal/pg"
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

// KeepNamespaceInput says that the others go.
type KeepNamespaceInput struct {
	ByName
	Body KeepNamespaceBody
}

// KeepNamespaceBody confirms that all other namespaces go.
type KeepNamespaceBody struct {
	Only bool `json:"only" flag:"only" doc:"Needed: all other namespaces are deleted"`
}

// Check reports an input that does not say it.
func (in *KeepNamespaceInput) Check() error {
	if in.Body.Only {
		return nil
	}
	return pg.Invalid("keep a namespace as the only one", `Say so with the field only: all other namespaces are deleted.`)
}

// KeptNamespace is a namespace that has moved.
type KeptNamespace struct {
	Left []string `json:"left" doc:"The namespaces that are still to be deleted"`
}

var KeepNamespace = Op[KeepNamespaceInput, KeptNamespace]{
	About: About{
		Topic: namespaces, Verb: "keep", Wakes: true, Command: "namespaces keep NAME --only",
		Does: "Open a namespace where it has moved to, and close all others there for good",
		More: "For the promoted standby of a database in which the namespace was closed. The others are to be deleted there then, each " +
			"in parts; what is in the namespace default goes as well, and default itself stays. It is refused in the database in which the " +
			"namespace was closed, and in a standby that was promoted before the close had reached it. A second call says which " +
			"ones are left.",
		Example: "posthorn namespaces keep shop --only\nposthorn namespaces keep shop --only --yes --json",
		ByHand:  map[Face]string{Command: "it goes on until the others are deleted, and shows its progress"},
		Without: map[Face]string{Page: "it is a step of a move, whose other steps are commands"},
	},
	Call: func(ctx context.Context, a *admin.Admin, in *KeepNamespaceInput) (KeptNamespace, error) {
		if err := in.Check(); err != nil {
			return KeptNamespace{}, err
		}
		left, err := a.KeepNamespace(ctx, in.Name)
		return KeptNamespace{append([]string{}, left...)}, err
	},
	Ask: func(ctx context.Context, a *admin.Admin, in *KeepNamespaceInput) (string, error) {
		all, err := a.Namespaces(ctx)
		others := 0
		for _, n := range all {
			if n.Name != in.Name && n.Name != "default" {
				others++
			}
		}
		return fmt.Sprintf("keep namespace %s, and delete %s and what is in default, for good", in.Name, Counted(int64(others), "other namespace")), err
	},
	Done: func(in *KeepNamespaceInput, out KeptNamespace) string {
		if len(out.Left) == 0 {
			return "namespace " + in.Name + " is open, and the only one"
		}
		return fmt.Sprintf("namespace %s is open; to be deleted: %s", in.Name, strings.Join(out.Left, ", "))
	},
}

// deletionTime is about how long a request deletes parts of a namespace.
const deletionTime = 5 * time.Second

var DeleteNamespace = Op[ByName, admin.DeletedPart]{
	About: About{
		Topic: namespaces, Verb: "delete",
		Does: "Delete a closed namespace with everything in it",
		More: "Its events, groups, jobs, schedules, webhooks, tokens and all else go, in parts of about ten thousand rows. After the first part it " +
			"cannot be opened any more. A process that is killed meanwhile may leave the rest to a second call. A request deletes for some " +
			"seconds: repeat it until done is true.",
		Example: "posthorn namespaces delete shop\nposthorn namespaces delete shop --yes --json",
		ByHand:  map[Face]string{Command: "it goes on until all is deleted, and shows its progress"},
	},
	Call: func(ctx context.Context, a *admin.Admin, in *ByName) (all admin.DeletedPart, err error) {
		for end := time.Now().Add(deletionTime); !all.Done && time.Now().Before(end); {
			part, err := a.DeleteNamespace(ctx, in.Name)
			if err != nil {
				return all, err
			}
			all = admin.DeletedPart{Part: part.Part, Rows: all.Rows + part.Rows, Done: part.Done}
		}
		return all, nil
	},
	Ask: func(_ context.Context, _ *admin.Admin, in *ByName) (string, error) {
		return "delete namespace " + in.Name + " with its events, jobs and everything else, for good", nil
	},
	Done: func(in *ByName, out admin.DeletedPart) string {
		if !out.Done {
			return fmt.Sprintf("%s of namespace %s are deleted, and more is left: it is at %s", Counted(out.Rows, "row"), in.Name, out.Part)
		}
		return fmt.Sprintf("namespace %s is deleted, with %s", in.Name, Counted(out.Rows, "row"))
	},
}
