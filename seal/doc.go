// Package seal encrypts payloads before they leave the process.
//
//	keeper, err := keeper.Open(ctx, "file:///etc/posthorn/seal.key")
//	sealer := seal.NewSealer(keys, seal.Keepers{"": keeper}, seal.Config{})
//	sealed, err := sealer.Seal(ctx, seal.Stream{Namespace: "shop", Name: "patients"}, payload)
//	payload, err = sealer.Open(ctx, seal.Stream{Namespace: "shop", Name: "patients"}, sealed)
//
// Each stream has its own data keys, with versions from 1. A store ([Keys]) holds
// them, wrapped by a [Keeper]: a key management service, or a local key file (package
// keeper opens either by URL). A [Sealer] makes a new key when the newest is too old
// or has sealed too many messages. An [Opener] opens the payloads of all versions in
// the store. Deleting a stream's keys from the store makes its payloads unreadable.
//
// A sealed payload is a JSON object with one member, so it can be stored wherever a
// payload can. It is bound to its stream and key: it does not open as a payload of
// another stream. docs/sealing.md specifies the format, which later versions will
// always read, and the guarantees.
//
// The package does not depend on Posthorn, databases or key services, only on the
// standard library.
package seal
