package op

import (
	"context"
	"fmt"

	"github.com/posthorn/posthorn/admin"
)

var streams = Topic{"streams", "stream", "patients"}

// ListStreamsInput is a page of the streams. Faces that have cursors set After.
type ListStreamsInput struct {
	Namespace
	Paging
	After string
}

var ListStreams = Op[ListStreamsInput, []admin.Stream]{
	About: About{
		Topic: streams, Verb: "list", Scope: Read, SQL: "list_streams",
		Does:    "List streams, by name",
		More:    "Each has its security level and its encryption keys.",
		Example: "posthorn streams list\nposthorn streams list --after orders --limit 20 --json",
		ByHand:  map[Face]string{HTTP: "a cursor has the name after which the page begins", Command: "--limit tells whether there are more"},
	},
	Call: func(ctx context.Context, a *admin.Admin, in *ListStreamsInput) ([]admin.Stream, error) {
		return a.Streams(ctx, admin.StreamFilter{After: in.After, Limit: in.Limit})
	},
}

// StreamDetails is a stream with its keys.
type StreamDetails struct {
	admin.Stream
	Keys []admin.StreamKey `json:"keys"`
}

var GetStream = getNamed(About{
	Topic: streams, SQL: "list_stream_keys", Command: "streams show STREAM",
	Does:    "Show a stream and its keys",
	More:    "A key is shown with its age and its use, and never itself.",
	Example: "posthorn streams show patients",
}, func(a *admin.Admin, ctx context.Context, name string) (d StreamDetails, err error) {
	if d.Stream, err = a.Stream(ctx, name); err != nil {
		return d, err
	}
	keys, err := a.StreamKeys(ctx, name)
	d.Keys = append([]admin.StreamKey{}, keys...)
	return d, err
})

// SetStreamPolicyInput is a whole policy.
type SetStreamPolicyInput struct {
	ByName
	Body struct {
		SecurityLevel string `json:"security_level" flag:"level" enum:"open,restricted,confidential" doc:"Who may read the stream"`
		Keeper        string `json:"kms_key_id,omitempty" flag:"keeper" doc:"The name of the keeper that wraps its keys. Default: the unnamed keeper of each process"`
		RotationDays  int64  `json:"dek_rotation_days,omitempty" flag:"rotation-days" minimum:"1" maximum:"36500" doc:"The age in days at which a key is replaced. Default: each process decides"`
	}
}

var SetStreamPolicy = Op[SetStreamPolicyInput, None]{
	About: About{
		Topic: streams, Verb: "set", Method: "PUT", Name: "set-stream-policy", Go: "SetStreamPolicy", SQL: "set_stream_policy",
		Command: "streams set STREAM --level open|restricted|confidential",
		Does:    "Set who may read a stream, and whether it is encrypted",
		More: "Publishers obey the level at once, and servers within five seconds. Events that were published before stay as " +
			"they are. The input is the whole policy. A token that does not name a restricted or confidential stream sees it no " +
			"more, and cannot set its policy again; posthorn streams set can.",
		Example: "posthorn streams set payroll --level restricted",
		ByHand:  map[Face]string{Command: "--level is required, and its help explains levels and keepers"},
	},
	Call: func(ctx context.Context, a *admin.Admin, in *SetStreamPolicyInput) (None, error) {
		b := in.Body
		return None{}, a.SetStreamPolicy(ctx, in.Name, admin.StreamPolicy{
			SecurityLevel: b.SecurityLevel, Keeper: b.Keeper, RotationDays: int(b.RotationDays),
		})
	},
	Done: func(in *SetStreamPolicyInput, _ None) string {
		return fmt.Sprintf("stream %s is %s", in.Name, in.Body.SecurityLevel)
	},
}

var RotateStreamKey = onNamed(About{
	Topic: streams, Verb: "rotate", Name: "rotate-stream-key", Go: "RotateStreamKey", SQL: "rotate_stream_key", Command: "streams rotate STREAM",
	Does: "Give a confidential stream a new key",
	More: "The publisher of the next message makes it. Running publishers change to it within minutes, when they read the " +
		"keys again. Payloads that were sealed with older keys stay readable.",
	Example: "posthorn streams rotate patients",
}, (*admin.Admin).RotateStreamKey, "stream %s gets a new key with its next message")

// ShredStreamKeysInput says which keys are destroyed.
type ShredStreamKeysInput struct {
	ByName
	Body struct {
		UpTo int64 `json:"up_to,omitempty" flag:"up-to" minimum:"1" doc:"Only keys up to this version. Default: all"`
	}
}

// Destroyed is the number of keys that were destroyed.
type Destroyed struct {
	Destroyed int64 `json:"destroyed" doc:"How many keys were destroyed"`
}

const forGood = "no archive or backup of the events brings them back, so it takes somebody with access to the database"

var ShredStreamKeys = Op[ShredStreamKeysInput, Destroyed]{
	About: About{
		Topic: streams, Verb: "shred", Name: "shred-stream-keys", Go: "ShredStreamKeys", SQL: "shred_stream_keys", Command: "streams shred STREAM",
		Does:    "Destroy keys of a stream: payloads sealed with them are unreadable for good",
		More:    "The events stay in the log, with their types and keys. New messages get a new key.",
		Example: "posthorn streams shred patients --up-to 3 --yes",
		ByHand:  map[Face]string{Command: "its help explains what is lost"},
		Without: map[Face]string{HTTP: forGood, Page: forGood},
	},
	Call: func(ctx context.Context, a *admin.Admin, in *ShredStreamKeysInput) (Destroyed, error) {
		n, err := a.ShredStreamKeys(ctx, in.Name, int(in.Body.UpTo))
		return Destroyed{n}, err
	},
	Ask: func(_ context.Context, _ *admin.Admin, in *ShredStreamKeysInput) (string, error) {
		question := "make everything that is sealed in stream " + in.Name
		if in.Body.UpTo > 0 {
			question += fmt.Sprintf(" with keys up to %d", in.Body.UpTo)
		}
		return question + " unreadable for good", nil
	},
	Done: func(_ *ShredStreamKeysInput, out Destroyed) string {
		return "destroyed " + Counted(out.Destroyed, "key")
	},
}
