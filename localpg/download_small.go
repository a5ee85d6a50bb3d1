//go:build small

package localpg

import "context"

// download always fails: an archiver, a decompressor and another driver would make
// the small program large, and most machines have a PostgreSQL installed.
func download(context.Context, Config, int) (string, error) { return "", ErrNoDownloader }
