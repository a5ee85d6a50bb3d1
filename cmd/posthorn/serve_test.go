package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/posthorn/posthorn/internal/test/await"
	"github.com/posthorn/posthorn/internal/test/testidle"
	"github.com/posthorn/posthorn/internal/test/testpg"
	"github.com/posthorn/posthorn/internal/test/testtls"
	"github.com/posthorn/posthorn/internal/test/testworld"
	"github.com/posthorn/posthorn/posthorntest"
)

// process is a process of posthorn that serves HTTP.
type process struct {
	*exec.Cmd
	url    string
	stderr *testworld.Buffer
	ended  chan struct{} // closed at the end of the process, after err is set
	err    error
}

// startPosthorn runs serve or up on a free port, until the test ends.
func startPosthorn(t *testing.T, database string, args ...string) *process {
	t.Helper()
	return start(t, exec.Command("posthorn", append(args, "--listen", "127.0.0.1:0", "--database-url", database)...))
}

// start runs a command that serves HTTP, until the test ends.
func start(t *testing.T, cmd *exec.Cmd) *process {
	t.Helper()
	p := &process{Cmd: cmd, stderr: &testworld.Buffer{}, ended: make(chan struct{})}
	p.Stderr = p.stderr
	out, err := p.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	printed, ready := p.awaitReady(out)
	go func() {
		_, _ = io.Copy(io.Discard, out)
		p.err = p.Wait()
		close(p.ended)
	}()
	t.Cleanup(func() {
		_ = p.Process.Kill()
		<-p.ended
	})
	if !ready {
		t.Fatalf("posthorn did not become ready: %s%s", printed, p.stderr)
	}
	return p
}

var printedURL = regexp.MustCompile(`(?m)^http: (\S+)$`)

// awaitReady reads the output up to the line "posthorn is ready".
func (p *process) awaitReady(out io.Reader) (printed string, ready bool) {
	lines := bufio.NewReader(out)
	for {
		line, err := lines.ReadString('\n')
		printed += line
		if line == "posthorn is ready\n" {
			p.url = printedURL.FindStringSubmatch(printed)[1]
			return printed, true
		}
		if err != nil {
			return printed, false
		}
	}
}

// tell sends a signal, and await waits for the end.
func (p *process) tell(t *testing.T, signal os.Signal) {
	t.Helper()
	if err := p.Process.Signal(signal); err != nil {
		t.Fatal(err)
	}
}

func (p *process) await(t *testing.T) error {
	t.Helper()
	await.Closed(t, "posthorn has ended", p.ended)
	return p.err
}

// statusOf is the status of a GET, with a token unless that is empty.
func statusOf(t *testing.T, url, token string) int {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	_ = answer.Body.Close()
	return answer.StatusCode
}

// An idle server asks the database as often as docs/operations.md says, also while requests wait.
func TestIdleServersAskRarely(t *testing.T) {
	t.Parallel()
	processes := map[string]testidle.Process{}
	create := testidle.Databases(t)
	for _, command := range []string{"serve", "up"} {
		for _, request := range []string{"", "POST /v1/groups/billing/claim", "GET /events/subscribe?tags=x&worker_id=w&wait=60"} {
			database := create()
			typed(t, connectTo(t, database), "select posthorn.define_group('default', 'billing')")
			statements := testpg.CountStatements(t, database)
			p := startPosthorn(t, statements.URL(t), command)
			kind := "posthorn " + command
			if method, path, waits := strings.Cut(request, " "); waits {
				kind += ", requests wait"
				waitAt(t, method, p.url+path)
			}
			processes[kind+" "+request] = testidle.Process{Kind: kind, Statements: statements}
		}
	}
	testidle.Check(t, processes)
}

// waitAt sends requests that wait for work, until the test ends.
func waitAt(t *testing.T, method, url string) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var waiting sync.WaitGroup
	for range 3 {
		waiting.Go(func() {
			for ctx.Err() == nil {
				r, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(`{"wait": 60}`))
				if err != nil {
					t.Error(err)
					return
				}
				answer, err := http.DefaultClient.Do(r)
				if err != nil {
					continue // the test has ended
				}
				_ = answer.Body.Close()
				if answer.StatusCode/100 != 2 {
					t.Errorf("a request that waits is answered with %d", answer.StatusCode)
					return
				}
			}
		})
	}
	t.Cleanup(func() { cancel(); waiting.Wait() })
}

