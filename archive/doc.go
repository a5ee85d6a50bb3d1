// Package archive keeps the events of a namespace in object storage, for good:
// an [Archiver] writes them, and they can be verified, replayed and restored from
// there without the database that wrote them.
//
// It owns the format of the objects in the store, which docs/archive.md describes. The
// database decides which events belong to an object, before the object is written, so
// that writing it again after a crash is harmless.
//
// [Open] supports S3 and files, and with the build tags gcs and azure also those.
package archive
