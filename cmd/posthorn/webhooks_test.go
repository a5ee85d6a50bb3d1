package main

import (
	"compress/gzip"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/posthorn/posthorn/internal/test/await"
	"github.com/posthorn/posthorn/posthorntest"
)

// receiver is that of the guide.
func receiver(secret string, handle func(id string, body []byte) error) (http.HandlerFunc, error) {
	verifier, err := standardwebhooks.NewWebhook(secret)
	return func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 4<<20))
		if err != nil || verifier.Verify(body, r.Header) != nil {
			http.Error(w, "the signature does not match", http.StatusUnauthorized)
			return
		}
		if err := handle(r.Header.Get("webhook-id"), body); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.WriteHeader(http.StatusNoContent)
	}, err
}

// receiving runs receivers of webhooks that sign with HMAC, under their names. Their
// secrets come out of the database. It passes on what they have got.
func receiving(t *testing.T, database string) (url string, types <-chan string) {
	t.Helper()
	got := make(chan string, 100)
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, err := pgx.Connect(r.Context(), database)
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close(r.Context())
		var secret string
		if err := conn.QueryRow(r.Context(), `select k.secret from posthorn.webhook_secrets k join posthorn.webhooks w on w.id = k.webhook_id
			where k.kind = 'hmac' and w.name = $1 and (k.expires_at > now()) is not false order by k.id limit 1`, strings.Trim(r.URL.Path, "/")).Scan(&secret); err != nil {
			t.Errorf("secret of %s: %v", r.URL.Path, err)
			return
		}
		receive, err := receiver(secret, func(_ string, body []byte) error {
			var event struct{ Type string }
			err := json.Unmarshal(body, &event)
			got <- event.Type
			return err
		})
		if err != nil {
			t.Error(err)
			return
		}
		receive(w, r)
	}))
	t.Cleanup(web.Close)
	return web.URL, got
}

// A receiver checks the signatures.
func followWebhooks(g *guide) {
	url, types := receiving(g.T, g.database)
	p := g.server("--webhook-allow", "127.0.0.1")
	g.follow("http://127.0.0.1:9000/hooks", url+"/crm", "$POSTHORN_URL", p.url)
	found := map[string]int{}
	await.True(g.T, "the test and the order arrived, and the order once more", func() bool {
		select {
		case kind := <-types:
			found[kind]++
		default:
		}
		return found["posthorn.webhook.test"] == 1 && found["order.placed"] == 2
	})
}

// Without --webhook-allow nothing on this machine is reached.
func TestWebhooksDoNotReachThisMachine(t *testing.T) {
	t.Parallel()
	database := posthorntest.Database(t)
	web := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("the receiver was reached") }))
	t.Cleanup(web.Close)
	startPosthorn(t, database, "serve")
	posthorn := func(args ...string) (string, error) {
		cmd := exec.Command("posthorn", append([]string{"webhooks"}, args...)...)
		cmd.Env = append(os.Environ(), "DATABASE_URL="+database)
		output, err := cmd.CombinedOutput()
		return string(output), err
	}
	if output, err := posthorn("create", "crm", strings.Replace(web.URL, "127.0.0.1", "localhost", 1)); err != nil {
		t.Fatal(output)
	}
	output, err := posthorn("test", "crm")
	if err == nil || !strings.Contains(output, "is not public (loopback), and --webhook-allow does not name it") {
		t.Errorf("posthorn webhooks test: %v, %s", err, output)
	}
}

type received struct {
	header http.Header
	body   []byte
}

// Settings that change what is sent reach the receiver: ed25519, compression and batches.
func TestWebhookSettingsReachTheReceiver(t *testing.T) {
	t.Parallel()
	database := posthorntest.Database(t)
	requests := make(chan received, 10)
	web := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		unpacked, err := gzip.NewReader(r.Body)
		if err != nil {
			t.Error(err)
			return
		}
		body, err := io.ReadAll(unpacked)
		if err != nil {
			t.Error(err)
		}
		requests <- received{r.Header, body}
	}))
	t.Cleanup(web.Close)
	create := exec.Command("posthorn", "webhooks", "create", "crm", web.URL, "--secret", "ed25519", "--gzip", "--batch", "10", "--body", "payload", "--header", "X-Shop: 7")
	create.Env = append(os.Environ(), "DATABASE_URL="+database)
	output, err := create.Output()
	if err != nil {
		t.Fatal(err)
	}
	public, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(strings.TrimSpace(string(output)), "whpk_"))
	if err != nil || len(public) != ed25519.PublicKeySize {
		t.Fatalf("%s is no public key: %v", output, err)
	}
	typed(t, connectTo(t, database), `select posthorn.publish_many('default', '[
		{"type": "a", "payload": {"n": 1, "text": "`+strings.Repeat("x", 2000)+`"}}, {"type": "a", "payload": {"n": 2}}]')`)
	startPosthorn(t, database, "serve", "--webhook-allow", "127.0.0.0/8")

	var r received
	await.True(t, "the events arrive", func() bool {
		select {
		case r = <-requests:
		default:
		}
		return r.header != nil
	})
	signature, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(r.header.Get("webhook-signature"), "v1a,"))
	if err != nil {
		t.Fatal(err)
	}
	message := r.header.Get("webhook-id") + "." + r.header.Get("webhook-timestamp") + "." + string(r.body)
	if !ed25519.Verify(public, []byte(message), signature) {
		t.Error("the public key that was printed does not verify the signature")
	}
	var payloads []struct{ N int }
	if err := json.Unmarshal(r.body, &payloads); err != nil || len(payloads) != 2 || payloads[1].N != 2 {
		t.Errorf("the body is %.100s, %v", r.body, err)
	}
	if got := r.header.Get("X-Shop"); got != "7" {
		t.Errorf("the header is %q", got)
	}
}
