package seal_test

import (
	"context"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/posthorn/posthorn/internal/test/await"
	"github.com/posthorn/posthorn/internal/test/testworld"
	"github.com/posthorn/posthorn/seal"
)

const marker = "wrapped-key-marker"

func TestTypesWithKeysDoNotPrintThem(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.sealer(seal.Config{})
	w.seal(s)
	key := seal.WrappedKey{Version: 1, Key: seal.Wrapped(marker)}
	ring := seal.Ring{Last: 1, Keys: []seal.WrappedKey{key}}
	for _, value := range []any{key.Key, &key.Key, key, &key, ring, &ring, s, s.Opener, map[string]any{"k": key}} {
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d"} {
			refuseMarker(t, verb, fmt.Sprintf(verb, value))
		}
		encoded, err := json.Marshal(value)
		refuseMarker(t, "json", string(encoded), fmt.Sprint(err))
		for _, handler := range []func(*testworld.Buffer) slog.Handler{
			func(b *testworld.Buffer) slog.Handler { return slog.NewTextHandler(b, nil) },
			func(b *testworld.Buffer) slog.Handler { return slog.NewJSONHandler(b, nil) },
		} {
			var log testworld.Buffer
			slog.New(handler(&log)).Info("x", "value", value)
			refuseMarker(t, "slog", log.String())
		}
	}
	for _, text := range []string{key.Key.String(), key.Key.GoString(), s.String(), s.GoString(), s.LogValue().String(), key.Key.LogValue().String()} {
		if text != "[redacted]" {
			t.Errorf("%q", text)
		}
	}
}

func refuseMarker(t *testing.T, how string, texts ...string) {
	t.Helper()
	for _, text := range texts {
		for _, spelling := range spellings(marker) {
			if strings.Contains(text, spelling) {
				t.Errorf("%s shows %s", how, text)
			}
		}
	}
}

func spellings(secret string) []string {
	return []string{
		secret, hex.EncodeToString([]byte(secret)), fmt.Sprintf("%X", secret), strings.Trim(fmt.Sprintf("%d", []byte(secret)), "[]"),
		strings.TrimRight(base64.StdEncoding.EncodeToString([]byte(secret)), "="), strings.TrimRight(base64.URLEncoding.EncodeToString([]byte(secret)), "="),
		fmt.Sprintf("%#v", []byte(secret)),
	}
}

// leakingKeeper repeats the secret in its errors, encoded by spell.
type leakingKeeper struct {
	*testKeeper
	spell  func([]byte) string
	leaked []string
}

func (k *leakingKeeper) leak(secret []byte) error {
	k.leaked = append(k.leaked, k.spell(secret))
	return fmt.Errorf("cannot work on <%s>", k.spell(secret))
}

func (k *leakingKeeper) Encrypt(_ context.Context, plain []byte) ([]byte, error) {
	return nil, k.leak(plain)
}

func (k *leakingKeeper) Decrypt(_ context.Context, wrapped []byte) ([]byte, error) {
	return nil, k.leak(wrapped)
}

// leakingStore repeats the key that it was to add in its error.
type leakingStore struct {
	seal.Keys
	keeper *leakingKeeper
}

func (s leakingStore) Add(_ context.Context, _ seal.Stream, key seal.WrappedKey) error {
	return s.keeper.leak(key.Key)
}

func TestErrorsAndLogsContainNoKeys(t *testing.T) {
	t.Parallel()
	for name, spell := range map[string]func([]byte) string{
		"raw":           func(b []byte) string { return string(b) },
		"quoted":        func(b []byte) string { return fmt.Sprintf("%q", b) },
		"hex":           func(b []byte) string { return hex.EncodeToString(b) },
		"upper hex":     func(b []byte) string { return fmt.Sprintf("%X", b) },
		"decimal":       func(b []byte) string { return fmt.Sprintf("%d", b) },
		"base64":        base64.StdEncoding.EncodeToString,
		"base64 of URL": base64.RawURLEncoding.EncodeToString,
		"half":          func(b []byte) string { return hex.EncodeToString(b[len(b)/2:]) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { refuseLeaks(t, spell) })
		})
	}
}

func refuseLeaks(t *testing.T, spell func([]byte) string) {
	w := newWorld(t)
	sealed := w.seal(w.sealer(seal.Config{}))
	keeper := &leakingKeeper{testKeeper: w.keeper, spell: spell}
	telling := seal.Keepers{"": keeper}

	o := seal.NewOpener(w.keys, telling, w.config(seal.Config{}))
	defer o.Close()
	errs := []error{opens(o, patients, sealed)} // unwrapping fails
	fresh := seal.NewSealer(w.keys, telling, w.config(seal.Config{}))
	defer fresh.Close()
	_, err := fresh.Seal(t.Context(), seal.Stream{Namespace: "n", Name: "new"}, payload) // wrapping fails
	errs = append(errs, err)
	adding := seal.NewSealer(leakingStore{w.keys, keeper}, w.keepers(), w.config(seal.Config{}))
	defer adding.Close()
	_, err = adding.Seal(t.Context(), seal.Stream{Namespace: "n", Name: "new"}, payload) // adding fails
	errs = append(errs, err)

	keepers := w.keepers() // renewing fails, and is logged
	renewing := seal.NewSealer(w.keys, keepers, w.config(seal.Config{}))
	defer renewing.Close()
	w.seal(renewing)
	keepers[""] = keeper
	await.Pass(4 * time.Minute)
	w.seal(renewing)

	texts := []string{w.log.String()}
	for _, err := range errs {
		for ; err != nil; err = unwrap(err) {
			texts = append(texts, err.Error(), fmt.Sprintf("%+v %#v", err, err))
		}
	}
	if len(keeper.leaked) != 4 || !strings.Contains(texts[0], "withheld") || strings.Count(strings.Join(texts, "\n"), "withheld") < 4 {
		t.Errorf("leaked %d times: %q", len(keeper.leaked), texts)
	}
	for _, leaked := range keeper.leaked {
		if strings.Contains(strings.Join(texts, "\n"), leaked) {
			t.Errorf("%q has %q", texts, leaked)
		}
	}
}

func unwrap(err error) error {
	if wrapper, ok := err.(interface{ Unwrap() error }); ok {
		return wrapper.Unwrap()
	}
	return nil
}

func TestErrorsOfOpenContainNoPayload(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.sealer(seal.Config{})
	sealed := w.seal(s)
	for _, given := range [][]byte{payload, []byte(`{"posthorn_sealed":"plaintext-marker"}`), append(sealed, payload...), seal.Relabel(sealed, 9)} {
		if err := opens(s.Opener, patients, given); err == nil || strings.Contains(err.Error(), "plaintext-marker") || strings.Contains(err.Error(), string(given)) {
			t.Errorf("%v", err)
		}
	}
}
