package seal_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"flag"
	"os"
	"strings"
	"testing"

	"gocloud.dev/secrets"

	"github.com/posthorn/posthorn/seal"
)

// The vectors were made once. New vectors would mean another format.
var makeVectors = flag.Bool("make-vectors", false, "write testdata/vectors.json anew")

const vectorsFile = "testdata/vectors.json"

type vectors struct {
	Comment  string         `json:"comment"`
	Payloads []vector       `json:"payloads"`
	Refused  []vector       `json:"refused"`
	Keys     []wrappedSaved `json:"wrapped_keys"`
}

type vector struct {
	Name           string `json:"name"`
	Namespace      string `json:"namespace"`
	Stream         string `json:"stream"`
	KeyVersion     uint32 `json:"key_version"`
	DataKey        string `json:"data_key"`
	Nonce          string `json:"nonce,omitempty"`
	AdditionalData string `json:"additional_data,omitempty"`
	Payload        string `json:"payload,omitempty"`
	Sealed         string `json:"sealed"`
}

type wrappedSaved struct {
	Keeper     string `json:"keeper"`
	Namespace  string `json:"namespace"`
	Stream     string `json:"stream"`
	KeyVersion uint32 `json:"key_version"`
	DataKey    string `json:"data_key"`
	Plaintext  string `json:"plaintext"`
	Wrapped    string `json:"wrapped"`
}

func (v vector) stream() seal.Stream { return seal.Stream{Namespace: v.Namespace, Name: v.Stream} }

// oneKey is a store with one key, which the test knows.
type oneKey struct {
	seal.Keys
	key seal.WrappedKey
}

func (k oneKey) Load(context.Context, seal.Stream) (seal.Ring, error) {
	return seal.Ring{Last: k.key.Version, Keys: []seal.WrappedKey{k.key}}, nil
}

func (v vector) open(t *testing.T) ([]byte, error) {
	t.Helper()
	keeper := newKeeper()
	plain := append(seal.KeyHeader(v.stream(), v.KeyVersion), unhex(t, v.DataKey)...)
	wrapped, err := keeper.Encrypt(t.Context(), plain)
	if err != nil {
		t.Fatal(err)
	}
	o := seal.NewOpener(oneKey{key: seal.WrappedKey{Version: v.KeyVersion, Key: wrapped}}, seal.Keepers{"": keeper}, seal.Config{})
	defer o.Close()
	return o.Open(t.Context(), v.stream(), []byte(v.Sealed))
}

func TestVectors(t *testing.T) {
	t.Parallel()
	if *makeVectors {
		writeVectors(t)
	}
	saved := readVectors(t)
	for _, v := range saved.Payloads {
		t.Run(v.Name, func(t *testing.T) {
			sealed := seal.SealWith(v.stream(), v.KeyVersion, [32]byte(unhex(t, v.DataKey)), [12]byte(unhex(t, v.Nonce)), []byte(v.Payload))
			if string(sealed) != v.Sealed {
				t.Errorf("sealed as\n%s, want\n%s", sealed, v.Sealed)
			}
			if binding := hex.EncodeToString(seal.Binding(v.stream(), v.KeyVersion)); binding != v.AdditionalData {
				t.Errorf("additional data %s, want %s", binding, v.AdditionalData)
			}
			if opened, err := v.open(t); err != nil || string(opened) != v.Payload {
				t.Errorf("opened as %q, %v", opened, err)
			}
		})
	}
	for _, v := range saved.Refused {
		t.Run(v.Name, func(t *testing.T) {
			if opened, err := v.open(t); err == nil {
				t.Errorf("opened as %q", opened)
			}
		})
	}
}

