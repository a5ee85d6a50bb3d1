package send

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/posthorn/posthorn/internal/cloudevent"
	"github.com/posthorn/posthorn/internal/pg"
)

// compressFrom is the size from which a body is compressed, if the endpoint takes that.
const compressFrom = 1024

// Request is one POST to an endpoint.
type Request struct {
	URL       string
	Headers   map[string]string // of the endpoint's settings
	Secrets   []string          // those valid now; each makes one signature
	Body      string            // "cloudevents" or "payload"
	Batch     bool              // an array, even of one event
	Gzip      bool              // the endpoint reads compressed bodies
	Namespace string
	Origin    string // identifies the log: events of two logs may have the same ids
	Events    []pg.Event
	At        time.Time // the timestamp of the signature
}

// ID is the webhook-id of a request: the log, and the ids of its events in the order of the body. Receivers remember the id
// of each event, as if it came alone, because events of a batch that failed may come again in other batches.
func ID(origin string, events ...pg.Event) string {
	hash := sha256.Sum256([]byte(origin))
	id := "msg_" + hex.EncodeToString(hash[:6])
	for _, e := range events {
		id += "_" + strconv.FormatInt(e.ID, 10)
	}
	return id
}

func (r Request) id() string { return ID(r.Origin, r.Events...) }

// build signs the body before it is compressed: frameworks that unpack bodies hand the unpacked body to the code that
// verifies the signature.
func (r Request) build(ctx context.Context) (*http.Request, error) {
	body, contentType, err := r.body()
	if err != nil {
		return nil, err
	}
	signatures, err := sign(r.Secrets, r.id(), r.At, body)
	if err != nil {
		return nil, err
	}
	compressed := r.Gzip && len(body) >= compressFrom
	if compressed {
		body = gzipped(body)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, r.URL, bytes.NewReader(body))
	if err != nil {
		return nil, errors.New("the URL cannot be read") // the cause would show all of it
	}
	r.setHeaders(request.Header)
	request.Header.Set("Content-Type", contentType)
	request.Header.Set("webhook-id", r.id())
	request.Header.Set("webhook-timestamp", strconv.FormatInt(r.At.Unix(), 10))
	request.Header.Set("webhook-signature", signatures)
	if compressed {
		request.Header.Set("Content-Encoding", "gzip")
	}
	return request, nil
}

func (r Request) setHeaders(header http.Header) {
	header.Set("User-Agent", "Posthorn")
	// A header without values is not sent. It tells the transport that it may use another connection when the endpoint has
	// closed an idle one: the webhook-id makes the request idempotent.
	header["Idempotency-Key"] = nil
	for name, value := range r.Headers {
		header.Set(name, value)
	}
	if r.Body == "payload" && !r.Batch {
		for name, value := range cloudevent.Headers(r.Namespace, r.Events[0]) {
			header.Set(name, value)
		}
	}
}

func (r Request) body() (body []byte, contentType string, err error) {
	if len(r.Events) == 0 || len(r.Events) > 1 && !r.Batch {
		return nil, "", fmt.Errorf("%d events do not fit one request", len(r.Events))
	}
	switch {
	case r.Body == "payload" && r.Batch:
		payloads := make([][]byte, len(r.Events))
		for i, e := range r.Events {
			payloads[i] = payloadOf(e)
		}
		return fmt.Appendf(nil, "[%s]", bytes.Join(payloads, []byte(","))), "application/json", nil
	case r.Body == "payload":
		return payloadOf(r.Events[0]), "application/json", nil
	case r.Batch:
		body, err = cloudevent.EncodeBatch(r.Namespace, r.Events)
		return body, cloudevent.BatchContentType, err
	default:
		body, err = cloudevent.Encode(r.Namespace, r.Events[0], false)
		return body, cloudevent.ContentType, err
	}
}

func payloadOf(e pg.Event) json.RawMessage {
	if len(e.Payload) == 0 {
		return json.RawMessage("null")
	}
	return e.Payload
}

func gzipped(body []byte) []byte {
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	_, _ = w.Write(body) // a buffer takes everything
	_ = w.Close()
	return packed.Bytes()
}
