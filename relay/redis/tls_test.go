package redis_test

import (
	"crypto/tls"
	"strings"
	"testing"

	"github.com/posthorn/posthorn/internal/testredis"
	"github.com/posthorn/posthorn/internal/testtls"
	"github.com/posthorn/posthorn/relay/redis"
)

// By TLS everything is as without; and where the certificate is nobody's that is
// trusted, nothing is written, and the error says why.
func TestByTLS(t *testing.T) {
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
			t.Errorf("%d events are there: %v", there, err)
		case !trusted && (err == nil || !strings.Contains(err.Error(), "certificate") || there != 0):
			t.Errorf("by a certificate that nobody trusts: %d events are there, %v", there, err)
		}
	}
}
