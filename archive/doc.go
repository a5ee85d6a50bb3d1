// Package archive keeps the events of a namespace in object storage, for good.
package archive

import (
	_ "github.com/klauspost/compress/zstd"
	_ "gocloud.dev/blob/fileblob"
	_ "gocloud.dev/blob/s3blob"
)
