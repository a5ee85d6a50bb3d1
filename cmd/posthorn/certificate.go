package main

import (
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"
)

// certificate is a pair of files. They are read again when they change, so that a renewed
// certificate needs no restart.
type certificate struct {
	certFile, keyFile string
	log               *slog.Logger

	mu      sync.Mutex
	loaded  *tls.Certificate
	seen    string // times and sizes of the files when they were last read
	checked time.Time
}

// checkEvery is how often the files are checked for changes.
const checkEvery = time.Second

func loadCertificate(certFile, keyFile string, log *slog.Logger) (*certificate, error) {
	if certFile == "" || keyFile == "" {
		return nil, usageError{errors.New("--tls-cert and --tls-key go together"), "give both, or neither"}
	}
	c := &certificate{certFile: certFile, keyFile: keyFile, log: log}
	c.seen = c.stat()
	loaded, err := tls.LoadX509KeyPair(certFile, keyFile)
	if err != nil {
		return nil, hintError{fmt.Errorf("read the certificate: %w", err), "--tls-cert takes a PEM file with the certificate and its intermediates, --tls-key one with the key"}
	}
	c.loaded, c.checked = &loaded, time.Now()
	return c, nil
}

func (c *certificate) config() *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: c.get}
}

// get returns the current certificate. While the files do not match, because only one of
// them has been replaced yet, it returns the previous certificate.
func (c *certificate) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if time.Since(c.checked) < checkEvery {
		return c.loaded, nil
	}
	c.checked = time.Now()
	// The files are checked before they are read: a change in between is noticed next time.
	seen := c.stat()
	if seen == c.seen {
		return c.loaded, nil
	}
	c.seen = seen
	loaded, err := tls.LoadX509KeyPair(c.certFile, c.keyFile)
	if err != nil {
		c.log.Error("the new certificate cannot be used; the previous one stays in use", "error", err)
		return c.loaded, nil
	}
	c.log.Info("the certificate has changed")
	c.loaded = &loaded
	return c.loaded, nil
}

func (c *certificate) stat() string {
	text := ""
	for _, name := range []string{c.certFile, c.keyFile} {
		if info, err := os.Stat(name); err == nil {
			text += fmt.Sprintf("%d %d ", info.ModTime().UnixNano(), info.Size())
		}
	}
	return text
}
