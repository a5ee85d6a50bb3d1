package posthorn_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/posthorn/posthorn"
)

// In a pool of one connection, a handler that uses the pool beside its transaction would wait for itself.
func TestPoolOfOneConnectionIsRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	config, err := pgxpool.ParseConfig(w.URL)
	if err != nil {
		t.Fatal(err)
	}
	config.MaxConns = 1
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	for setting, config := range map[string]posthorn.Config{
		"Set MaxConns to 2": {DatabaseURL: w.URL, MaxConns: 1}, "Set pgxpool.Config.MaxConns to 2": {Pool: pool},
	} {
		ph, err := posthorn.Open(t.Context(), config)
		if err == nil {
			ph.Close()
		}
		if !errors.Is(err, posthorn.ErrInvalid) || !strings.Contains(err.Error(), "the pool has 1 connection, and 2 are needed") || !strings.Contains(posthorn.Hint(err), setting) {
			t.Errorf("open with one connection: %v", err)
		}
	}
}
