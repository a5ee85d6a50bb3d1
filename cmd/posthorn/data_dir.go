package main

import (
	"errors"
	"os"
	"os/user"
	"path/filepath"
)

// defaultDataDir is the directory for data by the XDG specification. For root it is one
// that other accounts can reach: Postgres runs under another account, which cannot read
// /root.
func defaultDataDir() (string, error) {
	if data := os.Getenv("XDG_DATA_HOME"); filepath.IsAbs(data) {
		return filepath.Join(data, "posthorn"), nil
	}
	if os.Geteuid() == 0 {
		return "/var/lib/posthorn", nil
	}
	home := os.Getenv("HOME")
	if home == "" {
		if u, err := user.Current(); err == nil {
			home = u.HomeDir
		}
	}
	// The home of a service's account may not exist, for example /nonexistent.
	if info, err := os.Stat(home); err != nil || !info.IsDir() {
		return "", usageError{errors.New("no home directory to keep data in"), "give a directory: --data DIR"}
	}
	return filepath.Join(home, ".local", "share", "posthorn"), nil
}
