package guarantee

import (
	"context"
	"log/slog"
	"maps"
	"os"
	"testing"
	"time"

	"github.com/posthorn/posthorn/internal/testdir"
	"github.com/posthorn/posthorn/localpg"
	"github.com/posthorn/posthorn/schema"
)

// crashServer is a server of the test's own, which it may kill.
type crashServer struct {
	t      *testing.T
	config localpg.Config
	*localpg.Server
}

// startServer starts a server with Posthorn in it. Unlike the shared one it
// keeps what was committed through a crash.
func startServer(t *testing.T, settings map[string]string) *crashServer {
	t.Helper()
	s := startEmptyServer(t, settings)
	if _, err := schema.Migrate(t.Context(), s.session().conn, schema.Options{}); err != nil {
		t.Fatal(err)
	}
	return s
}

func startEmptyServer(t *testing.T, settings map[string]string) *crashServer {
	t.Helper()
	s := &crashServer{t: t, config: localpg.Config{
		Dir:      testdir.New(t, "guarantee-").Path,
		BinDir:   os.Getenv("POSTHORN_TEST_PG_BIN"),
		Logger:   slog.New(slog.DiscardHandler),
		Settings: map[string]string{"shared_buffers": "32MB"},
	}}
	maps.Copy(s.config.Settings, settings)
	s.start()
	t.Cleanup(func() {
		if err := s.Kill(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func (s *crashServer) start() {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), time.Minute)
	defer cancel()
	var err error
	if s.Server, err = localpg.Start(ctx, s.config); err != nil {
		s.t.Fatal(err)
	}
}

// crash kills every process of the server with SIGKILL and starts it again.
func (s *crashServer) crash() {
	s.t.Helper()
	if err := s.Kill(); err != nil {
		s.t.Fatal(err)
	}
	s.start()
}

func (s *crashServer) session() *session {
	s.t.Helper()
	return connect(s.t, s.URL())
}
