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

// certificate is a pair of files that are read again when they change, as they
// do when whoever issues certificates renews them.
type certificate struct {
	certFile, keyFile string
	log               *slog.Logger

	mu      sync.Mutex
	loaded  *tls.Certificate
	seen    string // what the files looked like when they were last read
	checked time.Time
}

// checkEvery is how long a changed file may go unnoticed.
const checkEvery = time.Second

func loadCertificate(certFile, keyFile string, log *slog.Logger) (*certificate, error) {
	if certFile == "" || keyFile == "" {
		return nil, usageError{errors.New("--tls-cert and --tls-key go together"), "give both, or neither"}
	}
	c := &certificate{certFile: certFile, keyFile: keyFile, log: log}
	c.seen = c.look()
	loaded, err := tls.LoadX509KeyPair(certFile, keyFile)
	if err != nil {
		return nil, hintError{fmt.Errorf("read the certificate: %w", err), "--tls-cert takes a PEM file with the certificate and those it is signed by, --tls-key one with its key"}
	}
	c.loaded, c.checked = &loaded, time.Now()
	return c, nil
}

func (c *certificate) config() *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: c.get}
}

// get returns the certificate of now. While the files do not fit together, as
// between the writing of the one and of the other, that is the one before.
func (c *certificate) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if time.Since(c.checked) < checkEvery {
		return c.loaded, nil
	}
	c.checked = time.Now()
	// Looked at before it is read: what changes in between is read again.
	seen := c.look()
	if seen == c.seen {
		return c.loaded, nil
	}
	c.seen = seen
	loaded, err := tls.LoadX509KeyPair(c.certFile, c.keyFile)
	if err != nil {
		c.log.Error("the new certificate cannot be used; the one before stays", "error", err)
		return c.loaded, nil
	}
	c.log.Info("the certificate has changed")
	c.loaded = &loaded
	return c.loaded, nil
}

func (c *certificate) look() string {
	text := ""
	for _, name := range []string{c.certFile, c.keyFile} {
		if info, err := os.Stat(name); err == nil {
			text += fmt.Sprintf("%d %d ", info.ModTime().UnixNano(), info.Size())
		}
	}
	return text
}
