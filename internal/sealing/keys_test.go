package sealing_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/posthorn/posthorn/internal/pg"
	"github.com/posthorn/posthorn/internal/sealing"
	"github.com/posthorn/posthorn/posthorntest"
	"github.com/posthorn/posthorn/seal"
	"github.com/posthorn/posthorn/seal/sealtest"
)

func TestMain(m *testing.M) { posthorntest.Main(m) }

// store is the keys in the database, whose admin can destroy them.
type store struct{ sealing.Keys }

func (s store) Shred(ctx context.Context, at seal.Stream) error {
	_, err := pg.ShredStreamKeys(ctx, s.DB, at.Namespace, at.Name, 0)
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
			if err := pg.DefineNamespace(t.Context(), pool, at.Namespace, nil); err != nil {
				t.Fatal(err)
			}
			if err := pg.SetStreamPolicy(t.Context(), pool, at.Namespace, at.Name, pg.StreamPolicy{SecurityLevel: "confidential"}); err != nil {
				t.Fatal(err)
			}
		}
		return store{sealing.Keys{DB: pool}}
	})
}
