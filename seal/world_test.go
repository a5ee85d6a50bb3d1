package seal_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"

	"gocloud.dev/secrets"
	"gocloud.dev/secrets/localsecrets"

	"github.com/posthorn/posthorn/internal/test/testworld"
	"github.com/posthorn/posthorn/seal"
	"github.com/posthorn/posthorn/seal/sealtest"
)

var (
	patients = sealtest.Patients
	payload  = []byte(`{"name":"plaintext-marker"}`)
)

// testKeeper is a real keeper that counts its calls, and can fail or wait.
type testKeeper struct {
	*secrets.Keeper
	encrypted, decrypted atomic.Int32
	down                 atomic.Bool
	before               func(context.Context) error // of decrypting
}

func newKeeper() *testKeeper {
	return &testKeeper{Keeper: localsecrets.NewKeeper([32]byte{1, 2, 3})}
}

var errDown = errors.New("the keeper is down")

func (k *testKeeper) Encrypt(ctx context.Context, plain []byte) ([]byte, error) {
	k.encrypted.Add(1)
	if k.down.Load() {
		return nil, errDown
	}
	return k.Keeper.Encrypt(ctx, plain)
}

func (k *testKeeper) Decrypt(ctx context.Context, wrapped []byte) ([]byte, error) {
	k.decrypted.Add(1)
	if k.down.Load() {
		return nil, errDown
	}
	if k.before != nil {
		if err := k.before(ctx); err != nil {
			return nil, err
		}
	}
	return k.Keeper.Decrypt(ctx, wrapped)
}

// world is a store and a keeper, shared by the processes of a test.
type world struct {
	t      *testing.T
	keys   *sealtest.Keys
	keeper *testKeeper
	log    *testworld.Buffer
}

func newWorld(t *testing.T) *world {
	return &world{t, &sealtest.Keys{}, newKeeper(), &testworld.Buffer{}}
}

func (w *world) config(c seal.Config) seal.Config {
	c.Logger = slog.New(slog.NewTextHandler(w.log, nil))
	return c
}

func (w *world) keepers() seal.Keepers { return seal.Keepers{"": w.keeper} }

func (w *world) sealer(c seal.Config) *seal.Sealer {
	s := seal.NewSealer(w.keys, w.keepers(), w.config(c))
	w.t.Cleanup(s.Close)
	return s
}

func (w *world) opener(c seal.Config) *seal.Opener {
	o := seal.NewOpener(w.keys, w.keepers(), w.config(c))
	w.t.Cleanup(o.Close)
	return o
}

func (w *world) seal(s *seal.Sealer) []byte {
	w.t.Helper()
	sealed, err := s.Seal(context.Background(), patients, payload)
	if err != nil {
		w.t.Fatal(err)
	}
	return sealed
}

func (w *world) mustOpen(o *seal.Opener, sealed []byte) {
	w.t.Helper()
	if err := opens(o, patients, sealed); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) shred() {
	if err := w.keys.Shred(context.Background(), patients); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) last() uint32 {
	ring, err := w.keys.Load(context.Background(), patients)
	if err != nil {
		w.t.Fatal(err)
	}
	return ring.Last
}

// opens returns nil if the payload opens as the test's payload.
func opens(o *seal.Opener, s seal.Stream, sealed []byte) error {
	opened, err := o.Open(context.Background(), s, sealed)
	if err == nil && !bytes.Equal(opened, payload) {
		return fmt.Errorf("opened as %q", opened)
	}
	return err
}
