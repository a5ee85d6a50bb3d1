package worker

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"os"
	"strings"
)

// NewName returns a unique name for this process, {host}-{pid}-{8 hex digits}. The host is the first label of the
// host name. The digits are random, so that two processes never share a name.
func NewName() string {
	host, _ := os.Hostname()
	host, _, _ = strings.Cut(host, ".")
	if host == "" || len(host) > 63 { // the longest label in DNS
		host = "host"
	}
	var random [4]byte
	rand.Read(random[:])
	return fmt.Sprintf("%s-%d-%s", host, os.Getpid(), hex.EncodeToString(random[:]))
}
