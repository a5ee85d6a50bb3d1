// Package archive keeps the events of a namespace in object storage, for good:
// an [Archiver] writes them, and they can be verified, replayed and restored from
// there without the database that wrote them.
//
// It owns the format of what is in the store, which docs/archive.md describes. It
// does not decide which events are one object: the database does, before
// anything is written, so that writing again after a crash is harmless.
//
// [Open] knows S3 and files; with the build tags gcs and azure also those.
package archive
