package send

import (
	"compress/gzip"
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/posthorn/posthorn/internal/pg"
)

const (
	secretA = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	secretB = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD"
)

var event = pg.Event{
	ID: 7, Stream: "orders", Type: "order.placed", Key: "order-7", Payload: json.RawMessage(`{"total": 12.50}`),
	Metadata: json.RawMessage(`{"region": "eu"}`), PublishedAt: time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC),
}

// received is a request as an endpoint has it, with the body unpacked.
type received struct {
	header http.Header
	packed bool
	body   []byte
}

// endpoint is a receiver that answers 200.
type endpoint struct {
	*httptest.Server
	requests chan received
}

func newEndpoint(t testing.TB) *endpoint {
	e := &endpoint{requests: make(chan received, 10)}
	e.Server = httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		got := received{header: r.Header, packed: r.Header.Get("Content-Encoding") == "gzip"}
		body := io.Reader(r.Body)
		if got.packed {
			unpacked, err := gzip.NewReader(body)
			if err != nil {
				t.Error(err)
				return
			}
			body = unpacked
		}
		var err error
		if got.body, err = io.ReadAll(body); err != nil {
			t.Error(err)
		}
		e.requests <- got
	}))
	t.Cleanup(e.Close)
	return e
}

var loopback = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")}

func local(t testing.TB) *Client {
	c := New(Config{Allow: loopback})
	t.Cleanup(c.Close)
	return c
}

func (e *endpoint) gets(t *testing.T, r Request) received {
	t.Helper()
	r.URL, r.At, r.Namespace, r.Origin = e.URL, time.Now(), "shop", "origin"
	if r.Secrets == nil {
		r.Secrets = []string{secretA}
	}
	answer, err := local(t).Send(t.Context(), r)
	if err != nil || answer.Status != 200 {
		t.Fatalf("the answer is %+v, %v", answer, err)
	}
	got := <-e.requests
	equal(t, "webhook-id", got.header.Get("webhook-id"), answer.RequestID)
	return got
}

func equal[T any](t testing.TB, name string, got, want T) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", name, diff)
	}
}

func verifies(t *testing.T, secret string, r received) bool {
	t.Helper()
	standard, err := standardwebhooks.NewWebhook(secret)
	if err != nil {
		t.Fatal(err)
	}
	return standard.Verify(r.body, r.header) == nil
}

func TestTheStandardsLibraryVerifies(t *testing.T) {
	t.Parallel()
	e := newEndpoint(t)
	got := e.gets(t, Request{Body: "cloudevents", Events: []pg.Event{event}})
	equal(t, "verified", verifies(t, secretA, got), true)
	equal(t, "verified with another secret", verifies(t, secretB, got), false)
	got.body[0] = ' '
	equal(t, "verified after a change", verifies(t, secretA, got), false)
}

func TestBothSecretsVerifyDuringARotation(t *testing.T) {
	t.Parallel()
	e := newEndpoint(t)
	got := e.gets(t, Request{Body: "payload", Events: []pg.Event{event}, Secrets: []string{secretA, secretB}})
	equal(t, "verified with the new secret", verifies(t, secretA, got), true)
	equal(t, "verified with the old secret", verifies(t, secretB, got), true)
}

// The standard's library has no ed25519 yet. The message is that of its specification.
func TestEd25519SignaturesVerify(t *testing.T) {
	t.Parallel()
	e := newEndpoint(t)
	public, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, key := range map[string][]byte{"seed": private.Seed(), "private key": private} {
		secret := "whsk_" + base64.StdEncoding.EncodeToString(key)
		got := e.gets(t, Request{Body: "cloudevents", Events: []pg.Event{event}, Secrets: []string{secret, secretA}})
		encoded, _, _ := strings.Cut(strings.TrimPrefix(got.header.Get("webhook-signature"), "v1a,"), " ")
		signature, err := base64.StdEncoding.DecodeString(encoded)
		if err != nil {
			t.Fatal(err)
		}
		message := got.header.Get("webhook-id") + "." + got.header.Get("webhook-timestamp") + "." + string(got.body)
		equal(t, "verified, signed with the "+name, ed25519.Verify(public, []byte(message), signature), true)
		equal(t, "the other signature", verifies(t, secretA, got), true)
	}
}

