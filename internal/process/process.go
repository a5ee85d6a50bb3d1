// Package process names the process it is in.
package process

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"os"
	"strings"
)

// NewName is {host}-{pid}-{8 hex}, with the host short. No two are alike.
func NewName() string {
	host, _ := os.Hostname()
	host, _, _ = strings.Cut(host, ".")
	if host == "" || len(host) > 63 { // the longest that DNS knows
		host = "host"
	}
	var chance [4]byte
	rand.Read(chance[:])
	return fmt.Sprintf("%s-%d-%s", host, os.Getpid(), hex.EncodeToString(chance[:]))
}