// Requests that wait for events get an answer, and the process ends without an error.
func TestTermEndsLongPolls(t *testing.T) {
	t.Parallel()
	database := posthorntest.Database(t)
	conn := connectTo(t, database)
	typed(t, conn, "select posthorn.define_group('default', 'billing')")
	p := startPosthorn(t, database, "serve")
	answers := make(chan string, 3)
	for range cap(answers) {
		go func() {
			answer, err := http.Post(p.url+"/v1/groups/billing/claim", "application/json", strings.NewReader(`{"wait": 60}`))
			if err != nil {
				answers <- err.Error()
				return
			}
			defer answer.Body.Close()
			body, err := io.ReadAll(answer.Body)
			answers <- fmt.Sprintf("%d %s %v", answer.StatusCode, strings.TrimSpace(string(body)), err)
		}()
	}
	await.True(t, "they wait", func() bool {
		var asked bool
		if err := conn.QueryRow(t.Context(), `select exists (select from pg_stat_activity
			where application_name = 'posthorn serve' and state = 'idle' and query like '%posthorn.claim(%' and datname = current_database())`).Scan(&asked); err != nil {
			t.Fatal(err)
		}
		return asked
	})
	p.tell(t, syscall.SIGTERM)
	for range cap(answers) {
		// A request that comes now is refused with the advice to retry.
		if got := <-answers; got != `200 {"events":[]} <nil>` && !strings.HasPrefix(got, "503 ") {
			t.Errorf("one who waited got %s", got)
		}
	}
	if err := p.await(t); err != nil {
		t.Errorf("it ended with %v: %s", err, p.stderr)
	}
}

// A request that does not end delays the end after the first signal, but not after the
// second.
func TestSecondSignalEndsAtOnce(t *testing.T) {
	t.Parallel()
	p := startPosthorn(t, posthorntest.Database(t), "serve")
	conn, err := net.Dial("tcp", strings.TrimPrefix(p.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	// The server asks for the body when it begins to handle the request.
	fmt.Fprintf(conn, "POST /v1/events HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 10\r\nExpect: 100-continue\r\n\r\n")
	line, err := bufio.NewReader(conn).ReadString('\n')
	if err != nil || !strings.Contains(line, "100 Continue") {
		t.Fatalf("it answered %q, %v", line, err)
	}
	p.tell(t, syscall.SIGTERM)
	await.True(t, "it accepts nobody else", func() bool {
		other, err := net.Dial("tcp", strings.TrimPrefix(p.url, "http://"))
		if err == nil {
			_ = other.Close()
		}
		return err != nil
	})
	select {
	case <-p.ended:
		t.Fatal("it did not wait for the request")
	default:
	}
	p.tell(t, syscall.SIGTERM)
	var exit *exec.ExitError
	if err := p.await(t); !errors.As(err, &exit) || !exit.Sys().(syscall.WaitStatus).Signaled() {
		t.Errorf("it ended with %v, not by the signal", err)
	}
}

// Certificates are read again when they change, and kept while the new files do not match.
func TestServeTLS(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	certFile, keyFile := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	certs := writeCertificate(t, 1, certFile, keyFile)
	p := startPosthorn(t, posthorntest.Database(t), "serve", "--tls-cert", certFile, "--tls-key", keyFile)
	if !strings.HasPrefix(p.url, "https://") {
		t.Fatalf("it says %s", p.url)
	}
	if serial := serialOf(t, p.url, certs); serial != 1 {
		t.Errorf("serial number %d, want 1", serial)
	}
	if err := os.WriteFile(keyFile, []byte("half a ke"), 0o600); err != nil {
		t.Fatal(err)
	}
	await.True(t, "it tells of the bad key", func() bool {
		serial := serialOf(t, p.url, certs)
		if serial != 1 {
			t.Fatalf("serial number %d, want 1", serial)
		}
		return strings.Contains(p.stderr.String(), "the new certificate cannot be used")
	})
	certs.AddCert(testtls.Write(t, 2, certFile, keyFile))
	await.True(t, "it uses the new certificate", func() bool { return serialOf(t, p.url, certs) == 2 })
	p.tell(t, syscall.SIGTERM)
	if err := p.await(t); err != nil {
		t.Errorf("after SIGTERM: %v, %s", err, p.stderr)
	}
}

// serialOf makes a request over HTTPS and returns the serial number of the certificate.
func serialOf(t *testing.T, url string, roots *x509.CertPool) int64 {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}, DisableKeepAlives: true, ForceAttemptHTTP2: true,
	}}
	answer, err := client.Get(url + "/healthz")
	if err != nil {
		t.Fatal(err)
	}
	_ = answer.Body.Close()
	if answer.StatusCode != http.StatusOK || answer.ProtoMajor != 2 {
		t.Errorf("status %d over %s", answer.StatusCode, answer.Proto)
	}
	return answer.TLS.PeerCertificates[0].SerialNumber.Int64()
}

func writeCertificate(t *testing.T, serial int64, certFile, keyFile string) *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(testtls.Write(t, serial, certFile, keyFile))
	return pool
}