func TestVectorsOfWrappedKeys(t *testing.T) {
	t.Parallel()
	for _, v := range readVectors(t).Keys {
		keeper, err := secrets.OpenKeeper(t.Context(), v.Keeper)
		if err != nil {
			t.Fatal(err)
		}
		defer keeper.Close()
		s := seal.Stream{Namespace: v.Namespace, Name: v.Stream}
		plain, err := keeper.Decrypt(t.Context(), unhex(t, v.Wrapped))
		want := append(seal.KeyHeader(s, v.KeyVersion), unhex(t, v.DataKey)...)
		if err != nil || !bytes.Equal(plain, want) || hex.EncodeToString(plain) != v.Plaintext {
			t.Fatalf("key %d of %s is %x, want %x; %v", v.KeyVersion, s, plain, want, err)
		}
		sealed := seal.SealWith(s, v.KeyVersion, [32]byte(unhex(t, v.DataKey)), [12]byte{}, payload)
		o := seal.NewOpener(oneKey{key: seal.WrappedKey{Version: v.KeyVersion, Key: unhex(t, v.Wrapped)}}, seal.Keepers{"": keeper}, seal.Config{})
		defer o.Close()
		if err := opens(o, s, sealed); err != nil {
			t.Error(err)
		}
	}
}

func readVectors(t testing.TB) vectors {
	t.Helper()
	content, err := os.ReadFile(vectorsFile)
	if err != nil {
		t.Fatal(err)
	}
	var saved vectors
	if err := json.Unmarshal(content, &saved); err != nil {
		t.Fatal(err)
	}
	if len(saved.Payloads) < 5 || len(saved.Refused) < 5 || len(saved.Keys) < 2 {
		t.Fatalf("%d payloads, %d refused, %d keys", len(saved.Payloads), len(saved.Refused), len(saved.Keys))
	}
	return saved
}