func TestBodies(t *testing.T) {
	t.Parallel()
	e := newEndpoint(t)
	other := pg.Event{ID: 8, Stream: "default", Type: "order.paid", PublishedAt: event.PublishedAt}
	first := `{"data":{"total":12.50},"id":"7","posthornid":"7","posthornstream":"orders","region":"eu","source":"/namespaces/shop",` +
		`"specversion":"1.0","subject":"order-7","time":"2026-01-31T12:00:00Z","type":"order.placed"}`
	second := `{"data":null,"id":"8","posthornid":"8","source":"/namespaces/shop","specversion":"1.0","time":"2026-01-31T12:00:00Z","type":"order.paid"}`
	for _, test := range []struct {
		name, body  string
		batch       bool
		events      []pg.Event
		contentType string
		want        string
	}{
		{"event", "cloudevents", false, []pg.Event{event}, "application/cloudevents+json", first},
		{"batch", "cloudevents", true, []pg.Event{event, other}, "application/cloudevents-batch+json", "[" + first + "," + second + "]"},
		{"batch of one", "cloudevents", true, []pg.Event{event}, "application/cloudevents-batch+json", "[" + first + "]"},
		{"payload", "payload", false, []pg.Event{event}, "application/json", `{"total": 12.50}`},
		{"no payload", "payload", false, []pg.Event{other}, "application/json", `null`},
		{"payloads", "payload", true, []pg.Event{event, other}, "application/json", `[{"total": 12.50},null]`},
	} {
		got := e.gets(t, Request{Body: test.body, Batch: test.batch, Events: test.events})
		equal(t, "content type of "+test.name, got.header.Get("Content-Type"), test.contentType)
		equal(t, "body of "+test.name, string(got.body), test.want)
		equal(t, test.name+" verifies", verifies(t, secretA, got), true)
	}
}

// A body that is the payload alone says in headers which event it is.
func TestPayloadsHaveAttributesInHeaders(t *testing.T) {
	t.Parallel()
	e := newEndpoint(t)
	odd := event
	odd.Type, odd.Key = "größe\r\n", strings.Repeat("k", 2000)
	got := e.gets(t, Request{Body: "payload", Events: []pg.Event{odd}})
	found := map[string]string{}
	for name := range got.header {
		if strings.HasPrefix(name, "Ce-") {
			found[name] = got.header.Get(name)
		}
	}
	equal(t, "attributes", found, map[string]string{
		"Ce-Specversion": "1.0", "Ce-Id": "7", "Ce-Source": "/namespaces/shop", "Ce-Type": "gr%C3%B6%C3%9Fe%0D%0A",
		"Ce-Time": "2026-01-31T12:00:00Z", "Ce-Posthornid": "7", "Ce-Posthornstream": "orders",
	})
}

func TestLargeBodiesAreCompressedOnRequest(t *testing.T) {
	t.Parallel()
	e := newEndpoint(t)
	large := event
	large.Payload = json.RawMessage(`"` + strings.Repeat("x", 2000) + `"`)
	for _, test := range []struct {
		event        pg.Event
		gzip, packed bool
	}{{large, true, true}, {large, false, false}, {event, true, false}} {
		got := e.gets(t, Request{Body: "payload", Gzip: test.gzip, Events: []pg.Event{test.event}})
		equal(t, "packed", got.packed, test.packed)
		equal(t, "body", string(got.body), string(test.event.Payload))
		equal(t, "verified", verifies(t, secretA, got), true)
	}
}

