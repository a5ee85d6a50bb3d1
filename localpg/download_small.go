//go:build small

package localpg

import "context"

// download would cost the small program an archiver, a decompressor and another
// driver, where most machines need none of them.
func download(context.Context, Config, int) (string, error) { return "", ErrNoDownloader }