func writeVectors(t *testing.T) {
	t.Helper()
	made := vectors{
		Comment:  "Vectors of the format in docs/sealing.md. data_key, nonce, additional_data, plaintext and wrapped are in hex; what is under refused must not open. The keys are for tests only.",
		Payloads: payloadVectors(t),
	}
	made.Refused = refusedVectors(made.Payloads[0], made.Payloads[4])
	made.Keys = keyVectors(t)
	content, err := json.MarshalIndent(made, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(vectorsFile, append(content, '\n'), 0o644); err != nil {
		t.Fatal(err)
	}
}

func payloadVectors(t *testing.T) []vector {
	made := []vector{
		{Name: "an object", Namespace: "shop", Stream: "orders", KeyVersion: 1, Payload: `{"order": 7}`},
		{Name: "nothing", Namespace: "shop", Stream: "orders", KeyVersion: 1, Payload: ``},
		{Name: "a number", Namespace: "shop", Stream: "orders", KeyVersion: 2, Payload: `1`},
		{Name: "many blocks", Namespace: "shop", Stream: "orders", KeyVersion: 3, Payload: `"` + strings.Repeat("0123456789", 50) + `"`},
		{Name: "names with colons", Namespace: "default", Stream: "stream:user:events", KeyVersion: 65537, Payload: `{}`},
		{Name: "names and text beyond ASCII", Namespace: "größe", Stream: "患者", KeyVersion: 256, Payload: `{"name":"Zoë"}`},
		{Name: "the last version", Namespace: "a", Stream: "b", KeyVersion: 1<<32 - 1, Payload: `null`},
	}
	for i := range made {
		v := &made[i]
		key, nonce := sha256.Sum256([]byte("key of "+v.Name)), sha256.Sum256([]byte("nonce of "+v.Name))
		v.DataKey, v.Nonce = hex.EncodeToString(key[:]), hex.EncodeToString(nonce[:12])
		v.AdditionalData = hex.EncodeToString(seal.Binding(v.stream(), v.KeyVersion))
		v.Sealed = string(seal.SealWith(v.stream(), v.KeyVersion, key, [12]byte(nonce[:12]), []byte(v.Payload)))
	}
	return made
}

// refusedVectors are altered copies of a good vector. The length of uneven leaves
// bits of its last character unused.
func refusedVectors(good, uneven vector) []vector {
	alterOf := func(v vector, name string, change func(*vector)) vector {
		v.Name, v.Nonce, v.AdditionalData, v.Payload = name, "", "", ""
		change(&v)
		return v
	}
	alter := func(name string, change func(*vector)) vector { return alterOf(good, name, change) }
	return []vector{
		alter("another stream", func(v *vector) { v.Stream = "refunds" }),
		alter("another namespace", func(v *vector) { v.Namespace = "shop2" }),
		alter("the border between the names moved", func(v *vector) { v.Namespace, v.Stream = "shopo", "rders" }),
		alter("another version, same key", func(v *vector) {
			v.KeyVersion = 2
			v.Sealed = string(seal.Relabel([]byte(v.Sealed), 2))
		}),
		alter("another key", func(v *vector) { v.DataKey = strings.Repeat("00", 32) }),
		alter("format 2", func(v *vector) { v.Sealed = strings.Replace(v.Sealed, `:"AQ`, `:"Ag`, 1) }),
		alter("version 0", func(v *vector) { v.Sealed = string(seal.Relabel([]byte(v.Sealed), 0)) }),
		alter("the last character cut off", func(v *vector) { v.Sealed = v.Sealed[:len(v.Sealed)-3] + `"}` }),
		alterOf(uneven, "unused bits that are not zero", func(v *vector) { v.Sealed = setUnusedBit(v.Sealed) }),
		alter("a line end", func(v *vector) { v.Sealed = strings.Replace(v.Sealed, `:"AQAA`, ":\"AQAA\n", 1) }),
		alter("two members", func(v *vector) { v.Sealed = strings.Replace(v.Sealed, "{", `{"a":1,`, 1) }),
		alter("plain", func(v *vector) { v.Sealed = good.Payload }),
	}
}

// setUnusedBit replaces the last character by the next one in the alphabet.
func setUnusedBit(sealed string) string {
	const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
	at := len(sealed) - len(`"}`) - 1
	return sealed[:at] + string(alphabet[strings.IndexByte(alphabet, sealed[at])+1]) + `"}`
}

func keyVectors(t *testing.T) []wrappedSaved {
	const url = "base64key://cG9zdGhvcm4gdGVzdCBrZXksIG5vdCBhIHNlY3JldCE="
	keeper, err := secrets.OpenKeeper(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer keeper.Close()
	var made []wrappedSaved
	for _, s := range []seal.Stream{{Namespace: "shop", Name: "orders"}, {Namespace: "größe", Name: "患者"}} {
		key := sha256.Sum256([]byte("wrapped for " + s.String()))
		plain := append(seal.KeyHeader(s, 3), key[:]...)
		wrapped, err := keeper.Encrypt(t.Context(), plain)
		if err != nil {
			t.Fatal(err)
		}
		made = append(made, wrappedSaved{url, s.Namespace, s.Name, 3, hex.EncodeToString(key[:]), hex.EncodeToString(plain), hex.EncodeToString(wrapped)})
	}
	return made
}

func unhex(t testing.TB, text string) []byte {
	t.Helper()
	b, err := hex.DecodeString(text)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// Whatever text opens must contain the payload that was sealed.
func FuzzOpen(f *testing.F) {
	saved := readVectors(f)
	known := map[string]string{}
	for _, v := range saved.Payloads[:1] {
		known[v.Sealed] = v.Payload
	}
	for _, v := range append(saved.Payloads, saved.Refused...) {
		f.Add([]byte(v.Sealed))
	}
	v := saved.Payloads[0]
	keeper := newKeeper()
	wrapped, err := keeper.Encrypt(f.Context(), append(seal.KeyHeader(v.stream(), v.KeyVersion), unhex(f, v.DataKey)...))
	if err != nil {
		f.Fatal(err)
	}
	o := seal.NewOpener(oneKey{key: seal.WrappedKey{Version: v.KeyVersion, Key: wrapped}}, seal.Keepers{"": keeper}, seal.Config{})
	f.Cleanup(o.Close)
	f.Fuzz(func(t *testing.T, sealed []byte) {
		opened, err := o.Open(t.Context(), v.stream(), sealed)
		if err != nil {
			if opened != nil {
				t.Errorf("%q with an error", opened)
			}
			if seal.IsSealed(sealed) && !errors.Is(err, seal.ErrAltered) && !errors.Is(err, seal.ErrNoKey) {
				t.Error(err)
			}
			return
		}
		var compact bytes.Buffer
		if err := json.Compact(&compact, sealed); err != nil {
			t.Fatal(err)
		}
		if want, found := known[compact.String()]; !found || want != string(opened) {
			t.Errorf("%q opens as %q", sealed, opened)
		}
	})
}
