//go:build !linux

package pg

import "syscall"

// limitSilence does nothing: keepalive alone finds hosts that are gone.
func limitSilence(string, string, syscall.RawConn) error { return nil }
