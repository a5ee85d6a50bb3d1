package sealing_test

import (
	"context"
	"log/slog"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"gocloud.dev/secrets/localsecrets"

	"github.com/posthorn/posthorn/admin"
	"github.com/posthorn/posthorn/internal/pg"
	"github.com/posthorn/posthorn/internal/sealing"
	"github.com/posthorn/posthorn/posthorntest"
	"github.com/posthorn/posthorn/seal"
	"github.com/posthorn/posthorn/seal/sealtest"
)

func TestMain(m *testing.M) { posthorntest.Main(m) }

// store is the store in the database, with the administrator's function to destroy
// keys.
type store struct{ sealing.Keys }

func (s store) Shred(ctx context.Context, at seal.Stream) error {
	_, err := admin.New(s.DB, at.Namespace).ShredStreamKeys(ctx, at.Name, 0)
	return err
}

func TestStore(t *testing.T) {
	t.Parallel()
	sealtest.TestStore(t, func(t *testing.T) sealtest.Store {
		pool, err := pgxpool.New(t.Context(), posthorntest.Database(t))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(pool.Close)
		for _, at := range []seal.Stream{sealtest.Patients, sealtest.Others} {
			if err := admin.New(pool, at.Namespace).DefineNamespace(t.Context(), nil); err != nil {
				t.Fatal(err)
			}
			if err := admin.New(pool, at.Namespace).SetStreamPolicy(t.Context(), at.Name, admin.StreamPolicy{SecurityLevel: "confidential"}); err != nil {
				t.Fatal(err)
			}
		}
		return store{sealing.Keys{DB: pool}}
	})
}

// Publishers may add keys, even keys that do not open. Sealing goes on without such a
// key, and an explicit rotation still replaces the sealing key.
func TestPublishersDoNotStopStreams(t *testing.T) {
	t.Parallel()
	pool, err := pgxpool.New(t.Context(), posthorntest.Database(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	at := seal.Stream{Namespace: "default", Name: "patients"}
	if err := admin.New(pool, at.Namespace).SetStreamPolicy(t.Context(), at.Name, admin.StreamPolicy{SecurityLevel: "confidential"}); err != nil {
		t.Fatal(err)
	}
	keeper := localsecrets.NewKeeper([32]byte{1})
	sealedBy := func() (version int) {
		t.Helper()
		s := seal.NewSealer(sealing.Keys{DB: pool}, seal.Keepers{"": keeper}, seal.Config{Logger: slog.New(slog.NewTextHandler(t.Output(), nil))})
		defer s.Close()
		sealed, err := s.Seal(t.Context(), at, []byte(`{}`))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := pg.Publish(t.Context(), pool, at.Namespace, pg.Message{Type: "a", Stream: at.Name, Payload: sealed}); err != nil {
			t.Fatal(err)
		}
		if err := pool.QueryRow(t.Context(), "select posthorn.sealed_with($1)", string(sealed)).Scan(&version); err != nil {
			t.Fatal(err)
		}
		return version
	}
	if version := sealedBy(); version != 1 {
		t.Fatalf("key %d seals, want 1", version)
	}
	err = pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(t.Context(), "set local role posthorn_publisher"); err != nil {
			return err
		}
		return sealing.Keys{DB: tx}.Add(t.Context(), at, seal.WrappedKey{Version: 2, Key: []byte("\xde\xad\xbe\xef")})
	})
	if err != nil {
		t.Fatal(err)
	}
	if version := sealedBy(); version != 1 {
		t.Errorf("key %d seals, want 1", version)
	}
	if err := admin.New(pool, at.Namespace).RotateStreamKey(t.Context(), at.Name); err != nil {
		t.Fatal(err)
	}
	if version := sealedBy(); version != 3 {
		t.Errorf("after a rotation key %d seals, want 3", version)
	}
}
