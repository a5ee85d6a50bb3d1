package main

import (
	"os"
	"path/filepath"
	"testing"
)

func TestDefaultDataDir(t *testing.T) {
	home := t.TempDir()
	own := filepath.Join(home, ".local", "share", "posthorn")
	if os.Geteuid() == 0 {
		own = "/var/lib/posthorn"
	}
	for _, test := range []struct{ xdg, want string }{
		{"/data", "/data/posthorn"},
		{"", own},
		{"relative", own}, // the specification says to ignore it
	} {
		t.Setenv("HOME", home)
		t.Setenv("XDG_DATA_HOME", test.xdg)
		if got, err := defaultDataDir(); err != nil || got != test.want {
			t.Errorf("XDG_DATA_HOME %q: %q, %v; want %q", test.xdg, got, err, test.want)
		}
	}
}

func TestDefaultDataDirWithoutHome(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Skip("root's does not depend on a home")
	}
	t.Setenv("XDG_DATA_HOME", "")
	t.Setenv("HOME", "/nonexistent")
	if got, err := defaultDataDir(); err == nil {
		t.Errorf("got %q", got)
	}
}
