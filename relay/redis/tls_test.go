package redis_test

import (
	"crypto/tls"
	"strings"
	"testing"

	"github.com/posthorn/posthorn/internal/test/testredis"
	"github.com/posthorn/posthorn/internal/test/testtls"
	"github.com/posthorn/posthorn/relay/redis"
)

// A sink writes by TLS. It writes nothing to a server whose certificate it does not
// trust, and the error names the certificate.
func TestTLS(t *testing.T) {
	t.Parallel()
	cert := testtls.New(t)
	server, url := testredis.StartTLS(t, cert.Cert, cert.Key)
	for _, trusted := range []bool{false, true} {
		config := redis.Config{}
		if trusted {
			config.TLS = &tls.Config{RootCAs: cert.Roots, MinVersion: tls.VersionTLS12}
		}
		s, err := redis.Open(t.Context(), url, config)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		err = s.Write(t.Context(), batchOf(events("a", 1, 700)))
		there := server.Client.XLen(t.Context(), "a").Val()
		switch {
		case trusted && (err != nil || there != 700):
			t.Errorf("with a trusted certificate the stream has %d events: %v", there, err)
		case !trusted && (err == nil || !strings.Contains(err.Error(), "certificate") || there != 0):
			t.Errorf("with an untrusted certificate the stream has %d events: %v", there, err)
		}
	}
}
