package testpg_test

import (
	"context"
	"net/url"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/posthorn/posthorn/posthorntest"
)

func TestMain(m *testing.M) { posthorntest.Main(m) }

// Sessions on the server that tests share begin cheaply, and with its password only.
func TestPasswordOfTheServer(t *testing.T) {
	t.Parallel()
	right := posthorntest.ServerURL(t)
	conn, err := pgx.Connect(t.Context(), right)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	var stored string
	err = conn.QueryRow(t.Context(), "select rolpassword from pg_authid where rolname = current_user").Scan(&stored)
	if err != nil || !strings.HasPrefix(stored, "SCRAM-SHA-256$1000:") {
		t.Errorf("the password is stored as %.20s…, %v", stored, err)
	}
	wrong, err := url.Parse(right)
	if err != nil {
		t.Fatal(err)
	}
	wrong.User = url.UserPassword(wrong.User.Username(), "another")
	if conn, err := pgx.Connect(t.Context(), wrong.String()); err == nil {
		_ = conn.Close(t.Context())
		t.Error("a wrong password is accepted")
	}
}
