//go:build gcs

package archive

import _ "gocloud.dev/blob/gcsblob" // gs://
