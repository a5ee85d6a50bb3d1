// Package seal encrypts payloads before they leave the process.
//
//	keeper, err := keeper.Open(ctx, "file:///etc/posthorn/seal.key")
//	sealer := seal.NewSealer(keys, seal.Keepers{"": keeper}, seal.Config{})
//	sealed, err := sealer.Seal(ctx, seal.Stream{Namespace: "shop", Name: "patients"}, payload)
//	payload, err = sealer.Open(ctx, seal.Stream{Namespace: "shop", Name: "patients"}, sealed)
//
// Each stream has data keys of its own, numbered from 1. They are kept in a store
// ([Keys]), wrapped by a [Keeper]: a key management service, or a local key file
// (package keeper opens either by URL). A [Sealer] makes a new one when the last is
// too old or has sealed too much; an [Opener] opens what any of them sealed, for as
// long as the store has the key. Deleting a stream's keys from the store makes
// what they sealed unreadable.
//
// What is sealed is a JSON object with one member, so it goes where a payload goes.
// It belongs to its stream and key: it does not open as another stream's.
// docs/sealing.md specifies the format, which stays readable for good, and says
// what is promised and what is not.
//
// The package knows nothing of Posthorn, databases or key services, and needs the
// standard library only.
package seal
