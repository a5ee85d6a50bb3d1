package posthorn_test

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/posthorntest"
)

func TestOwnCodec(t *testing.T) {
	t.Parallel()
	url := posthorntest.Database(t)
	c, err := posthorn.Open(t.Context(), posthorn.Config{
		DatabaseURL: url,
		Encode: func(payload any) ([]byte, error) {
			switch payload {
			case "wrong":
				return nil, errors.New("wrong")
			case "no JSON":
				return []byte("no JSON"), nil
			}
			return json.Marshal([]any{"wrapped", payload})
		},
		Decode: func(payload []byte, into any) error {
			return json.Unmarshal(payload, &[]any{nil, into})
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	w := &world{c, t, url}
	for _, payload := range []any{"wrong", "no JSON", []byte("no JSON")} {
		_, err := w.Publish(t.Context(), w.Pool(), event(payload))
		wantErr(t, "a payload that cannot be encoded", err, posthorn.ErrInvalid)
	}
	if _, err := w.Publish(t.Context(), w.Pool(), event("x"), event(json.RawMessage(`["raw", "y"]`)), event(nil), event([]byte(`{"bytes":1}`))); err != nil {
		t.Fatal(err)
	}
	equal(t, "payloads", w.payloads(), []string{`["wrapped","x"]`, `["raw", "y"]`, "{}", `{"bytes":1}`})
	deliveries := w.fetch(w.Group("g", fromBeginning()), 10)
	var got [2]string
	for i := range got {
		if err := deliveries[i].Decode(&got[i]); err != nil {
			t.Error(err)
		}
	}
	equal(t, "decoded", got, [2]string{"x", "y"})
	if err := c.Decode(deliveries[2].Event, &got[0]); err == nil {
		t.Error("an object was decoded into a string")
	}
}
