//go:build azure

package archive

import _ "gocloud.dev/blob/azureblob" // azblob://
