package nats_test

import (
	"crypto/tls"
	"fmt"
	"strings"
	"testing"

	natsgo "github.com/nats-io/nats.go"

	"github.com/posthorn/posthorn/internal/test/testnats"
	"github.com/posthorn/posthorn/internal/test/testtls"
	"github.com/posthorn/posthorn/relay/nats"
)

// A sink writes by TLS. It does not connect to a server whose certificate it does not
// trust, and the error names the certificate.
func TestTLS(t *testing.T) {
	t.Parallel()
	cert := testtls.New(t)
	server := testnats.Start(t,
		fmt.Sprintf("tls { cert_file: %q, key_file: %q }", cert.Cert, cert.Key),
		"allow_non_tls: true") // for the test's own connection
	url := strings.Replace(server.URL, "nats://", "tls://", 1)
	if _, err := nats.Open(t.Context(), url, nats.Config{}); err == nil || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("open with an untrusted certificate: %v", err)
	}
	roots := natsgo.Secure(&tls.Config{RootCAs: cert.Roots, MinVersion: tls.VersionTLS12})
	s := open(t, url, nats.Config{Connection: []natsgo.Option{roots}})
	write(t, s, events("orders", 1, 700)...)
	_, js := testnats.Connect(t, server)
	wantOrder(t, ids(t, js, "posthorn+shop+orders"), 1, 700)
}
