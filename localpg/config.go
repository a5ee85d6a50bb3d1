package localpg

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Config describes the server to run. Only Dir is required.
type Config struct {
	// Dir is the data directory. Start creates it if it does not exist, and fails if
	// a running server uses it.
	Dir string

	// Port is the TCP port on 127.0.0.1. Start fails if it is in use. By default
	// Start takes the port of the last run in Dir if it is free, and else any free
	// port.
	Port int

	// Database is the database that URL names. Start creates it if it is missing.
	// Default "posthorn".
	Database string

	// BinDir is the directory that holds initdb and postgres. By default Start
	// searches PATH, then the directories of distributions and Homebrew, newest
	// version first, and then downloads PostgreSQL.
	BinDir string

	// Settings are server settings, as in postgresql.conf. They override the defaults
	// of this package. The address, the port and the socket directory cannot be set.
	Settings map[string]string

	// DownloadURL is the Maven repository that binaries are downloaded from.
	// Default: the public one.
	DownloadURL string

	// CacheDir holds downloaded binaries. Default: "posthorn" in the user's cache
	// directory, or /var/cache/posthorn for root, because the account that runs the
	// server must be able to read it.
	CacheDir string

	// Logger receives messages about downloads and about a server that a killed
	// process has left running. Default: slog.Default().
	Logger *slog.Logger
}

// reserved settings follow from Config and Dir. A different value would make URL and
// SocketURL wrong.
var reserved = []string{"port", "listen_addresses", "unix_socket_directories"}

func (c Config) withDefaults() (Config, error) {
	if c.Dir == "" {
		return c, errors.New("no data directory given")
	}
	var err error
	if c.Dir, err = filepath.Abs(c.Dir); err != nil {
		return c, err
	}
	if c.Port < 0 || c.Port > 65535 {
		return c, fmt.Errorf("port %d is out of range", c.Port)
	}
	for _, name := range reserved {
		if _, ok := c.Settings[name]; ok {
			return c, fmt.Errorf("setting %s cannot be given: it follows from the rest of the configuration", name)
		}
	}
	c.Database = cmp.Or(c.Database, "posthorn")
	if c.CacheDir == "" {
		c.CacheDir = defaultCacheDir(c.Dir)
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	return c, nil
}

func defaultCacheDir(dir string) string {
	if os.Geteuid() == 0 {
		return "/var/cache/posthorn"
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return filepath.Join(dir, "binaries") // no home directory
	}
	return filepath.Join(cache, "posthorn")
}

// settings are the defaults of a local server, overridden by Config.Settings.
func (c Config) settings() map[string]string {
	settings := map[string]string{
		"max_connections":           "200",
		"max_prepared_transactions": "20",
		"shared_buffers":            sharedBuffers(),
	}
	maps.Copy(settings, c.Settings)
	return settings
}

// sharedBuffers is an eighth of the machine's memory, between 32 and 256 MB: enough
// for a local server, and little for a laptop.
func sharedBuffers() string {
	megabytes := memory() / 8
	if megabytes == 0 {
		megabytes = 128 // unknown: PostgreSQL's own default
	}
	return strconv.Itoa(min(max(megabytes, 32), 256)) + "MB"
}

// memory is the machine's memory in megabytes, or 0 where /proc does not show it.
func memory() int {
	info, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(info), "MemTotal:")
	fields := strings.Fields(rest)
	if len(fields) == 0 {
		return 0
	}
	kilobytes, _ := strconv.Atoi(fields[0])
	return kilobytes / 1024
}
