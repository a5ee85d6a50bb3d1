//go:build gcp

package main

import _ "gocloud.dev/secrets/gcpkms" // gcpkms://
