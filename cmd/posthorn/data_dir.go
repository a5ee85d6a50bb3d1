package main

import (
	"errors"
	"os"
	"os/user"
	"path/filepath"
)

// defaultDataDir is where the XDG specification puts data. For root it is a
// place that others can reach, since Postgres does not run as root, and /root is
// closed to the account that it runs as.
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
	// Accounts of services have a home that does not exist, such as /nonexistent.
	if info, err := os.Stat(home); err != nil || !info.IsDir() {
		return "", usageError{errors.New("no home directory to keep data in"), "say where: --data DIR"}
	}
	return filepath.Join(home, ".local", "share", "posthorn"), nil
}