func TestRequestIDs(t *testing.T) {
	t.Parallel()
	ids := map[string]bool{}
	for _, r := range []Request{
		{Events: []pg.Event{{ID: 1}}},
		{Events: []pg.Event{{ID: 2}}},
		{Events: []pg.Event{{ID: 1}}, Origin: "another log"},
		{Events: []pg.Event{{ID: 1}, {ID: 2}}},
		{Events: []pg.Event{{ID: 1}, {ID: 3}}},
	} {
		ids[r.id()] = true
		equal(t, "id when sent again", r.id(), r.id())
		if strings.Contains(r.id(), ".") {
			t.Errorf("%s has a full stop, which the message that is signed separates by", r.id())
		}
	}
	equal(t, "different ids", len(ids), 5)
}

func TestHeadersOfTheEndpoint(t *testing.T) {
	t.Parallel()
	e := newEndpoint(t)
	got := e.gets(t, Request{Body: "payload", Events: []pg.Event{event}, Headers: map[string]string{
		"Authorization": "Bearer x", "user-agent": "shop", "webhook-id": "forged", "Content-Type": "text/plain",
	}})
	for name, want := range map[string]string{"Authorization": "Bearer x", "User-Agent": "shop", "Content-Type": "application/json", "Idempotency-Key": ""} {
		equal(t, name, got.header.Get(name), want)
	}
}

// A bad setting is an error, and no text has secrets.
func TestBadRequestsAreRefused(t *testing.T) {
	t.Parallel()
	for name, r := range map[string]Request{
		"url":           {URL: "http://user:hidden@127.0.0.1:%zz/hidden"},
		"scheme":        {URL: "ftp://127.0.0.1/hidden"},
		"host":          {URL: "http:///hidden"},
		"header name":   {Headers: map[string]string{"a b": "hidden"}},
		"header value":  {Headers: map[string]string{"a": "hidden\r\nb: c"}},
		"secret":        {Secrets: []string{"whsec_hidden"}},
		"short secret":  {Secrets: []string{"whsec_aGlkZGVu"}},
		"other secret":  {Secrets: []string{"whpk_" + secretA[6:]}},
		"no secret":     {Secrets: []string{}},
		"no event":      {Events: []pg.Event{}},
		"too many":      {Events: []pg.Event{event, event}},
		"nothing there": {URL: "http://127.0.0.1:1/hidden?hidden"},
	} {
		sent := Request{URL: "http://127.0.0.1:1/", Secrets: []string{secretA}, Events: []pg.Event{event}, Headers: r.Headers}
		if r.URL != "" {
			sent.URL = r.URL
		}
		if r.Secrets != nil {
			sent.Secrets = r.Secrets
		}
		if r.Events != nil {
			sent.Events = r.Events
		}
		answer, err := local(t).Send(t.Context(), sent)
		if err == nil || strings.Contains(err.Error(), "hidden") || answer.Status != 0 {
			t.Errorf("%s: %+v, %v", name, answer, err)
		}
	}
}

func TestACertificateIsVerified(t *testing.T) {
	t.Parallel()
	e := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("the request was sent") }))
	e.Config.ErrorLog = log.New(io.Discard, "", 0)
	e.StartTLS()
	t.Cleanup(e.Close)
	_, err := local(t).Send(t.Context(), Request{URL: e.URL, Secrets: []string{secretA}, Events: []pg.Event{event}, At: time.Now()})
	if err == nil || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("the error is %v", err)
	}
}

func TestAProxyOfTheEnvironmentIsNotUsed(t *testing.T) {
	t.Parallel()
	if local(t).transport.Proxy != nil {
		t.Error("the transport asks for a proxy")
	}
}

func TestSendEndsWithItsContext(t *testing.T) {
	t.Parallel()
	e := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // until then the server does not see that the client has gone
		<-r.Context().Done()
	}))
	t.Cleanup(e.Close)
	r := Request{URL: e.URL, Secrets: []string{secretA}, Events: []pg.Event{event}, At: time.Now()}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	answer, err := local(t).Send(ctx, r)
	if err == nil || err.Error() != "no answer in time" || answer.RequestID == "" {
		t.Errorf("the answer is %+v, %v", answer, err)
	}
	ctx, cancel = context.WithCancel(t.Context())
	cancel()
	_, err = local(t).Send(ctx, r)
	equal(t, "error of a process that ends", err == context.Canceled, true)
}
